package flight

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

// resident is this process's memory, as the kernel counts it.
func resident(t *testing.T) (kb int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err = strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb
}

// TestSoak: the memory of a recorder stays what it is after its first window. HBTRACE_STRESS is the number of events, in
// millions: 1000 stands for weeks.
func TestSoak(t *testing.T) {
	millions, _ := strconv.Atoi(os.Getenv("HBTRACE_STRESS"))
	if millions < 2 {
		t.Skip("HBTRACE_STRESS is not a number of millions of events")
	}
	p := newProducer(t, Keep{Bytes: 8 << 20}, 1)
	defer p.w.Close()
	begun := time.Now()
	first, most := 0, 0
	var curve []string
	for n := 0; n < millions*1_000_000; n++ {
		p.step()
		if n%50_000 == 49_999 {
			p.soakKeyframe()
		}
		switch {
		case n%1_000_000 != 999_999:
			continue
		case first == 0 && p.w.Held().Overwritten > p.w.Held().Events: // two windows have gone by
			first = resident(t)
		}
		most = max(most, resident(t))
		if n%(millions*100_000) == millions*100_000-1 {
			curve = append(curve, fmt.Sprintf("%d M: %.1f MB", (n+1)/1_000_000, float64(resident(t))/1000))
		}
	}
	last := resident(t)
	t.Logf("%d million events in %v, %d threads; %s", millions, time.Since(begun).Round(time.Second), p.nextTID, strings.Join(curve, ", "))
	t.Logf("after the first windows %d kB, at the end %d kB (%+.1f %%), at most %d kB; %+v", first, last, 100*float64(last-first)/float64(first), most, p.w.Held())
	if first == 0 || float64(last) > 1.05*float64(first) {
		t.Errorf("memory grew from %d kB to %d kB", first, last)
	}
}

// soakKeyframe is a keyframe, and a collection when the recorder would make one.
func (p *producer) soakKeyframe() {
	p.now++
	st := State{Time: p.now}
	for _, s := range p.threads {
		st.Threads = append(st.Threads, s.t)
		p.w.PutThread(&s.t)
	}
	p.w.Keyframe(st)
	if p.w.DueCollect() {
		p.w.Collect(p.now, func(mark func(trace.StackID)) {
			for _, s := range p.threads {
				mark(s.stack)
			}
		}, func(trace.ThreadID) {})
	}
}
