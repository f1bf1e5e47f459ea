package testprog

// syscalls_test.go: ARCHITECTURE.md names every system call that the agent makes, and no other, so that a seccomp filter can
// be written by it: held against the agent's sources, and against what the kernel is seen to be asked from the agent's code.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

func fromRoot(t *testing.T, name string) string {
	t.Helper()
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// documentedSyscalls are the names in code font of ARCHITECTURE.md's paragraph about them; what else is in code font there is
// a path or an exec.
func documentedSyscalls(t *testing.T) []string {
	t.Helper()
	_, rest, ok := strings.Cut(fromRoot(t, "ARCHITECTURE.md"), "The system calls that an agent makes")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no list of the agent's system calls")
	}
	paragraph, _, _ := strings.Cut(rest, "\n\n")
	var names []string
	for _, m := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(paragraph, -1) {
		if m[1] != "exec" {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestSystemCallsOfSources(t *testing.T) {
	root, err := freshness.Root()
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	for _, dir := range []string{"agent", "hooks", "sampler", "syscallproxy", "unwind", "concurrentring", "segment"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.[ch]"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			src := fromRoot(t, filepath.Join(dir, filepath.Base(f)))
			for _, m := range regexp.MustCompile(`\bhb_(?:sys|raw)[1-6]\(\s*(\w+|\(n\))`).FindAllStringSubmatch(src, -1) {
				if n, ok := strings.CutPrefix(m[1], "HB_SYS_"); ok {
					made = append(made, n)
				} else if m[1] != "(n)" && m[1] != "n" && m[1] != "long" { // where they are defined
					t.Errorf("%s: %s: the number is not a HB_SYS_ constant", f, m[0])
				}
			}
			if strings.Contains(src, `"hb_restorer:`) {
				made = append(made, "rt_sigreturn")
			}
		}
	}
	slices.Sort(made)
	made = slices.Compact(made)
	if documented := documentedSyscalls(t); !slices.Equal(made, documented) {
		t.Errorf("the sources call\n%v\nARCHITECTURE.md lists\n%v", made, documented)
	}
}

// TestSystemCallsOfPrograms has strace say where in memory each call was made, and looks at those from the agent's mapping.
func TestSystemCallsOfPrograms(t *testing.T) {
	strace := LookPath(t, "strace", "strace")
	hb, documented := Hbtrace(t), documentedSyscalls(t)
	for _, c := range []struct {
		program, signal string
		args            []string
		status          int
		want            []string // among others
	}{
		// start, threads, samples, exec from two kinds of thread, exit
		{"execstorm", "urg", []string{"4", "3000000"}, 13, []string{"socket", "connect", "recvmsg", "sendto", "mmap", "rt_sigaction", "gettid", "prctl", "clock_gettime", "open", "close"}},
		{"execstorm", "rtmin+3", []string{"4", "3000000"}, 13, []string{"getpid", "gettid"}},
		{"execthread", "urg", []string{"1"}, 11, []string{"getppid", "readlink"}}, // fork and vfork, too
		{"maskall", "rtmin+3", nil, 0, []string{"rt_sigprocmask"}},
	} {
		t.Run(c.program+"/"+c.signal, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			args := []string{strace, "-ff", "-i", "-y", "-o", log, hb, "run", "-q", "-F", "2000", "--signal", c.signal,
				"-o", filepath.Join(t.TempDir(), "out"), "--", Build(t, c.program)}
			r := Run(t, Command{Args: append(args, c.args...)})
			if strings.Contains(string(r.Stderr), "Operation not permitted") && strings.Contains(string(r.Stderr), "ptrace") {
				t.Skipf("needs to be allowed ptrace: %s", r.Stderr)
			}
			if r.Status() != c.status {
				t.Fatal(r)
			}
			files, err := filepath.Glob(log + ".*") // one a thread
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for _, f := range files {
				data, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(data)
			}
			seen := callsFromAgent(all.String())
			for name, n := range seen {
				if !slices.Contains(documented, name) {
					t.Errorf("the agent called %s, %d times; ARCHITECTURE.md does not list it", name, n)
				}
			}
			for _, name := range c.want {
				if seen[name] == 0 {
					t.Errorf("no %s was seen to be made by the agent: the test looks at the wrong place", name)
				}
			}
			t.Logf("%v", seen)
		})
	}
}

// callsFromAgent counts, by name, the calls of a strace -i -y log that were made from where the agent's file was mapped first.
func callsFromAgent(log string) map[string]int {
	type span struct{ lo, hi uint64 }
	var agents []span
	for _, m := range regexp.MustCompile(`mmap\(NULL, (\d+), PROT_READ, [^)]*/agent-[^)]*\.so>, 0\) = 0x([0-9a-f]+)`).FindAllStringSubmatch(log, -1) {
		lo, err := strconv.ParseUint(m[2], 16, 64)
		n, err2 := strconv.ParseUint(m[1], 10, 64)
		if err == nil && err2 == nil {
			agents = append(agents, span{lo, lo + n})
		}
	}
	seen := map[string]int{}
	for line := range strings.Lines(log) {
		var at uint64
		if _, err := fmt.Sscanf(line, "[%x]", &at); err != nil {
			continue
		}
		_, call, _ := strings.Cut(line, "] ")
		name, _, ok := strings.Cut(call, "(")
		if name == "execve" || name == "execveat" {
			continue // once done, or cut off by another thread's, it is shown where the new program stands
		}
		if strings.HasPrefix(name, "syscall_0xffffffff") {
			continue // no number of a call: the thread was met while another's exec ended it
		}
		if strings.HasSuffix(line, "= ?\n") {
			continue // its thread was killed before strace could ask what it called: the name is another call's
		}
		if ok && !strings.ContainsAny(name, " <") && slices.ContainsFunc(agents, func(s span) bool { return at >= s.lo && at < s.hi }) {
			seen[name]++
		}
	}
	return seen
}
