package unwind

import "debug/elf"

// machine is what an architecture's ABI says about registers and frames. Numbers are DWARF register columns.
type machine struct {
	elf       elf.Machine
	registers uint64 // columns below this one can be a rule's base
	sp, fp    uint64
	ra        uint64 // the return address's column
	raSlot    int64  // where calls leave it: CFA + raSlot
	linked    bool   // calls leave it in column ra instead, and functions save it where they like
	signalCFA int64  // in the kernel's signal frame, the interrupted SP lies at SP + signalCFA; 0: its rows say otherwise
}

// machines that tables are compiled for.
var machines = map[elf.Machine]*machine{
	elf.EM_X86_64:  &amd64,
	elf.EM_AARCH64: &arm64,
}
