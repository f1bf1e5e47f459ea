package sampler

import (
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// What a tick costs when nobody has to be asked: 2,000 threads that sleep in calls.
func BenchmarkTickOver2000Sleepers(b *testing.B) {
	seg, err := segment.Create(segment.Config{Threads: 2048, Procs: 8, RingBytes: 1 << 16})
	if err != nil {
		b.Fatal(err)
	}
	defer seg.Close()
	ctl, fd, err := createControl(8, 2048, 499)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	defer ctl.close()
	for i := range 2000 {
		th := seg.Thread(i)
		th.State.Store(segment.StateBlocked)
		th.UID.Store(uint32(i + 1))
	}
	seg.Header().ThreadsHigh.Store(2000)
	l, err := newLoop(seg, ctl)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		l.tick++
		l.lookAtAll()
	}
}
