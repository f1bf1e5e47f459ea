// Package symbols turns (module, ELF virtual address) into functions, files, lines and inlined calls.
//
// A [Resolver] knows modules by their recording's id. The first address asked of a module opens its file,
// proves by build id that it is the file that was recorded, and gathers names from the best sources there are:
//
//	.debug_info + .debug_line   functions, inlined calls, file and line   dwarf.go die.go unit.go lookup.go line.go
//	.symtab, .dynsym            function names                            symtab.go
//	.gnu_debugdata              mini debug info (xz)                      minidebug.go
//	.gopclntab                  Go programs, also stripped ones           pclntab.go
//	perf maps, jitdumps         code that a process made as it ran        jit.go
//	.plt, .plt.sec, .plt.got    stubs, as name@plt (x86-64)               plt.go
//	separate debug files        by build id, or .gnu_debuglink and CRC    debugfile.go
//	debuginfod                  where DEBUGINFOD_URLS names a server      debuginfod.go
//	the vDSO                    this process' own image                   vdso.go
//
// Nothing here trusts a file. Sizes are checked before memory is taken, work on one module is limited in time and
// by counts, and a panic of debug/elf ends at the module, as a note. An address that nothing is
// known about gives nil, so that callers can show module+0xoffset.
//
// Answers are kept from run to run where the caller names a directory (cache.go).
//
// Tables are kept flat: every source is painted into one sorted list of (start, owner) that never overlaps
// (flatmap.go), so that a look-up is a binary search whatever the input was.
//
// Not read: type units of split DWARF, symbols of files without section headers.
package symbols
