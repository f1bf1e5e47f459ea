package main

// This file owns CPU time by function: the pprof profile that hbtrace wrote, and the samples that perf took of the same
// process, against the thread CPU clock.

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// split is CPU time: of functions with all that they call, and of the whole process.
type split struct {
	in      map[string]float64 // ns
	all     float64
	samples int
	periods float64 // that the CPU time has: as many samples as a thread is to have
}

func newSplit() *split { return &split{in: map[string]float64{}} }

func (s *split) share(f string) float64 {
	if s.all == 0 {
		return 0
	}
	return 100 * s.in[f] / s.all
}

func (s *split) add(o *split) {
	for f, ns := range o.in {
		s.in[f] += ns
	}
	s.all += o.all
	s.samples += o.samples
	s.periods += o.periods
}

// book adds a sample of w ns that has the functions of a stack.
func (s *split) book(w float64, stack []string) {
	s.all += w
	s.samples++
	slices.Sort(stack)
	for _, f := range slices.Compact(stack) {
		s.in[f] += w
	}
}

// perfModes are the options by which perf takes stacks; nil: it does not run. Without stacks it knows what is interrupted, not who called that, so
// that a function of the table has only what it burns in its own instructions.
var perfModes = map[string][]string{"fp": {"--call-graph", "fp"}, "dwarf": {"--call-graph", "dwarf"}, "plain": {}, "none": nil}

var cpuScenarios = []struct{ name, what string }{
	{"long", "one thread; arithmetic, malloc, mutexes, system calls, qsort, tiny functions in turns of some 6 ms"},
	{"mix", "the same in turns of some 0.15 ms, with a system call (the program's clock) between them"},
	{"threads", "the same turns on 4 threads per CPU"},
	{"brief", "threads that live for 2 ms of CPU time, 3 of 4 in one function"},
	{"step1ms", "two functions in turn, in step with a clock of 1 ms"},
	{"step2ms", "the same, of 2 ms"},
}

func (b *bench) cpuTime() error {
	built := "without"
	if b.fp {
		built = "with"
	}
	fmt.Printf("CPU time by function: %d rounds of %v, %d samples a second, hbtrace and perf record (-perf %s) in the same run; programs built %s frame pointers\n\n", b.rounds, b.cpu, b.freq, b.perf, built)
	fmt.Printf("Sets are of rounds that have %d samples together.\n\n", b.samples)
	fmt.Printf("| scenario | samples hbtrace / perf | sets | largest error of a function in a set, pp, mean of the sets: hbtrace / perf | as large in %d independent samples, pp | mean error that chance explains least ± its standard error, pp | spread of a round's errors, pp: hbtrace / independent samples | CPU time accounted for, %%: hbtrace / perf |\n", b.samples)
	fmt.Println("|---|---|---|---|---|---|---|---|")
	raw, err := os.Create(b.file("cpu.txt"))
	if err != nil {
		return err
	}
	defer raw.Close()
	for _, sc := range cpuScenarios {
		if b.only != "" && sc.name != b.only {
			continue
		}
		truth, ours, perfs := newSplit(), newSplit(), newSplit()
		var each rounds
		oursSets, perfSets := sets{of: b.samples}, sets{of: b.samples}
		how := byMechanism{}
		for round := range b.rounds {
			t, o, p, err := b.cpuRound(sc.name, round)
			if err != nil {
				return fmt.Errorf("%s: %w", sc.name, err)
			}
			for f := range t.in {
				fmt.Fprintf(raw, "%s %d %s truth %.2f hbtrace %.2f perf %.2f\n", sc.name, round, f, t.share(f), o.share(f), p.share(f))
			}
			fmt.Fprintf(raw, "%s %d total truth %.1f ms hbtrace %.1f perf %.1f samples %d %d\n", sc.name, round, t.all/1e6, o.all/1e6, p.all/1e6, o.samples, p.samples)
			truth.add(t)
			ours.add(o)
			perfs.add(p)
			each.add(t, o)
			oursSets.add(t, o)
			perfSets.add(t, p)
			if b.how {
				if err := how.add(b.file("cpu-%s-%d.hbt", sc.name, round)); err != nil {
					return err
				}
			}
		}
		bias, at, sure := each.bias()
		spread, chance := each.spread(truth)
		fmt.Printf("| %s: %s | %d / %d | %d | %.2f / %.2f | %.2f | %+.2f ± %.2f (%s) | %.2f / %.2f | %.1f / %.1f |\n", sc.name, sc.what, ours.samples, perfs.samples,
			oursSets.number(), oursSets.worst(), perfSets.worst(), expectedWorst(truth, float64(b.samples)), bias, sure, at, spread, chance, 100*ours.all/truth.all, 100*perfs.all/truth.all)
		if b.each {
			each.print(truth)
		}
		if b.how {
			how.print(truth)
		}
	}
	fmt.Println()
	return nil
}

