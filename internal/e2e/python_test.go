package e2e

// python_test.go: frames of Python between the native ones.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// pythons are the interpreters of this machine whose frames are known: the distribution's, and those that pyenv built.
func pythons(t *testing.T) (list []string) {
	t.Helper()
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{"/usr/bin/python3", filepath.Join(home, ".pyenv/versions/3.*/bin/python3")} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			if !strings.Contains(f, "/3.6.") && !strings.Contains(f, "/3.7.") {
				list = append(list, f)
			}
		}
	}
	if len(list) == 0 {
		t.Skip("there is no Python 3 here: apt-get install python3")
	}
	return list
}

type pyFrame struct {
	function, file string
	line           int
}

// pythonOf are a stack's frames of Python, leaf first, and how many evaluation loops in it have none.
func (r recording) pythonOf(stack trace.StackID) (frames []pyFrame, loops int) {
	for ; stack != 0; stack = r.Node(stack).Parent {
		n := r.Node(stack)
		for _, f := range r.Symbols(stack) {
			if n.Addr.Module != 0 && r.Modules()[n.Addr.Module-1].Kind == trace.ModulePython {
				frames = append(frames, pyFrame{f.Func, f.File, f.Line})
			} else if f.Func == "_PyEval_EvalFrameDefault" {
				loops++
			}
		}
	}
	return frames, loops
}

// TestPythonStacks compares the stack of each sleep with the one that the program saw itself.
func TestPythonStacks(t *testing.T) {
	for _, exe := range pythons(t) {
		t.Run(strings.ReplaceAll(strings.TrimPrefix(exe, "/"), "/", "."), func(t *testing.T) {
			t.Parallel()
			script, err := filepath.Abs("testdata/stacks.py")
			if err != nil {
				t.Fatal(err)
			}
			told := filepath.Join(t.TempDir(), "told")
			s := start(t, testprog.Command{Args: []string{exe, "-S", "-E", script, told}})
			if res := s.finish(t); res.Code != 0 {
				t.Fatalf("%v", res)
			}
			r := s.openTrace(t)
			var want [][]pyFrame
			var cases []string
			f, err := os.Open(told)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for lines := bufio.NewScanner(f); lines.Scan(); {
				var v struct {
					Case   string
					Frames [][]any
				}
				if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
					t.Fatal(err)
				}
				var frames []pyFrame
				for _, x := range v.Frames {
					frames = append(frames, pyFrame{x[0].(string), x[1].(string), int(x[2].(float64))})
				}
				want, cases = append(want, frames), append(cases, v.Case)
			}
			var got [][]pyFrame
			hooks := r.Meta().Hooks
			if err := trace.Events(r, func(e *trace.Event) error {
				if e.Kind == trace.KindCall && strings.Contains("clock_nanosleep select", hooks[e.Hook].Name) && e.Stack != 0 {
					frames, loops := r.pythonOf(e.Stack)
					if len(frames) > 0 && frames[0].function == "nap" {
						got = append(got, frames)
						if loops > 0 {
							t.Errorf("%d evaluation loops without frames of Python above %v", loops, frames)
						}
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			// A process waits 60 ms for its tables, and its first stacks are without Python where the machine has no time to make them.
			if len(want) < 15 || len(got) == 0 || len(got) > len(want) {
				t.Fatalf("%d sleeps recorded, %d made", len(got), len(want))
			}
			want, cases = want[len(want)-len(got):], cases[len(cases)-len(got):]
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s:\n%s\nthe program says\n%s", cases[i], told3(got[i]), told3(want[i]))
				}
			}
		})
	}
}

func told3(frames []pyFrame) string {
	var s strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&s, "  %s %s:%d\n", f.function, f.file, f.line)
	}
	return s.String()
}

