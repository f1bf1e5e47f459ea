package main

// This file owns the comparison with callgrind: sqlite, built from its source, at queries in memory. Callgrind counts every instruction of every
// function, and estimates cycles by a model of caches and branches; hbtrace and perf sample the time of one and the same run. Instructions
// are not time, which is why perf is there: of what both of them say otherwise than callgrind the machine is the reason.

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sqliteModule is the Go module that has sqlite's one-file source in it.
const sqliteModule = "github.com/mattn/go-sqlite3@v1.14.24"

// callgrindRow is the least share, in percent, of a function that is shown.
const callgrindRow = 2

// usage is where a program's cost went, in any unit: functions themselves, and with all that they call. Functions of other objects than the program's
// are one, called by the object's name; clones are the function that they are of.
type usage struct {
	self, with map[string]float64
	all        float64
	samples    int
}

func newUsage() *usage { return &usage{self: map[string]float64{}, with: map[string]float64{}} }

func (u *usage) add(o *usage) {
	for f, v := range o.self {
		u.self[f] += v
	}
	for f, v := range o.with {
		u.with[f] += v
	}
	u.all += o.all
	u.samples += o.samples
}

// book adds a sample of w that has the functions of a stack, innermost first.
func (u *usage) book(w float64, stack []string) {
	u.all += w
	u.samples++
	if len(stack) == 0 {
		return
	}
	u.self[stack[0]] += w
	slices.Sort(stack)
	for _, f := range slices.Compact(stack) {
		u.with[f] += w
	}
}

// functionOf is what a function of an object is called in a usage.
func functionOf(program, object, function string) string {
	if base := filepath.Base(object); base != filepath.Base(program) {
		return "[" + strings.Trim(base, "[]") + "]"
	}
	return unclone(function)
}

// unclone takes off what gcc adds to the names of a function's parts and specialised copies.
func unclone(function string) string {
	for _, suffix := range []string{".part.", ".isra.", ".constprop.", ".cold", ".lto_priv."} {
		function, _, _ = strings.Cut(function, suffix)
	}
	return function
}

func (b *bench) callgrind() error {
	prog, err := b.buildSQLite()
	if err != nil {
		return err
	}
	counts := b.file("callgrind.out")
	if err := quiet("valgrind", "--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes", "--callgrind-out-file="+counts, prog, "0"); err != nil {
		return err
	}
	f, err := os.Open(counts)
	if err != nil {
		return err
	}
	defer f.Close()
	instructions, cycles, err := readCallgrind(f, prog)
	if err != nil {
		return fmt.Errorf("%s: %w", counts, err)
	}
	ours, perfs := newUsage(), newUsage()
	for round := range b.rounds {
		base := b.file("callgrind-%d", round)
		cmd := []string{b.hbtrace, "run", "-q", "-F", strconv.Itoa(b.freq), "-o", base, "--", prog, strconv.FormatInt(b.cpu.Milliseconds(), 10)}
		if mode := perfModes[b.perf]; mode != nil {
			cmd = slices.Concat([]string{"perf", "record", "-F", strconv.Itoa(b.freq)}, mode, []string{"-o", base + ".perf", "--"}, cmd)
		}
		if err := quiet(cmd[0], cmd[1:]...); err != nil {
			return err
		}
		o, err := pprofUsage(base+".pb.gz", prog)
		if err != nil {
			return err
		}
		if o.samples, err = sampled(base + ".hbt"); err != nil {
			return err
		}
		ours.add(o)
		if b.perf == "none" {
			continue
		}
		p, err := perfUsage(base+".perf", prog)
		if err != nil {
			return err
		}
		os.Remove(base + ".perf") // large, and summed up
		perfs.add(p)
	}
	fmt.Printf("sqlite's queries in memory: %.0f million instructions counted by callgrind; %d rounds of %v, hbtrace (%d samples) and perf record (-perf %s, %d samples) in the same run\n\n",
		instructions.all/1e6, b.rounds, b.cpu, ours.samples, b.perf, perfs.samples)
	printUsages(instructions, cycles, ours, perfs)
	return nil
}

