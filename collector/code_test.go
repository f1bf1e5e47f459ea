// Names of code that recorded programs make, with a real runtime.
package collector

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// cpuIn sums the CPU time of samples whose leaf is a function of a file.
func cpuIn(t *testing.T, r *tracefile.Reader, fn, file string) (in, all int64) {
	t.Helper()
	for _, e := range allEvents(t, r) {
		if e.Kind != trace.KindCPU || e.Stack == 0 {
			continue
		}
		all += e.CPU
		if f := r.Symbols(e.Stack); len(f) > 0 && f[0].Func == fn && strings.HasSuffix(f[0].File, file) && f[0].Line > 0 {
			in += e.CPU
		}
	}
	return in, all
}

// TestMadeCode records node, which tells of its code in a perf map or in a jitdump; also in a pid namespace with a /tmp
// of its own, which are gone when names are looked up.
func TestMadeCode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node (Debian: nodejs)")
	}
	script, err := filepath.Abs("testdata/fib.js")
	if err != nil {
		t.Fatal(err)
	}
	// The script may lie in /tmp, and the agent, on systems without another place for it.
	ownTmp := `d=$(mktemp -d) && mount -t tmpfs none $d && cp '` + script + `' $d/ && { cp -a /tmp/hbtrace-* $d/ 2>/dev/null; mount --bind $d /tmp; }`
	for _, c := range []struct {
		name    string
		command []string
		needs   []string // a command that has to work
	}{
		{"perf map", []string{node, "--perf-basic-prof", script}, nil},
		{"jitdump", []string{node, "--perf-prof", script}, nil},
		{"perf map in namespaces", []string{"unshare", "-m", "-p", "-f", "sh", "-c", ownTmp + ` && exec "$@"`, "sh", node, "--perf-basic-prof", "/tmp/fib.js"},
			[]string{"unshare", "-m", "-p", "-f", "sh", "-c", ownTmp}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != nil {
				if out, err := exec.Command(c.needs[0], c.needs[1:]...).CombinedOutput(); err != nil {
					t.Skipf("needs to make namespaces: %v %s", err, out)
				}
			}
			dir := t.TempDir()
			res, r, out := recordIn(t, Options{Command: c.command, Dir: dir})
			if res.ExitStatus != 0 || strings.TrimSpace(out) == "" {
				t.Fatalf("status %d, output %q", res.ExitStatus, out)
			}
			in, all := cpuIn(t, r, "fib", "fib.js")
			t.Logf("%v of %v in fib; notes %q", time.Duration(in), time.Duration(all), res.Notes)
			if in < 200e6 {
				t.Errorf("%v of CPU time in fib of fib.js, want most of a second; all %v", time.Duration(in), time.Duration(all))
			}
			for _, p := range r.Processes() {
				os.Remove(fmt.Sprintf("/tmp/perf-%d.map", p.PID)) // node leaves it behind
			}
		})
	}
}

// TestReplacedWhileRunning records a program that is compiled anew while it runs, and one that is deleted: names are those
// of the file that ran.
func TestReplacedWhileRunning(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc for the test program")
	}
	const head = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\n#include <unistd.h>\n"
	const source = `volatile unsigned long sum;
__attribute__((noinline)) void NAME(void) { for (int i = 0; i < 1000000; i++) sum += i; }
int main(void) { struct timespec t; act(); do { NAME(); clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); } while (t.tv_sec < 1 && t.tv_nsec < 500000000); puts("done"); }
`
	for _, id := range []string{"sha1", "none"} {
		for _, how := range []string{"replaced", "deleted"} {
			t.Run(how+", build id "+id, func(t *testing.T) {
				dir := t.TempDir()
				build := func(out, name string, body string) {
					src := filepath.Join(dir, name+".c")
					code := head + "static void act(void) { " + body + " }\n" + strings.ReplaceAll(source, "NAME", name)
					if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
						t.Fatal(err)
					}
					if b, err := exec.Command("gcc", "-O1", "-g", "-Wl,--build-id="+id, "-o", out, src).CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, b)
					}
				}
				prog, other := filepath.Join(dir, "prog"), filepath.Join(dir, "other")
				act := `if (rename("` + other + `", "` + prog + `")) abort();`
				if how == "deleted" {
					act = `if (remove("` + prog + `")) abort();`
				}
				// Some time after the start: what happens before the agent has spoken cannot be told apart.
				for _, after := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
					build(other, "impostor", "")
					build(prog, "original", fmt.Sprintf("usleep(%d); ", after.Microseconds())+act)
					res, r, out := recordIn(t, Options{Command: []string{prog}})
					if res.ExitStatus != 0 || out != "done\n" {
						t.Fatalf("status %d, output %q", res.ExitStatus, out)
					}
					in, all := cpuIn(t, r, "original", "original.c")
					wrong, _ := cpuIn(t, r, "impostor", ".c")
					if in >= all/2 && in > 0 && wrong == 0 {
						return
					}
					t.Logf("%v after the start: %v of %v in original, %v in a function that never ran; notes %q", after, time.Duration(in),
						time.Duration(all), time.Duration(wrong), res.Notes)
				}
				t.Error("names are not those of the file that ran, however long after the start it is replaced")
			})
		}
	}
}
