package testprog

// churn_test.go: threads that live for microseconds. Each is recorded, with its name and its end; slots are used again.

import (
	"fmt"
	"os"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestStressChurn makes 100,000 threads when HBTRACE_STRESS is set, else a few more than there are slots (16,384).
func TestStressChurn(t *testing.T) {
	n := 20000
	if os.Getenv("HBTRACE_STRESS") != "" {
		n = 100000
	}
	src := record(t, "-m", "64M", "--", Build(t, "churn"), fmt.Sprint(n))
	st := src.Stats()
	if st.ThreadsUnslotted > 0 || st.Broken > 0 {
		t.Errorf("%d threads found no slot, %d records are broken", st.ThreadsUnslotted, st.Broken)
	}
	// What each thread did and the recording must know of each, but for what it says was lost: one allocation and one free, by
	// the counters; a sleep of its own; its name and its end.
	slept := map[trace.ThreadID]int{}
	if err := trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindCall && src.Meta().Hooks[e.Hook].Name == "usleep" {
			slept[e.Thread]++
			if e.Time-e.Start < 200e3 {
				t.Errorf("thread %d slept %d ns, want at least 200 us", e.Thread, e.Time-e.Start)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	var ended, asleep, counted, lostByThread int
	for _, th := range src.Threads() {
		names[th.Name]++
		if th.End != 0 {
			ended++
		}
		lostByThread += int(th.Lost)
		if th.Main {
			continue
		}
		if slept[th.ID] > 1 {
			t.Errorf("thread %d slept %d times, want once", th.ID, slept[th.ID])
		}
		asleep += slept[th.ID]
		if th.AllocObjects > 1 || th.FreeObjects > 1 || th.AllocBytes > 2000 {
			t.Errorf("thread %d: %d objects of %d bytes allocated, %d freed; it made one of up to 2,000 bytes: counters of the slot's last owner?",
				th.ID, th.AllocObjects, th.AllocBytes, th.FreeObjects)
		}
		if th.AllocObjects == 1 && th.FreeObjects == 1 && th.AllocBytes >= 1000 {
			counted++
		}
	}
	lost := int(st.Lost)
	t.Logf("%d threads, %d records, %d lost (%d of them said by threads), %d signals", len(src.Threads()), st.Records, lost, lostByThread, st.SignalsSent)
	within := func(what string, got, want int) {
		if got > want || got+lost < want {
			t.Errorf("%s: %d, want %d, %d records lost", what, got, want, lost)
		}
	}
	within("threads recorded", len(src.Threads()), n+1)
	within("threads that ended", ended, n+1)
	within("threads that slept", asleep, n)
	within("threads with one allocation and one free", counted, n)
	for k := range 10 {
		name := fmt.Sprintf("churn-%d", k)
		within("threads called "+name, names[name], n/10)
	}
}
