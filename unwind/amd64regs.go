package unwind

import "debug/elf"

// amd64 as the System V psABI numbers it (figure 3.36): 6 rbp, 7 rsp, 16 the return address. The kernel's struct
// rt_sigframe has rsp at 160 bytes from the ucontext that rsp points to in the restorer.
var amd64 = machine{
	elf:       elf.EM_X86_64,
	registers: 16,
	sp:        7,
	fp:        6,
	ra:        16,
	raSlot:    -8,
	signalCFA: 160,
}
