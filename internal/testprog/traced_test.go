package testprog

// traced_test.go: every program does alone what its behaviour says, does under hbtrace what it does alone, to the byte,
// and its recording is sound.

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Clean()
	os.Exit(code)
}

func TestTraced(t *testing.T) {
	hb := Hbtrace(t)
	for _, b := range behaviours() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel() // most of them wait most of the time
			c := b.command(t)
			alone := Start(t, c)
			bare := alone.Wait(t)
			alone.CheckNothingLeft(t)
			if bare.Code != b.code || bare.Signal != b.signal {
				t.Fatalf("alone, without hbtrace: want exit status %d, signal %d; got %v", b.code, int(b.signal), bare)
			}
			if b.defect != "" {
				t.Skipf("known defect: %s", b.defect)
			}
			dir := t.TempDir()
			prefix := filepath.Join(dir, "out")
			freq := "499"
			if b.hard {
				freq = "10000"
			}
			run := append([]string{hb, "run", "-q", "-F", freq, "-o", prefix}, b.flags...)
			c.Args = append(append(run, "--"), c.Args...)
			r := Start(t, c)
			traced := r.Wait(t)
			r.CheckNothingLeft(t)

			if b.refusable && traced.Code == 125 {
				checkRefusal(t, traced)
				return
			}
			if traced.Status() != bare.Status() {
				t.Errorf("bare: status %d; traced: %v", bare.Status(), traced)
			}
			if !bytes.Equal(traced.Stdout, bare.Stdout) {
				t.Errorf("stdout differs from the bare run's at byte %d:\nbare:   %q\ntraced: %q", differ(bare.Stdout, traced.Stdout),
					around(bare.Stdout, traced.Stdout), around(traced.Stdout, bare.Stdout))
			}
			if !b.anyStderr && !bytes.Equal(traced.Stderr, bare.Stderr) {
				t.Errorf("stderr differs from the bare run's:\nbare:   %q\ntraced: %q", around(bare.Stderr, traced.Stderr), around(traced.Stderr, bare.Stderr))
			}
			checkRecording(t, b, prefix, bare)
		})
	}
}

// checkRefusal: what hbtrace cannot record it refuses in one line, before it has started anything.
func checkRefusal(t *testing.T, r Result) {
	t.Helper()
	if len(r.Stdout) != 0 || bytes.Count(r.Stderr, []byte{'\n'}) != 1 || !bytes.HasPrefix(r.Stderr, []byte("hbtrace: ")) {
		t.Errorf("a refusal is one line on stderr; got %v", r)
	}
	t.Logf("refused: %s", bytes.TrimSpace(r.Stderr))
}

func checkRecording(t *testing.T, b behaviour, prefix string, bare Result) {
	t.Helper()
	for _, suffix := range []string{".hbt", ".pb.gz", ".perfetto-trace"} {
		if st, err := os.Stat(prefix + suffix); err != nil || st.Size() == 0 {
			t.Errorf("no %s was written (%v)", suffix, err)
		}
	}
	if err := validate.File(prefix + ".hbt"); err != nil {
		t.Error(err)
		return
	}
	src, err := tracefile.Open(prefix + ".hbt")
	if err != nil {
		t.Error(err)
		return
	}
	defer src.Close()
	m := src.Meta()
	if wantSignal := int(bare.Signal); m.ExitSignal != wantSignal || wantSignal == 0 && m.ExitStatus != bare.Code {
		t.Errorf("the recording says status %d, signal %d; want %d, %d", m.ExitStatus, m.ExitSignal, bare.Code, wantSignal)
	}
	if !src.Stats().Complete {
		t.Error("the recording was not closed properly")
	}
	if b.refusable {
		return // run, but with nothing inside that could record
	}
	for _, p := range src.Processes() {
		confines := map[string]string{"seccomp": "seccomp", "tsync": "seccomp", "notsc": "PR_SET_TSC"}[b.program]
		if p.Doubt.Disabled != "" && (confines == "" || !strings.Contains(p.Doubt.Disabled, confines)) {
			t.Errorf("process %d (%s) stopped recording: %s", p.PID, p.Exe, p.Doubt.Disabled)
		}
	}
	if n := len(src.Processes()); n < max(b.procs, 1) {
		t.Errorf("%d processes recorded, want at least %d", n, max(b.procs, 1))
	}
	if n := len(src.Threads()); n < max(b.threads, 1) {
		t.Errorf("%d threads recorded, want at least %d", n, max(b.threads, 1))
	}
	if st := src.Stats(); st.Lost > 0 || st.Broken > 0 {
		t.Logf("%d records lost, %d broken", st.Lost, st.Broken)
	}
	checkMatters(t, b, src)
}

// checkMatters looks for the hooks whose intervals the program must have left.
func checkMatters(t *testing.T, b behaviour, src trace.Source) {
	t.Helper()
	seen := map[string]bool{}
	hooks := src.Meta().Hooks
	if err := trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindWait || e.Kind == trace.KindCall {
			seen[hooks[e.Hook].Name] = true
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, name := range b.intervals {
		if !seen[name] {
			t.Errorf("no interval of %s", name)
		}
	}
}

// TestIntervalsLeftByUnwinding: a wait that ends by cancellation or by a jump out of a signal handler was a wait all
// the same, and says how it ended.
func TestIntervalsLeftByUnwinding(t *testing.T) {
	hb := Hbtrace(t)
	for _, c := range []struct {
		program string
		hooks   []string
	}{
		{"cancel", []string{"read", "poll", "select", "epoll_wait", "sem_wait", "pthread_cond_wait", "pthread_join"}},
		{"jump", []string{"read", "poll", "select", "nanosleep", "sem_wait"}},
	} {
		t.Run(c.program, func(t *testing.T) {
			prefix := filepath.Join(t.TempDir(), "out")
			if r := Run(t, Command{Args: []string{hb, "run", "-q", "-o", prefix, "--", Build(t, c.program)}}); r.Status() != 0 {
				t.Fatal(r)
			}
			src, err := tracefile.Open(prefix + ".hbt")
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			unwound := map[string]int{}
			if err := trace.Events(src, func(e *trace.Event) error {
				if (e.Kind == trace.KindWait || e.Kind == trace.KindCall) && e.Flags&trace.FlagUnwound != 0 {
					unwound[src.Meta().Hooks[e.Hook].Name]++
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			for _, h := range c.hooks {
				if unwound[h] == 0 {
					t.Errorf("no interval of %s that was left by unwinding; there are %v", h, unwound)
				}
			}
		})
	}
}

// differ is the first byte at which a and b differ.
func differ(a, b []byte) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}

// around shows a where it begins to differ from b.
func around(a, b []byte) string {
	at := differ(a, b)
	from, to := max(at-40, 0), min(at+400, len(a))
	return strings.ToValidUTF8(string(a[from:to]), "?")
}