// rounds are the errors of each function's share, round by round, in percentage points: what they have in common is the
// method's, the rest is chance.
type rounds struct {
	of map[string][]float64
}

func (r *rounds) add(truth, got *split) {
	if r.of == nil {
		r.of = map[string][]float64{}
	}
	for f := range truth.in {
		r.of[f] = append(r.of[f], got.share(f)-truth.share(f))
	}
}

// meanAndDeviation are of a sample; the deviation of one value is not known, NaN.
func meanAndDeviation(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(v)-1))
}

// meanError is of one function over the rounds, in percentage points.
type meanError struct {
	function string
	pp, sure float64 // and its standard error
}

// sigmas is how many standard errors it is away from none. Of rounds fewer than some 30 it is larger by chance than a normal variable is (Student).
func (m meanError) sigmas() float64 { return math.Abs(m.pp) / m.sure }

// means are those of all functions, by name.
func (r *rounds) means() (all []meanError) {
	for f, v := range r.of {
		mean, dev := meanAndDeviation(v)
		all = append(all, meanError{f, mean, dev / math.Sqrt(float64(len(v)))})
	}
	slices.SortFunc(all, func(x, y meanError) int { return strings.Compare(x.function, y.function) })
	return all
}

// bias is the mean error that is the most standard errors away from none.
func (r *rounds) bias() (pp float64, at string, standardError float64) {
	var most meanError
	for _, m := range r.means() {
		if most.function == "" || m.sigmas() > most.sigmas() {
			most = m
		}
	}
	return most.pp, most.function, most.sure
}

// print is a table of every function's mean error.
func (r *rounds) print(truth *split) {
	fmt.Println("\n| function | true share, % | mean error ± its standard error, pp |\n|---|---|---|")
	for _, m := range r.means() {
		fmt.Printf("| %s | %.1f | %+.2f ± %.2f |\n", m.function, truth.share(m.function), m.pp, m.sure)
	}
	fmt.Println()
}

// sets are rounds that have a number of samples together: what the largest error of a function is asked of.
type sets struct {
	of         int // samples
	truth, got *split
	errors     []float64 // pp, of each set that is complete
}

func (s *sets) add(truth, got *split) {
	if s.truth == nil {
		s.truth, s.got = newSplit(), newSplit()
	}
	s.truth.add(truth)
	s.got.add(got)
	if s.truth.periods >= 0.99*float64(s.of) { // 10 s at 999 a second are 10,000
		pp, _ := worst(s.truth, s.got)
		s.errors = append(s.errors, pp)
		s.truth, s.got = nil, nil
	}
}

func (s *sets) number() int { return len(s.errors) }

// worst is the mean of the sets' largest errors; NaN where no set is complete.
func (s *sets) worst() float64 {
	mean, _ := meanAndDeviation(s.errors)
	if len(s.errors) == 0 {
		return math.NaN()
	}
	return mean
}

// spread is the standard deviation of a round's errors about their mean, over all functions, and what it would be if a round were
// one independent sample a period of CPU time.
func (r *rounds) spread(truth *split) (got, independent float64) {
	for f, v := range r.of {
		_, dev := meanAndDeviation(v)
		p := truth.share(f) / 100
		got += dev * dev / float64(len(r.of))
		independent += p * (1 - p) / (truth.periods / float64(len(v))) / float64(len(r.of))
	}
	return math.Sqrt(got), 100 * math.Sqrt(independent)
}

// expectedWorst is how large the largest error of a function is on average in a number of independent
// samples: what no method that draws its samples at random does better than, except by spacing them out.
func expectedWorst(truth *split, samples float64) float64 {
	const draws = 1000
	var functions []string
	for f := range truth.in {
		functions = append(functions, f)
	}
	slices.Sort(functions)
	random, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	for range draws {
		// Shares of a multinomial, by its normal limit: independent counts, less their common part.
		left := 1.0
		var noise []float64
		var all float64
		for _, f := range functions {
			p := truth.share(f) / 100
			left -= p
			noise = append(noise, math.Sqrt(p/samples)*random.NormFloat64())
			all += noise[len(noise)-1]
		}
		all += math.Sqrt(max(left, 0)/samples) * random.NormFloat64()
		worst := 0.0
		for i, f := range functions {
			worst = max(worst, math.Abs(noise[i]-all*truth.share(f)/100))
		}
		sum += worst
	}
	return 100 * sum / draws
}

