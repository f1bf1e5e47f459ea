// Command locks holds what hbtrace records of threads that wait for each other against what these threads know
// themselves (truth.c, truth.rs, truth.cc): is every wait there, is it as long, is whoever ended it the one. Run it from
// the repository:
//
//	go run ./bench/locks [-rounds 400] [-hbtrace FILE] [-flags "…"] [-o FILE]
//	go run ./bench/locks -rounds 5 tools
//	go run ./bench/locks -rounds 5 cost
//
// tools compares what a contended mutex costs under hbtrace and other tools, and what they show; cost is what the agent takes for
// each lock and unlock of one that is waited for.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// leastNs is the length from which a wait has to be in the recording.
const leastNs = 50_000

func main() {
	only := flag.String("only", "", "the only scenario to run")
	rounds := flag.Int("rounds", 400, "rounds of each scenario")
	bin := flag.String("hbtrace", "", "the hbtrace to check (default: built from this tree)")
	flags := flag.String("flags", "", "more flags for hbtrace run, separated by spaces")
	out := flag.String("o", "", "file for the table (default: standard output alone)")
	flag.Parse()
	if err := run(*rounds, *only, *bin, strings.Fields(*flags), *out); err != nil {
		fmt.Fprintf(os.Stderr, "locks: %v\n", err)
		os.Exit(1)
	}
}

// reads are the calls that wait for what another thread writes.
var reads = []string{"read", "epoll_wait"}

// program is one source and its scenarios.
type program struct {
	source    string
	compile   []string // the output's name follows
	scenarios []string
}

var programs = []program{
	{"truth.c", []string{"gcc", "-O1", "-g", "-pthread", "-x", "c", "bench/locks/src/truth.c", "-o"},
		[]string{"mutex", "rwlock", "condvar-inside", "condvar-outside", "semaphore", "barrier", "chain",
			"pipe", "eventfd", "socketpair", "tcp", "pipe-later", "epoll-pipe", "epoll-eventfd"}},
	{"truth.rs", []string{"rustc", "--edition=2021", "-O", "-g", "bench/locks/src/truth.rs", "-o"}, []string{"mutex", "condvar", "park", "mpsc"}},
	{"truth.cc", []string{"g++", "-std=c++20", "-O1", "-g", "-pthread", "bench/locks/src/truth.cc", "-o"}, []string{"atomic-wait"}},
}

func run(rounds int, only, bin string, flags []string, out string) error {
	if _, err := os.Stat("bench/locks/src/truth.c"); err != nil {
		return errors.New("no bench/locks/src/truth.c here: run this from the repository's top")
	}
	tmp, err := os.MkdirTemp("", "hbtrace-locks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if bin == "" {
		bin = filepath.Join(tmp, "hbtrace")
		if err := command("go", "build", "-o", bin, "./cmd/hbtrace"); err != nil {
			return err
		}
	}
	if how := flag.Arg(0); how == "tools" || how == "cost" {
		table, err := compareTools(bin, tmp, rounds, how == "tools")
		if err != nil {
			return err
		}
		fmt.Print(table)
		if out != "" {
			return os.WriteFile(out, []byte(table), 0o644)
		}
		return nil
	}
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "program\tscenario\twaits\tpresent\terror p50 µs\tp99 µs\treleaser known\tright\tcertain\tright\tlikely\tclaimed\tright\ttaken at known\tright\t\n")
	for _, p := range programs {
		if _, err := exec.LookPath(p.compile[0]); err != nil {
			fmt.Fprintf(os.Stderr, "locks: without %s: %s is left out\n", p.compile[0], p.source)
			continue
		}
		exe := filepath.Join(tmp, strings.ReplaceAll(p.source, ".", "-"))
		if err := command(p.compile[0], append(slices.Clone(p.compile[1:]), exe)...); err != nil {
			return err
		}
		for _, s := range p.scenarios {
			if only != "" && only != s {
				continue
			}
			n := rounds
			if s == "chain" {
				n = max(rounds/10, 3)
			}
			truth, prefix := filepath.Join(tmp, "truth"), filepath.Join(tmp, "rec")
			args := append(append([]string{"run", "-q", "-o", prefix}, flags...), "--", exe, s, fmt.Sprint(n), truth)
			if err := command(bin, args...); err != nil {
				return err
			}
			r, err := compare(truth, prefix+".hbt")
			if err != nil {
				return fmt.Errorf("%s %s: %w", p.source, s, err)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", p.source, s, r)
		}
	}
	t.Flush()
	if exe := filepath.Join(tmp, "truth-c"); only == "" || slices.Contains(poolScenarios, only) {
		text.WriteByte('\n')
		if err := pools(&text, bin, exe, tmp, only, 5*rounds); err != nil {
			return err
		}
	}
	fmt.Print(text.String())
	if out != "" {
		return os.WriteFile(out, []byte(text.String()), 0o644)
	}
	return nil
}

