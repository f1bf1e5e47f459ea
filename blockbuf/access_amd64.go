//go:build amd64 && !race

// Access to record bytes on amd64, whose stores are seen in program order and whose loads are done in it (Intel
// SDM vol. 3, 9.2.2), by plain instructions: an atomic store of Go's would be an XCHG, as costly as a
// compare-and-swap, for each of the two headers of a record. The Go compiler keeps the order of stores, and
// moves no load over an atomic one.

package blockbuf

import "unsafe"

const copiesAreAtomic = false

func releaseStore(p unsafe.Pointer, v uint32)      { *(*uint32)(p) = v }
func sharedCopyIn(dst unsafe.Pointer, src []byte)  { copy(unsafe.Slice((*byte)(dst), len(src)), src) }
func sharedCopyOut(dst []byte, src unsafe.Pointer) { copy(dst, unsafe.Slice((*byte)(src), len(dst))) }
func sharedClear(p unsafe.Pointer, n uint64)       { clear(unsafe.Slice((*byte)(p), n)) }
