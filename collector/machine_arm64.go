package collector

import "debug/elf"

// machine is what programs are compiled for that the agent can be loaded into.
const machine = elf.EM_AARCH64
