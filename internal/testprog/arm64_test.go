package testprog

// arm64_test.go: the agent for arm64 in a program for arm64, under qemu-user, recorded by this machine's hbtrace.
//
// qemu's process is the program's: it attaches, and its memory is mapped at the program's addresses, so that its unwind tables are
// compiled and its addresses find their modules as everywhere. What this cannot show: that barriers suffice (x86 keeps stores
// in order), what time anything takes, the kernel's own vDSO and signal frames (qemu makes its own), and samples of what
// the program computes (a signal interrupts qemu first, which delivers it when it likes).

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/agent/freshness"
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

const arm64Root = "/usr/aarch64-linux-gnu/lib"

// arm64Program is testdata/arm64 as a command line, built with the flags.
func arm64Program(t *testing.T, flags ...string) []string {
	t.Helper()
	gcc := LookPath(t, "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
	qemu := LookPath(t, "qemu-aarch64", "qemu-user")
	loader := filepath.Join(arm64Root, "ld-linux-aarch64.so.1")
	if _, err := os.Stat(loader); err != nil {
		t.Skipf("needs %s (Debian package libc6-dev-arm64-cross)", loader)
	}
	dir := t.TempDir()
	lib, exe := filepath.Join(dir, "libprogram.so"), filepath.Join(dir, "program")
	flags = append([]string{"-O2", "-g", "-fPIC", "-shared", "-fno-optimize-sibling-calls", "-march=armv8.3-a", "-pthread", "-Wall", "-Werror",
		"-o", lib, "testdata/arm64/lib.c"}, flags...)
	for _, args := range [][]string{flags, {"-o", exe, "testdata/arm64/main.c", lib, "-Wl,-rpath," + dir}} {
		if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", gcc, strings.Join(args, " "), err, out)
		}
	}
	return []string{qemu, "-cpu", "max,pauth-impdef=on", loader, "--library-path", arm64Root, exe}
}

// hbtraceForQemu is an hbtrace that believes to be on arm64: its unwind tables are that machine's; its agents stamp with the clock,
// since the cycle counter that it would calibrate is this machine's; and it takes for code what qemu maps for the program, which
// is not executable, instead of what is qemu's own.
func hbtraceForQemu(t *testing.T) string {
	t.Helper()
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	const maps, exec1, exec2 = "collector/assemble/osfiles.go", `e.Exec = len(field[1]) == 4 && field[1][2] == 'x'`, `e.Exec = field[1] == "r--p" && e.Hi < 1<<40`
	src := fromRoot(t, maps)
	if n := strings.Count(src, exec1); n != 1 {
		t.Fatalf("%q occurs %d times in %s, want 1", exec1, n, maps)
	}
	dir := t.TempDir()
	texts := map[string]string{
		maps:                         strings.Replace(src, exec1, exec2, 1),
		"collector/machine_amd64.go": "package collector\n\nimport \"debug/elf\"\n\nconst machine = elf.EM_AARCH64\n",
		"segment/tsc_amd64.go":       "package segment\n\nconst haveCycles = false\n\nfunc cycles() uint64 { return 0 }\n",
	}
	replace := map[string]string{filepath.Join(root, "segment/tsc_amd64.s"): ""}
	for file, text := range texts {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = other
		if err := os.WriteFile(other, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	overlay, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "hbtrace")
	b, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", bin, "./cmd/hbtrace")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return bin
}

func TestArm64Program(t *testing.T) {
	outer := t
	object, err := filepath.Abs("../../agent/hbagent_linux_arm64.so")
	if err != nil {
		t.Fatal(err)
	}
	var hb string
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"signed return addresses", []string{"-mbranch-protection=standard"}},
		{"no frame pointers", []string{"-fomit-frame-pointer", "-mbranch-protection=none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := arm64Program(t, c.flags...)
			if r := Run(t, Command{Args: program}); r.Status() != 0 || string(r.Stdout) != "done\n" {
				t.Fatalf("without the agent: %v", r)
			}
			if hb == "" {
				hb = hbtraceForQemu(outer)
			}
			prefix := filepath.Join(t.TempDir(), "out")
			args := []string{hb, "run", "-q", "--alloc-period", "1000", "-o", prefix, "--",
				BuildFile(t, "testdata/unpreload.c", "-static"), program[0], "-E", "LD_PRELOAD=" + object}
			r := Run(t, Command{Args: append(args, program[1:]...)})
			if r.Status() != 0 || string(r.Stdout) != "done\n" || len(r.Stderr) != 0 {
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
			checkArm64(t, src)
		})
	}
}

// own are the functions of testdata/arm64/lib.c.
var own = []string{"compare", "sorts", "deeper", "holds", "worker", "waits", "waiter", "polls", "poller", "futex_waiter", "cancelled", "jumps", "nap", "p_main"}

