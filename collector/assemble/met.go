package assemble

// met remembers which numbers were ever met: those of threads and processes stay valid references when they are gone,
// and what comes from one that is gone is too late. A session gives numbers from 1 up, so that it is enough to know the
// newest: all that are metKept below the highest count as met. Its size does not depend on how many there were.
type met struct {
	bits []uint64 // a ring of numbers, by number modulo its size; it grows to metKept
	top  uint32   // the highest that was met
}

// metKept is how many numbers are told apart: 8 MiB.
const metKept = 1 << 26

func (m *met) has(n uint32) bool {
	switch {
	case n > m.top:
		return false
	case m.top-n >= metKept:
		return true
	}
	n %= metKept
	return int(n/64) < len(m.bits) && m.bits[n/64]&(1<<(n%64)) != 0
}

func (m *met) set(n uint32) {
	if n > m.top {
		m.forget(m.top, n)
		m.top = n
	} else if m.top-n >= metKept {
		return
	}
	n %= metKept
	if need := int(n/64) + 1; need > len(m.bits) {
		m.bits = append(m.bits, make([]uint64, need-len(m.bits))...)
	}
	m.bits[n/64] |= 1 << (n % 64)
}

// forget clears what stands where the numbers after one and up to another will stand.
func (m *met) forget(after, to uint32) {
	if to-after >= metKept {
		clear(m.bits)
		return
	}
	for n := after; n != to; {
		n++
		if i := n % metKept; int(i/64) < len(m.bits) {
			if i%64 == 0 && to-n >= 63 {
				m.bits[i/64] = 0
				n += 63
				continue
			}
			m.bits[i/64] &^= 1 << (i % 64)
		}
	}
}