// worst returns the largest difference of a function's share, in percentage points.
func worst(truth, got *split) (pp float64, at string) {
	for f := range truth.in {
		if d := got.share(f) - truth.share(f); d > pp || -d > pp {
			pp, at = max(d, -d), f
		}
	}
	return pp, at
}

func (b *bench) cpuRound(scenario string, round int) (truth, ours, perfs *split, err error) {
	base := b.file("cpu-%s-%d", scenario, round)
	prog := b.program("cpu")
	cmd := []string{b.hbtrace, "run", "-q", "-F", strconv.Itoa(b.freq), "-o", base, "--", prog, scenario, fmt.Sprint(b.cpu.Milliseconds()), base + ".truth"}
	if mode := perfModes[b.perf]; mode != nil {
		cmd = slices.Concat([]string{"perf", "record", "-F", strconv.Itoa(b.freq)}, mode, []string{"-o", base + ".perf", "--"}, cmd)
	}
	if b.again {
		cmd = []string{b.hbtrace, "export", "--pprof", base + ".pb.gz", base + ".hbt"}
	}
	if err := quiet(cmd[0], cmd[1:]...); err != nil {
		return nil, nil, nil, err
	}
	truth = newSplit()
	if err := readFacts(base+".truth", func(w []string, n []int64) error {
		if w[0] == "total" {
			truth.all = float64(n[0])
		} else {
			truth.in[w[1]] = float64(n[0])
		}
		return nil
	}); err != nil {
		return nil, nil, nil, err
	}
	truth.periods = truth.all * float64(b.freq) / 1e9
	if ours, err = pprofSplit(base+".pb.gz", "cpu"); err != nil {
		return nil, nil, nil, err
	}
	if ours.samples, err = sampled(base + ".hbt"); err != nil {
		return nil, nil, nil, err
	}
	if b.perf == "none" || b.again {
		return truth, ours, newSplit(), nil
	}
	if perfs, err = perfSplit(base+".perf", filepath.Base(prog)); err != nil {
		return nil, nil, nil, err
	}
	os.Remove(base + ".perf") // large, and summed up
	return truth, ours, perfs, nil
}

// openProfile reads a profile, and says at which place of its samples the values of a type are.
func openProfile(path, valueType string) (p *profile.Profile, at int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	if p, err = profile.Parse(f); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	if at = slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == valueType }); at < 0 {
		return nil, 0, fmt.Errorf("%s has no values of type %s", path, valueType)
	}
	return p, at, nil
}

// pprofSplit sums up one type of value of a profile, as any reader of it would.
func pprofSplit(path, valueType string) (*split, error) {
	p, at, err := openProfile(path, valueType)
	if err != nil {
		return nil, err
	}
	s := newSplit()
	for _, x := range p.Sample {
		if x.Value[at] == 0 {
			continue
		}
		var stack []string
		for _, l := range x.Location {
			for _, ln := range l.Line {
				stack = append(stack, ln.Function.Name)
			}
		}
		s.book(float64(x.Value[at]), stack)
	}
	return s, nil
}

// sampled counts the periodic samples of a recording: a profile adds up those of equal stacks.
func sampled(path string) (n int, err error) {
	r, err := tracefile.Open(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	err = trace.Events(r, func(e *trace.Event) error {
		if e.Kind == trace.KindCPU {
			n += int(e.Count)
		}
		return nil
	})
	return n, err
}

// perfSplit sums up what perf sampled of processes with a name.
func perfSplit(path, comm string) (*split, error) {
	cmd := exec.Command("perf", "script", "-i", path, "-F", "comm,period,ip,sym")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("perf script: %w", err)
	}
	s := newSplit()
	var stack []string
	var period float64
	ours := false
	flush := func() {
		if ours {
			s.book(period, stack)
		}
		stack, ours = nil, false
	}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] != '\t' && !ours && stack == nil: // "comm  period:"
			w := strings.Fields(line)
			if len(w) < 2 {
				return nil, fmt.Errorf("perf script: line %q: no period", line)
			}
			n, err := strconv.ParseFloat(strings.TrimSuffix(w[1], ":"), 64)
			if err != nil {
				return nil, fmt.Errorf("perf script: line %q: %w", line, err)
			}
			ours, period = w[0] == comm, n
			stack = []string{}
			if len(w) > 3 { // without stacks all is on one line: "comm period address function"
				stack = append(stack, w[3])
				flush()
			}
		default: // "address function"
			if _, fn, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				stack = append(stack, fn)
			}
		}
	}
	flush()
	return s, sc.Err()
}
