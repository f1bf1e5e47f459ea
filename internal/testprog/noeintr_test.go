package testprog

// noeintr_test.go: the promise that sampling disturbs no call, held for as long as HBTRACE_STRESS says.

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// stressFor is HBTRACE_STRESS, which a value that is no duration sets to a minute; short without it.
func stressFor(short time.Duration) time.Duration {
	v := os.Getenv("HBTRACE_STRESS")
	if v == "" {
		return short
	}
	if d, err := time.ParseDuration(v); err == nil {
		return d
	}
	return time.Minute
}

// TestStressNoEINTR: twelve threads in every call that can sleep, sampled 10,000 times a second, with signals and masks
// of the program's own: no EINTR, early return or other result that the program did not cause. The program judges
// that itself; that calls were really met by the sampler is judged here.
func TestStressNoEINTR(t *testing.T) {
	d := stressFor(5 * time.Second)
	prefix := filepath.Join(t.TempDir(), "out")
	r := Run(t, Command{Args: []string{Hbtrace(t), "run", "-q", "-F", "10000", "-m", "64M", "-o", prefix, "--", Build(t, "noeintr"), fmt.Sprint(d.Seconds())},
		Env: append(os.Environ(), "NOEINTR_COUNT=1"), Limit: 3*d + 2*time.Minute})
	t.Logf("%s", r.Stderr)
	if r.Status() != 0 || string(r.Stdout) != "noeintr ok\n" {
		t.Fatal(r)
	}
	if err := validate.File(prefix + ".hbt"); err != nil {
		t.Error(err)
	}
	src, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	st := src.Stats()
	samples := 0
	hooks := src.Meta().Hooks
	seen := map[string]int{}
	if err := trace.Events(src, func(e *trace.Event) error {
		switch e.Kind {
		case trace.KindCPU, trace.KindGap:
			samples++
		case trace.KindWait, trace.KindCall:
			seen[hooks[e.Hook].Name]++
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%d signals sent, %d samples, %d hooks with intervals", st.SignalsSent, samples, len(seen))
	if st.SignalsSent < 100 || samples < 100 {
		t.Errorf("%d signals sent, %d samples: nothing was tried", st.SignalsSent, samples)
	}
	for _, name := range []string{"poll", "ppoll", "select", "pselect", "epoll_wait", "nanosleep", "recv", "send", "accept4", "semtimedop", "sigtimedwait",
		"futex_wait", "sem_timedwait", "pthread_mutex_timedlock", "pthread_cond_clockwait", "write"} {
		if seen[name] == 0 {
			t.Errorf("no interval of %s: it was not met", name)
		}
	}
}