func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{name}, args...), " "), err, b)
	}
	return nil
}

// result counts what of the truth was found.
type result struct {
	waits, present         int
	errors                 []int64 // ns by which durations differ
	asked, known, right    int     // waits whose releaser the program knows
	certain, certainRight  int
	likelyNamed, likelyYes int
	claimed                float64 // what the likely ones say, summed up
	holds, taken, takenYes int     // waits for a lock whose releaser had taken it at a known place
}

func (r *result) String() string {
	slices.Sort(r.errors)
	at := func(percent int) string {
		if len(r.errors) == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", float64(r.errors[(len(r.errors)-1)*percent/100])/1e3)
	}
	share := func(part, whole int) string {
		if whole == 0 {
			return "–"
		}
		return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(whole))
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t", r.waits, share(r.present, r.waits), at(50), at(99),
		share(r.known, r.asked), share(r.right, r.known), r.certain, share(r.certainRight, r.certain), r.likelyNamed, share(int(r.claimed), r.likelyNamed), share(r.likelyYes, r.likelyNamed), share(r.taken, r.holds), share(r.takenYes, r.taken))
}

// compare holds a recording against the file that the program wrote.
func compare(truth, recording string) (*result, error) {
	src, err := tracefile.Open(recording)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	tids := map[trace.ThreadID]int{}
	for _, t := range src.Threads() {
		tids[t.ID] = t.TID
	}
	waits := map[int][]trace.Event{}
	type ended struct {
		thread trace.ThreadID
		at     trace.Ns
	}
	holds := map[ended]trace.StackID{} // where a lock had been taken, by who let go when
	if err := trace.Events(src, func(e *trace.Event) error {
		if e.Kind == trace.KindHold {
			holds[ended{e.Thread, e.Time}] = e.Stack
		}
		if e.Kind == trace.KindWait || e.Kind == trace.KindCall && slices.Contains(reads, src.Meta().Hooks[e.Hook].Name) {
			waits[tids[e.Thread]] = append(waits[tids[e.Thread]], *e)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(truth)
	if err != nil {
		return nil, err
	}
	var r result
	for line := range strings.Lines(string(text)) {
		var scenario string
		taken := "-"
		var tid, releaser int
		var start, end, object uint64
		if _, err := fmt.Sscan(line, &scenario, &tid, &start, &end, &object, &releaser); err != nil {
			return nil, fmt.Errorf("truth %q: %w", line, err)
		}
		if f := strings.Fields(line); len(f) > 6 {
			taken = f[6]
		}
		if end-start < leastNs {
			continue
		}
		// What the program calls one wait may be several calls that wait (a futex that was woken for nothing): they count
		// together, and the last says who ended it.
		var last *trace.Event
		var ns, slack int64 = 0, 100_000
		for i := range waits[tid] {
			e := &waits[tid][i]
			if int64(e.Start) >= int64(start)-slack && int64(e.Time) <= int64(end)+slack && (object == 0 || e.Object == object) &&
				int64(e.Time) > int64(start) && int64(e.Start) < int64(end) {
				last = e
				ns += int64(e.Time - e.Start)
			}
		}
		if last == nil {
			r.waits++
			continue
		}
		r.waits++
		r.present++
		d := int64(end-start) - ns
		r.errors = append(r.errors, max(d, -d))
		if releaser == 0 {
			continue
		}
		r.asked++
		if last.Releaser == 0 {
			continue
		}
		r.known++
		right := tids[last.Releaser] == releaser
		certain := last.Flags&trace.FlagCertain != 0
		count(right, &r.right)
		if taken != "-" {
			r.holds++
			if at := holds[ended{last.Releaser, last.Release}]; at != 0 {
				r.taken++
				count(passes(src, at, taken), &r.takenYes)
			}
		}
		if certain {
			r.certain++
			count(right, &r.certainRight)
		} else {
			r.likelyNamed++
			if last.Weight > 1 {
				r.claimed += float64(last.Size) / 1000
			} else {
				r.claimed++
			}
			count(right, &r.likelyYes)
		}
	}
	return &r, nil
}

// passes says whether a stack's two innermost functions include one.
func passes(src trace.Source, at trace.StackID, function string) bool {
	for range 2 {
		for _, f := range src.Symbols(at) {
			if f.Func == function {
				return true
			}
		}
		at = src.Node(at).Parent
	}
	return false
}

func count(is bool, n *int) {
	if is {
		*n++
	}
}
