package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// firstScreen is how many lines of the summary a terminal shows at once.
const firstScreen = 24

// TestSummaryLeadsToTheCause: of a program with one planted problem the first screen of the summary names it, where it is in the code,
// and the table to read next.
func TestSummaryLeadsToTheCause(t *testing.T) {
	disk := testprog.BuildFile(t, "testdata/planted/slowdisk.c", "-shared", "-fPIC")
	for _, tt := range []struct {
		name   string
		flags  []string // of the compiler
		want   []string // expressions, each of which matches in the first screen
		wanted string   // the last line of the summary begins with this command
	}{
		{
			"fsynclock", []string{disk, "-Wl,-rpath," + filepath.Dir(disk)},
			[]string{
				`reader-.* in read_entry for mutex journal_lock.* ◂ saver in save_journal: fsync in write_out`,
				`write_out \(fsynclock\.c:\d+\)`,
			},
			"hbtrace report --locks ",
		},
		{
			"slowworker", nil,
			[]string{`slowworker in run_batch for condvar.* ◂ pool-2: poll in resolve_host \(slowworker\.c:\d+\)`},
			"hbtrace report --blocked --stacks ",
		},
		{
			"allocstorm", nil,
			[]string{`allocating and freeing memory took (\d\d|100)[.0-9]* % of the CPU time, [.0-9]+ % in (build|drop)_index \(allocstorm\.c:\d+\)`},
			"hbtrace report --alloc --stacks ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exe := testprog.BuildFile(t, "testdata/planted/"+tt.name+".c", append([]string{"-O2", "-g", "-fno-omit-frame-pointer"}, tt.flags...)...)
			s := start(t, testprog.Command{Args: []string{exe}})
			if res := s.finish(t); res.Status() != 0 {
				t.Fatalf("%s: %v", tt.name, res)
			}
			out, err := exec.Command(testprog.Hbtrace(t), "report", s.prefix+".hbt").Output()
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			first := strings.Join(lines[:min(firstScreen, len(lines))], "\n")
			for _, want := range tt.want {
				// Lines may be broken anywhere.
				if !regexp.MustCompile(strings.ReplaceAll(want, " ", `\s+`)).MatchString(first) {
					t.Errorf("%s does not match the first screen of\n%s", want, out)
				}
			}
			if next := "next      " + tt.wanted; !strings.HasPrefix(lines[len(lines)-1], next) {
				t.Errorf("the last line is not %q in\n%s", next, out)
			}
		})
	}
}