// stackOf is an event's stack of functions, leaf first, those of the C library as "-"; and whether a frame was found without a table.
func stackOf(src trace.Source, id trace.StackID) (functions []string, guessed bool) {
	for ; id != 0; id = src.Node(id).Parent {
		name := "-"
		if f := src.Symbols(id); len(f) > 0 && slices.Contains(own, f[0].Func) {
			name = f[0].Func
		}
		functions = append(functions, name)
		how := src.Node(id).How
		guessed = guessed || how != trace.HowCaller && how != trace.HowTable
	}
	return functions, guessed
}

func checkArm64(t *testing.T, src *tracefile.Reader) {
	t.Helper()
	if st := src.Stats(); st.Broken != 0 || st.Gaps != 0 || st.Lost != 0 {
		t.Errorf("%d broken records, %d gaps, %d lost", st.Broken, st.Gaps, st.Lost)
	}
	var program, child *trace.Process
	for i := range src.Processes() {
		if p := &src.Processes()[i]; p.Forked {
			child = p
		} else if len(p.Cmdline) > 0 && strings.Contains(p.Cmdline[0], "qemu") {
			program = p
		}
	}
	if program == nil || child == nil || child.Parent != program.ID {
		t.Fatalf("want a program and its fork child; got %+v", src.Processes())
	}
	if program.Doubt.Disabled != "" || program.Doubt.HooksUnresolved != 0 || program.Doubt.MutexOpaque {
		t.Errorf("doubts: %+v", program.Doubt)
	}
	names := map[string]int{}
	for _, th := range src.Threads() {
		if th.Proc == program.ID {
			names[th.Name]++
		}
	}
	if names["worker"] != 2 {
		t.Errorf("threads by name: %v, want two workers", names)
	}

	type key struct{ hook, stack string }
	seen := map[key]int{}
	var allocs, whole, inChild, unwound, napped int
	var firstWhole, lastOther trace.Ns
	edges := map[string]int{}
	if err := trace.Events(src, func(e *trace.Event) error {
		th := src.Threads()[e.Thread-1]
		if th.Proc != program.ID && th.Proc != child.ID {
			return nil
		}
		hook := src.Meta().Hooks[e.Hook].Name
		switch e.Kind {
		case trace.KindAlloc:
			if e.Size != 70_000 {
				return nil
			}
			stack, guessed := stackOf(src, e.Stack)
			allocs++
			text := strings.Join(stack, " ")
			rest := strings.TrimLeft(strings.TrimPrefix(text, "compare"), " -") // the C library's qsort
			rest = strings.TrimRight(rest, "- ")                                // and what calls main, and a thread's function
			ok := stack[0] == "compare" && (rest == "sorts p_main" || rest == "sorts"+strings.Repeat(" deeper", 21)+" worker")
			if ok && !guessed && e.Flags&(trace.FlagStackCut|trace.FlagStackGuessed|trace.FlagStackOmitted|trace.FlagNoStack) == 0 {
				if whole++; firstWhole == 0 || e.Time < firstWhole {
					firstWhole = e.Time
				}
			} else if lastOther = max(lastOther, e.Time); allocs-whole < 4 {
				t.Logf("allocation by %v, guessed %v, flags %x", stack, guessed, e.Flags)
			}
			if th.Proc == child.ID {
				inChild++
			}
		case trace.KindWait, trace.KindCall:
			stack, _ := stackOf(src, e.Stack)
			seen[key{hook, stack[0]}]++
			if e.Flags&trace.FlagUnwound != 0 {
				unwound++
			}
			if e.Releaser != 0 && src.Threads()[e.Releaser-1].Proc == th.Proc {
				edges[hook]++
			}
			if stack[0] == "nap" && e.Flags&trace.FlagUnwound == 0 && e.Time-e.Start > 4_900_000 {
				napped++
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// A program waits 60 ms for its tables: on a busy machine the first stacks are without them, and said to be guessed.
	if allocs < 100 || whole < 50 || inChild == 0 || lastOther > firstWhole+100e6 {
		t.Errorf("%d of %d stacks below qsort are whole, %d in the child; the last that is not is of %v after the first that is",
			whole, allocs, inChild, time.Duration(lastOther-firstWhole))
	}
	for _, k := range []key{{"nanosleep", "nap"}, {"pthread_mutex_lock", "holds"}, {"pthread_cond_wait", "waits"}, {"epoll_wait", "polls"},
		{"futex_wait", "futex_waiter"}, {"nanosleep", "cancelled"}, {"read", "jumps"}, {"pthread_join", "p_main"}, {"waitpid", "p_main"}} {
		if seen[k] == 0 {
			t.Errorf("no interval of %s called by %s; there are %v", k.hook, k.stack, seen)
		}
	}
	for _, hook := range []string{"pthread_mutex_lock", "pthread_cond_wait", "epoll_wait", "futex_wait", "pthread_join"} {
		if edges[hook] == 0 {
			t.Errorf("nobody let a %s go on: %v", hook, edges)
		}
	}
	if unwound != 2 {
		t.Errorf("%d calls left otherwise than by return, want 2", unwound)
	}
	if napped < 10 {
		t.Errorf("%d naps of their length", napped)
	}
	t.Logf("%d stacks, intervals %v, edges %v", allocs, seen, edges)
}
