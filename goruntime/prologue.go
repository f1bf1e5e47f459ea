package goruntime

import (
	"encoding/binary"
	"fmt"
)

// jumpBytes is a jump to a place within 2 GB: e9, and the distance from behind it.
const jumpBytes = 5

// prologue is how many bytes of a function's beginning can be moved elsewhere and run there: whole instructions, at least
// jumpBytes of them, of which none is a branch or speaks of its own address. Only what Go's compiler makes of functions
// without a check of the stack is known: anything else is refused.
func prologue(code []byte) (int, error) {
	known := [][]int{ // -1: any byte
		{0x8b, 0x7c, 0x24, 0x08, 0xb8, 0xe7, 0, 0, 0},                              // runtime.exit: mov di, [sp+8]; mov ax, SYS_exit_group
		{0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, -1},                             // push bp; mov bp, sp; sub sp, n
		{0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, -1, -1, -1, -1},                 // the same with a large n
		{0x48, 0x83, 0xec, -1, 0x48, 0x89, 0x6c, 0x24, -1},                         // Go 1.20: sub sp, n; mov [sp+m], bp
		{0x48, 0x81, 0xec, -1, -1, -1, -1, 0x48, 0x89, 0xac, 0x24, -1, -1, -1, -1}, // the same with a large n
	}
	for _, k := range known {
		if len(code) < len(k) {
			continue
		}
		same := true
		for i, b := range k {
			same = same && (b < 0 || int(code[i]) == b)
		}
		if same {
			return len(k), nil
		}
	}
	return 0, fmt.Errorf("begins with % x, which is not known", code[:min(len(code), 12)])
}

// jump is an instruction at `from` that goes on at `to`.
func jump(from, to uint64) []byte {
	b := []byte{0xe9, 0, 0, 0, 0}
	binary.LittleEndian.PutUint32(b[1:], uint32(to-(from+jumpBytes)))
	return b
}