// buildSQLite compiles the library, which takes a minute, and the program; what is in -o's directory already stays.
func (b *bench) buildSQLite() (prog string, err error) {
	frames := "-fomit-frame-pointer"
	if b.fp {
		frames = "-fno-omit-frame-pointer"
	}
	prog = b.program("sqlite")
	if b.fp {
		prog = b.program("sqlite-fp")
	}
	if _, err := os.Stat(prog); err == nil {
		return prog, nil
	}
	dir, err := filepath.Abs(b.dir)
	if err != nil {
		return "", err
	}
	get := command("go", "mod", "download", "-json", sqliteModule)
	get.Dir = dir // outside of this module, whose requirements stay as they are
	said, err := get.Output()
	if err != nil {
		return "", fmt.Errorf("fetching sqlite's source: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(said, &module); err != nil || module.Dir == "" {
		return "", fmt.Errorf("fetching sqlite's source: go says %s (%v)", said, err)
	}
	part := prog + ".part"
	// A function that ends in a jump to another is not on the stack while that runs, and callgrind takes the jump for a call: there are none here.
	if err := command("gcc", "-O2", "-g", frames, "-fno-optimize-sibling-calls", "-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION", "-I"+module.Dir, "-o", part,
		"bench/accuracy/programs/sqlite.c", filepath.Join(module.Dir, "sqlite3-binding.c"), "-lm").Run(); err != nil {
		return "", fmt.Errorf("compiling sqlite: %w", err)
	}
	return prog, os.Rename(part, prog)
}

// printUsages prints a table of the functions, and how far hbtrace and perf are from callgrind and from each other.
func printUsages(instructions, cycles, ours, perfs *usage) {
	all := []*usage{instructions, cycles, ours}
	if perfs.samples > 0 {
		all = append(all, perfs)
	}
	head, rule := "instructions, % | cycles by callgrind's model, % | hbtrace, % |", "|---|---|---|---|"
	if perfs.samples > 0 {
		head, rule = head+" perf, % | hbtrace less perf, pp ± its standard error |", rule+"---|---|"
	}
	part := func(what string, of func(*usage) map[string]float64) {
		fmt.Printf("| %s | %s\n%s\n", what, head, rule)
		share := func(u *usage, f string) float64 {
			if u.all == 0 {
				return 0
			}
			return 100 * of(u)[f] / u.all
		}
		var functions []string
		for f := range of(instructions) {
			most := slices.Max([]float64{share(instructions, f), share(ours, f), share(perfs, f)})
			if most >= callgrindRow && most < 98 { // main and its like are all of it
				functions = append(functions, f)
			}
		}
		slices.SortFunc(functions, func(x, y string) int { return cmp.Compare(share(instructions, y), share(instructions, x)) })
		sum := 0.0 // of squared differences, in standard errors
		for _, f := range functions {
			d, e := share(ours, f)-share(perfs, f), standardError(share(ours, f), ours.samples, share(perfs, f), perfs.samples)
			if e > 0 {
				sum += d * d / (e * e)
			}
			fmt.Printf("| %s |", f)
			for _, u := range all {
				fmt.Printf(" %.2f |", share(u, f))
			}
			if perfs.samples > 0 {
				fmt.Printf(" %+.2f ± %.2f |", d, e)
			}
			fmt.Println()
		}
		largest := func(a, b *usage) string {
			pp, at := 0.0, "none"
			for _, f := range functions {
				if d := share(a, f) - share(b, f); math.Abs(d) > math.Abs(pp) {
					pp, at = d, f
				}
			}
			return fmt.Sprintf("%+.2f pp (%s)", pp, at)
		}
		fmt.Printf("\nlargest difference from instructions: hbtrace %s; from the model's cycles: %s", largest(ours, instructions), largest(ours, cycles))
		if perfs.samples > 0 {
			fmt.Printf("; perf's: %s and %s; hbtrace from perf: %s.\nIn standard errors of two independent sets of samples hbtrace and perf differ by %.2f (root of the mean square of %d functions; 1: by chance alone)",
				largest(perfs, instructions), largest(perfs, cycles), largest(ours, perfs), math.Sqrt(sum/float64(max(len(functions), 1))), len(functions))
		}
		fmt.Print(".\n\n")
	}
	part("functions themselves", func(u *usage) map[string]float64 { return u.self })
	part("with all that they call, where none of it calls them again", func(u *usage) map[string]float64 { return u.with })
}

// standardError is of the difference between two shares in percent, each of so many independent samples, in percentage points.
func standardError(share1 float64, samples1 int, share2 float64, samples2 int) float64 {
	if samples1 == 0 || samples2 == 0 {
		return 0
	}
	return math.Sqrt(share1*(100-share1)/float64(samples1) + share2*(100-share2)/float64(samples2))
}

// pprofUsage sums up the CPU time of a profile. Inlined calls are their caller's: callgrind and perf's symbols know no others.
func pprofUsage(path, program string) (*usage, error) {
	p, at, err := openProfile(path, "cpu")
	if err != nil {
		return nil, err
	}
	u := newUsage()
	for _, x := range p.Sample {
		if x.Value[at] == 0 {
			continue
		}
		var stack []string
		for _, l := range x.Location {
			if l.Mapping == nil || len(l.Line) == 0 {
				stack = append(stack, "[unknown]")
				continue
			}
			stack = append(stack, functionOf(program, l.Mapping.File, l.Line[len(l.Line)-1].Function.Name))
		}
		u.book(float64(x.Value[at]), stack)
	}
	return u, nil
}

// perfUsage sums up what perf sampled of a program. What the kernel did is the function's that entered it.
func perfUsage(path, program string) (*usage, error) {
	out, err := exec.Command("perf", "script", "--no-inline", "-i", path, "-F", "comm,period,ip,sym,dso").Output()
	if err != nil {
		return nil, fmt.Errorf("perf script: %w", err)
	}
	u := newUsage()
	for sample := range bytes.SplitSeq(out, []byte("\n\n")) {
		lines := strings.Split(strings.Trim(string(sample), "\n"), "\n")
		head := strings.Fields(lines[0]) // "comm period:", without stacks with the frame behind it
		if len(head) < 2 || head[0] != filepath.Base(program) {
			continue
		}
		period, err := strconv.ParseFloat(strings.TrimSuffix(head[1], ":"), 64)
		if err != nil {
			return nil, fmt.Errorf("perf script: line %q: %w", lines[0], err)
		}
		var stack []string
		for _, line := range lines[1:] { // "address function (object)"
			w := strings.Fields(line)
			if len(w) < 3 {
				return nil, fmt.Errorf("perf script: line %q: no address, function and object", line)
			}
			object := strings.Trim(w[len(w)-1], "()")
			if object != "[kernel.kallsyms]" {
				stack = append(stack, functionOf(program, object, w[1]))
			}
		}
		u.book(period, stack)
	}
	return u, nil
}

// The model's costs in cycles of what is not in the caches, and of branches that go elsewhere than was guessed: those by which KCachegrind
// makes its "Cycle Estimation".
const (
	costL1Miss = 10
	costLLMiss = 100
	costBranch = 10
)

var eventCycles = map[string]float64{"Ir": 1, "I1mr": costL1Miss, "D1mr": costL1Miss, "D1mw": costL1Miss,
	"ILmr": costLLMiss, "DLmr": costLLMiss, "DLmw": costLLMiss, "Bcm": costBranch, "Bim": costBranch}

// readCallgrind sums up a file of callgrind's (Valgrind manual, "Callgrind Format Specification", version 1). Of functions that call each other
// in a circle no sum with callees is there: calls of one are counted again in those of the other.
func readCallgrind(f io.Reader, program string) (instructions, cycles *usage, err error) {
	type pair struct{ instructions, cycles float64 }
	type call struct{ from, to string }
	self, calls := map[string]pair{}, map[call]pair{}
	called := map[string]string{}               // what a function is in a usage, by what it is here
	object := map[string]string{"": "unknown"}  // by number
	names := map[string]string{"": "(unknown)"} // of functions, by number
	var events []string
	ob, cob, fn, cfn := "", "", "", ""
	inCall := false
	node := func(ob, fn string) string {
		n := functionOf(program, ob, fn)
		called[ob+":"+fn] = n
		if n[0] != '[' {
			return n
		}
		return ob + ":" + fn // callees and callers of a library's functions are told apart: what is called by libc does not call it
	}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for line := 1; sc.Scan(); line++ {
		text := sc.Text()
		key, value, isSpec := strings.Cut(text, "=")
		switch {
		case text == "" || text[0] == '#':
		case strings.HasPrefix(text, "events:"):
			events = strings.Fields(text)[1:]
		case strings.HasPrefix(text, "positions:"):
			if text != "positions: line" {
				return nil, nil, fmt.Errorf("%q: want those of lines alone", text)
			}
		case isSpec && key == "ob":
			ob = compressed(object, value)
		case isSpec && key == "cob":
			cob = compressed(object, value)
		case isSpec && key == "fn":
			fn, cob = compressed(names, value), ""
		case isSpec && key == "cfn":
			cfn = compressed(names, value)
		case isSpec && key == "calls":
			inCall = true
		case isSpec: // files
		case strings.ContainsRune("0123456789+-*", rune(text[0])):
			var cost pair
			for i, w := range strings.Fields(text)[1:] {
				n, err := strconv.ParseFloat(w, 64)
				if err != nil || i >= len(events) {
					return nil, nil, fmt.Errorf("line %d: %q: not costs of %v", line, text, events)
				}
				if events[i] == "Ir" {
					cost.instructions += n
				}
				cost.cycles += n * eventCycles[events[i]]
			}
			from := node(ob, fn)
			if !inCall {
				old := self[from]
				self[from] = pair{old.instructions + cost.instructions, old.cycles + cost.cycles}
				break
			}
			if cob == "" {
				cob = ob
			}
			at := call{from, node(cob, cfn)}
			old := calls[at]
			calls[at] = pair{old.instructions + cost.instructions, old.cycles + cost.cycles}
			inCall, cob = false, ""
		}
	}
	if err := sc.Err(); err != nil {
		return nil, nil, err
	}
	if len(self) == 0 {
		return nil, nil, fmt.Errorf("no costs in it")
	}
	instructions, cycles = newUsage(), newUsage()
	callees := map[string][]string{}
	for c := range calls {
		callees[c.from] = append(callees[c.from], c.to)
	}
	with := maps.Clone(self)
	for c, cost := range calls {
		if c.from != c.to {
			old := with[c.from]
			with[c.from] = pair{old.instructions + cost.instructions, old.cycles + cost.cycles}
		}
	}
	for n, cost := range self {
		row := n
		if r, ok := called[n]; ok {
			row = r
		}
		instructions.self[row] += cost.instructions
		cycles.self[row] += cost.cycles
		instructions.all += cost.instructions
		cycles.all += cost.cycles
	}
	for n, cost := range with {
		if _, library := called[n]; !library && !inCircle(callees, n) {
			instructions.with[n], cycles.with[n] = cost.instructions, cost.cycles
		}
	}
	return instructions, cycles, nil
}

// compressed returns what "(number) name" says, and remembers it for where "(number)" says the same.
func compressed(known map[string]string, value string) string {
	number, name, named := strings.Cut(value, " ")
	if !strings.HasPrefix(value, "(") {
		return value
	}
	if named {
		known[number] = name
	}
	return known[number]
}

// inCircle says whether a function is called by what it calls, itself apart.
func inCircle(callees map[string][]string, function string) bool {
	seen := map[string]bool{}
	open := slices.Clone(callees[function])
	for _, f := range open {
		seen[f] = true
	}
	for len(open) > 0 {
		f := open[len(open)-1]
		open = open[:len(open)-1]
		if f == function {
			continue
		}
		for _, g := range callees[f] {
			if g == function {
				return true
			}
			if !seen[g] {
				seen[g] = true
				open = append(open, g)
			}
		}
	}
	return false
}