// TestFakePython records a program that looks like an interpreter and keeps nonsense where frames should be. It must come to its
// end, and what was recorded must make sense.
func TestFakePython(t *testing.T) {
	exe := testprog.BuildFile(t, "testdata/fakepython.c", "-O1", "-rdynamic", "-pthread")
	s := start(t, testprog.Command{Args: []string{exe}}, "--threshold", "0", "--buffer", "64MB")
	res := s.finish(t)
	if res.Code != 0 || !strings.Contains(string(res.Stdout), "all of it") {
		t.Fatalf("%v", res)
	}
	r := s.openTrace(t)
	if n := r.Stats().Broken; n > 0 {
		t.Errorf("%d records make no sense", n)
	}
	d := r.Processes()[0].Doubt
	if d.PythonCut == 0 || d.CodesUnnamed == 0 {
		t.Errorf("%d stacks of Python cut, %d frames unnamed: want some of each", d.PythonCut, d.CodesUnnamed)
	}
	names := map[string]int{}
	deepest := 0
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Stack == 0 {
			return nil
		}
		frames, _ := r.pythonOf(e.Stack)
		deepest = max(deepest, len(frames))
		for _, f := range frames {
			names[f.function]++
			if len(f.function) > 4<<10 || len(f.file) > 8<<10 || !utf8.ValidString(f.function) || !utf8.ValidString(f.file) {
				t.Errorf("a name of %d bytes in a file of %d", len(f.function), len(f.file))
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"a_function", "other", strings.Repeat("x", 512) + "…", "\uFFFDa\uFFFD\n\x1b", "\uFFFD\uFFFDb\uFFFD", "ÿþ\u0080"} {
		if names[want] == 0 {
			t.Errorf("no frame of %q", want)
		}
	}
	if deepest < 190 || deepest > segment.PyFrames {
		t.Errorf("the deepest stack has %d frames of Python", deepest)
	}
}

// TestPythonGIL demands of a thread that kept the GIL that it is said who waited, where, and which function kept it.
func TestPythonGIL(t *testing.T) {
	for _, exe := range pythons(t) {
		t.Run(strings.ReplaceAll(strings.TrimPrefix(exe, "/"), "/", "."), func(t *testing.T) {
			t.Parallel()
			s := start(t, testprog.Command{Args: []string{exe, "-S", "-E", "testdata/gil.py"}})
			if res := s.finish(t); res.Code != 0 {
				t.Fatalf("%v", res)
			}
			r := s.openTrace(t)
			var main trace.ThreadID
			for _, x := range r.Threads() {
				if x.Main && main == 0 {
					main = x.ID
				}
			}
			runs := func(e *trace.Event, function string) bool {
				frames, _ := r.pythonOf(e.Stack)
				return slices.ContainsFunc(frames, func(f pyFrame) bool { return f.function == function })
			}
			const long = 30e6 // ns, of the 100 ms that each call lasts
			waits, drops := 0, 0
			if err := trace.Events(r, func(e *trace.Event) error {
				switch hook := r.Meta().Hooks[e.Hook]; {
				case e.Kind == trace.KindWait && hook.Name == "GIL":
					if e.Time-e.Start < long || !runs(e, "wants_gil") {
						break
					}
					// Of two that waited for the same call, one may have got the GIL from the other.
					if e.Releaser == 0 || e.Flags&trace.FlagCertain == 0 {
						t.Errorf("a wait of %v ended by thread %d, flags %#x: want it certain", e.Time-e.Start, e.Releaser, e.Flags)
					}
					if e.Release < e.Start || e.Release > e.Time {
						t.Errorf("a wait from %d to %d ended by a drop at %d", e.Start, e.Time, e.Release)
					}
					if e.Releaser == main {
						waits++
					}
				case e.Kind == trace.KindRelease && strings.HasPrefix(hook.Name, "GIL dropped"):
					if e.Thread == main && e.Release != 0 && e.Time-e.Release > long && runs(e, "keeps_gil") {
						drops++
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if waits == 0 || drops == 0 {
				t.Errorf("%d long waits for the GIL, %d drops by who kept it: want some of each", waits, drops)
			}
		})
	}
}
