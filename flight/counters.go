// Counters of threads in keyframes: what is used within a window is the difference of two.

package flight

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/trace"
)

// used are a thread's counters, in the order in which they are stored behind its number, as varints.
type used [11]int64

func usedBy(t *trace.Thread) used {
	return used{t.CPU, int64(t.AllocObjects), int64(t.AllocBytes), int64(t.FreeObjects), int64(t.Calls), int64(t.CallsSlow),
		int64(t.Waits), t.WaitNs, int64(t.Lost), int64(t.Samples), int64(t.SignalsSent)}
}

func (u used) set(t *trace.Thread) {
	t.CPU, t.AllocObjects, t.AllocBytes, t.FreeObjects = u[0], uint64(u[1]), uint64(u[2]), uint64(u[3])
	t.Calls, t.CallsSlow, t.Waits, t.WaitNs = uint64(u[4]), uint64(u[5]), uint64(u[6]), u[7]
	t.Lost, t.Samples, t.SignalsSent = uint64(u[8]), uint64(u[9]), uint64(u[10])
}

// since is what was used after an earlier moment.
func (u used) since(before used) used {
	cpu := u[0] - before[0]
	if u[0] < 0 || before[0] < 0 {
		cpu = -1 // unknown
	}
	for i := range u {
		u[i] = max(0, u[i]-before[i])
	}
	u[0] = max(cpu, -1)
	// Counters are read one after the other, while the thread goes on.
	const allocObjects, allocBytes, calls, slow, waits, waitNs = 1, 2, 4, 5, 6, 7
	u[slow] = min(u[slow], u[calls])
	if u[allocObjects] == 0 {
		u[allocBytes] = 0
	}
	if u[waits] == 0 {
		u[waitNs] = 0
	}
	return u
}

func appendCounters(dst []byte, t *trace.Thread) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.ID))
	for _, v := range usedBy(t) {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

// decodeCounters reads what appendCounters wrote, for any number of threads.
func decodeCounters(p []byte, f func(trace.ThreadID, used)) bool {
	for len(p) > 0 {
		id, n := binary.Uvarint(p)
		if n <= 0 || id > 1<<32-1 {
			return false
		}
		p = p[n:]
		var c used
		for i := range c {
			v, n := binary.Varint(p)
			if n <= 0 {
				return false
			}
			c[i], p = v, p[n:]
		}
		f(trace.ThreadID(id), c)
	}
	return true
}
