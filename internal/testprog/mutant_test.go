package testprog

// mutant_test.go: the tests of the guest's manners fail when the agent has none. Each mutant is the agent with one line of
// its sources broken on purpose; it is built next to the real one and goes into no other binary.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

// mutant is one broken line, and the run that must notice.
type mutant struct {
	name     string
	file     string // in the repository
	old, new string // old occurs once
	run      []string
	program  string
	args     []string
	code     int // with the real agent
}

var mutants = []mutant{
	{"no-blocked-state", "syscallproxy/proxy.h",
		"if (HB_LIKELY(hb_cas_seq(&s->state, &x, (uint32_t)HB_BLOCKED))) return;",
		"b->passive = 1; if (HB_LIKELY(s != NULL)) return;",
		[]string{"-F", "10000"}, "noeintr", []string{"10"}, 0},
	{"signal-in-flight-not-taken", "syscallproxy/proxy.h",
		"hb_sys4(HB_SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, &old, 8);",
		"if (x == HB_SIGNALLED) { t->outer = at; b->passive = 1; return; } hb_sys4(HB_SYS_rt_sigprocmask, 0, &all, &old, 8);",
		[]string{"-F", "10000"}, "noeintr", []string{"10"}, 0},
	{"no-exec-gate", "hooks/exec.h",
		"if (hb.signal < 32 || !hb_load_relaxed(&hb.on)",
		"if (1 || !hb_load_relaxed(&hb.on)",
		[]string{"-F", "10000", "--signal", "rtmin+3"}, "execstorm", []string{"120", "1000000"}, 13},
	{"exec-gate-opened-by-a-failed-exec", "hooks/exec.h",
		"hb_sub_relaxed(&hb.slot->gate, (uint32_t)HB_GATE_EXEC)",
		"hb_store_release(&hb.slot->gate, 0u)",
		[]string{"-F", "10000", "--signal", "rtmin+3"}, "execstorm", []string{"300", "1000000"}, 13},
	{"own-signal-not-handed-on", "sampler/handler.h",
		"((void (*)(int, void *, void *))app.handler)(sig, info, uc);",
		"return;",
		[]string{"-F", "10000"}, "sigurg", []string{"kept"}, 0},
}

// TestStressMutants runs only with HBTRACE_STRESS: each mutant is an hbtrace of its own, built and run in about 20 s.
func TestStressMutants(t *testing.T) {
	if os.Getenv("HBTRACE_STRESS") == "" {
		t.Skip("builds several broken agents: set HBTRACE_STRESS")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			program := Build(t, m.program)
			run := func(hb string) Result {
				args := append([]string{hb, "run", "-q", "-o", filepath.Join(t.TempDir(), "out")}, m.run...)
				return Run(t, Command{Args: append(append(args, "--", program), m.args...)})
			}
			if r := run(Hbtrace(t)); r.Status() != m.code {
				t.Fatalf("with the real agent: %v", r)
			}
			r := run(m.build(t))
			if r.Status() == m.code {
				t.Errorf("the program noticed nothing of an agent broken in %s: %v", m.file, r)
			}
			t.Logf("noticed: %v", r)
		})
	}
}

// TestMutantsApply: the lines that mutants break are there, once.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		if _, err := m.source(); err != nil {
			t.Error(err)
		}
	}
}

func (m mutant) source() (string, error) {
	root, err := freshness.Root()
	if err != nil {
		return "", err
	}
	src, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: %q occurs %d times in %s, want 1", m.name, m.old, n, m.file)
	}
	return strings.Replace(string(src), m.old, m.new, 1), nil
}

// build makes an hbtrace with the mutant inside.
func (m mutant) build(t *testing.T) string {
	t.Helper()
	LookPath(t, "gcc", "gcc")
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	src, err := m.source()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	header := filepath.Join(dir, m.file)
	if err := os.MkdirAll(filepath.Dir(header), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(header, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	object, overlay, bin := filepath.Join(dir, "agent.so"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "hbtrace")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, "agent/hbagent_linux_amd64.so"): object}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", "./agent/build", "-overlay", dir, "-o", object},
		{"build", "-overlay", overlay, "-o", bin, "./cmd/hbtrace"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return bin
}
