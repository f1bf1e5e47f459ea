package unwind

import "debug/elf"

// arm64 as the DWARF for the Arm 64-bit Architecture ABI numbers it: 0 to 30 x0 to x30, of which 29 is the frame pointer
// and 30 holds the return address; 31 sp. A signed return address is one as well: readers strip the signature.
var arm64 = machine{
	elf:       elf.EM_AARCH64,
	registers: 32,
	sp:        31,
	fp:        29,
	ra:        30,
	linked:    true,
}
