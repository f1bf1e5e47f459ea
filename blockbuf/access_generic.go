//go:build !amd64 || race

// Access to record bytes word by word with atomics: where loads may be done out of order, a reader could
// otherwise check that a block is still the same before it has read it; and the race detector, rightly, wants
// both sides of a speculative read to be atomic.

package blockbuf

import (
	"sync/atomic"
	"unsafe"
)

const copiesAreAtomic = true

func wordAt(p unsafe.Pointer, at uint64) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Add(p, at)) }

func releaseStore(p unsafe.Pointer, v uint32) { wordAt(p, 0).Store(v) }

// Records begin at multiples of 4 bytes and own their padding.
func sharedCopyIn(dst unsafe.Pointer, src []byte) {
	var four [4]byte
	for at := 0; at < len(src); at += 4 {
		four = [4]byte{}
		copy(four[:], src[at:])
		wordAt(dst, uint64(at)).Store(*(*uint32)(unsafe.Pointer(&four)))
	}
}

func sharedCopyOut(dst []byte, src unsafe.Pointer) {
	for at := 0; at < len(dst); at += 4 {
		v := wordAt(src, uint64(at)).Load()
		copy(dst[at:], (*[4]byte)(unsafe.Pointer(&v))[:])
	}
}

func sharedClear(p unsafe.Pointer, n uint64) {
	for at := uint64(0); at < n; at += 4 {
		wordAt(p, at).Store(0)
	}
}
