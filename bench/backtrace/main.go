// Command backtrace measures a synchronous backtrace at depths 10, 30 and 100 of code without frame pointers: the agent's walk by
// what it knows, and its whole sample into the ring, against glibc's backtrace() and libunwind, interleaved in one process; what
// perf record --call-graph dwarf takes per sample; and the size of unwind tables. Run it from the repository:
//
//	go run ./bench/backtrace [-rounds 5] [-o FILE]
//
// With -against FOLDER, another check-out of the repository, processes with that one's agent and with this one's take turns.
package main

import (
	"bufio"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/hbtrace/hbtrace/collector/assemble"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/unwind"
)

func main() {
	rounds := flag.Int("rounds", 5, "processes per depth")
	out := flag.String("o", "", "file for the raw results")
	against := flag.String("against", "", "another check-out, whose agent is measured in turns with this one's")
	only := flag.Bool("walks", false, "walks only: not perf, not the size of tables")
	flag.Parse()
	if err := run(*rounds, *out, *against, *only); err != nil {
		fmt.Fprintf(os.Stderr, "backtrace: %v\n", err)
		os.Exit(1)
	}
}

// The flags that agent/build gives the agent, which is what is measured.
var agentFlags = []string{"-std=gnu11", "-O2", "-shared", "-nostdlib", "-ffreestanding", "-fPIC", "-fvisibility=hidden",
	"-ftls-model=initial-exec", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fomit-frame-pointer", "-fno-tree-loop-distribute-patterns",
	"-fno-reorder-blocks-and-partition", "-fno-strict-aliasing", "-fasynchronous-unwind-tables", "-fno-exceptions", "-Wl,-z,now"}

var depths = []int{10, 30, 100}

type key struct {
	depth int
	way   string
}

// results are ns per backtrace, a value per process.
type results struct {
	least, middle map[key][]float64
	frames        map[key]int
	ways          []string
}

func run(rounds int, out, against string, only bool) error {
	if _, err := os.Stat("bench/backtrace/backtrace.c"); err != nil {
		return errors.New("no bench/backtrace/backtrace.c here: run this from the repository's top")
	}
	tmp, err := os.MkdirTemp("", "hbtrace-backtrace-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	exe, err := build(tmp, "this", ".")
	if err != nil {
		return err
	}
	exes, names := []string{exe}, []string{""}
	if against != "" {
		if exe, err = build(tmp, "other", against); err != nil {
			return err
		}
		exes, names = append(exes, exe), append(names, "the other: ")
	}
	all := make([]results, len(exes))
	for i := range all {
		all[i] = results{map[key][]float64{}, map[key][]float64{}, map[key]int{}, nil}
	}
	var raw strings.Builder
	fmt.Fprintln(&raw, "round,depth,way,frames,min_ns,median_ns")
	for round := range rounds {
		for _, depth := range depths {
			for i, exe := range exes {
				text, err := measure(exe, depth, filepath.Join(tmp, "region"))
				if err == nil {
					err = all[i].add(text, round, depth, names[i], &raw)
				}
				if err != nil {
					return fmt.Errorf("depth %d: %w", depth, err)
				}
			}
		}
	}
	for i, r := range all {
		r.print(names[i], rounds)
	}
	if out != "" {
		if err := os.WriteFile(out, []byte(raw.String()), 0o644); err != nil {
			return err
		}
	}
	if only {
		return nil
	}
	if err := perf(exe, tmp); err != nil {
		fmt.Printf("\nperf record --call-graph dwarf: not measured: %v\n", err)
	}
	return tableSizes()
}

// build makes the program with the agent's side of the check-out at root.
func build(tmp, name, root string) (string, error) {
	file := func(f string) string { return filepath.Join(tmp, name+f) }
	if err := gcc(append(slices.Clone(agentFlags), "-I"+root, "-o", file(".so"), "bench/backtrace/agentside.c")...); err != nil {
		return "", err
	}
	for tower, flags := range map[string][]string{"fp": {"-fno-omit-frame-pointer"}, "nofp": {"-fomit-frame-pointer"}} {
		args := append(flags, "-O2", "-fno-optimize-sibling-calls", "-c", "-o", file(tower+".o"), "unwind/testdata/chain_"+tower+".c")
		if err := gcc(args...); err != nil {
			return "", err
		}
	}
	base := []string{"-O2", "-g", "-pthread", "-o", file(""), "bench/backtrace/backtrace.c", file("fp.o"), file("nofp.o"), file(".so")}
	if err := gcc(append(slices.Clone(base), "-DHAVE_LIBUNWIND", "-lunwind")...); err != nil {
		fmt.Println("without libunwind: it needs Debian's libunwind-dev")
		if err := gcc(base...); err != nil {
			return "", err
		}
	}
	return file(""), nil
}

// What of the program's own is to be taken off a way's time.
var around = map[string]string{"agent, -g fp: walk": "nothing, fp", "agent, -g fp: sample into ring": "nothing, fp", "agent: walk, rules unknown": "forget"}

// add reads what a process printed, and takes off what is around the backtraces.
func (r *results) add(text string, round, depth int, name string, raw *strings.Builder) error {
	least, middle := map[string]float64{}, map[string]float64{}
	var ways []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Split(line, "|")
		if len(f) != 4 {
			return fmt.Errorf("%q", line)
		}
		n, err1 := strconv.Atoi(f[1])
		lo, err2 := strconv.ParseFloat(f[2], 64)
		mid, err3 := strconv.ParseFloat(f[3], 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if mid == 0 { // without libunwind
			continue
		}
		least[f[0]], middle[f[0]] = lo, mid
		r.frames[key{depth, f[0]}] = n
		ways = append(ways, f[0])
		fmt.Fprintf(raw, "%d,%d,%s%s,%d,%.2f,%.2f\n", round, depth, name, f[0], n, lo, mid)
	}
	r.ways = nil
	for _, w := range ways {
		base, k := around[w], key{depth, w}
		if w == "nothing" || slices.Contains(slices.Collect(maps.Values(around)), w) {
			continue
		}
		if base == "" {
			base = "nothing"
		}
		r.least[k], r.middle[k] = append(r.least[k], least[w]-least[base]), append(r.middle[k], middle[w]-middle[base])
		r.ways = append(r.ways, w)
	}
	return nil
}

func (r *results) print(name string, rounds int) {
	fmt.Printf("%sns per backtrace, warm: least / median (frames found); %d processes per depth\n%-34s", name, rounds, "")
	for _, d := range depths {
		fmt.Printf(" %24s", fmt.Sprintf("depth %d", d))
	}
	fmt.Println()
	for _, w := range r.ways {
		fmt.Printf("%-34s", w)
		for _, d := range depths {
			k := key{d, w}
			fmt.Printf(" %24s", fmt.Sprintf("%.1f / %.1f (%d)", slices.Min(r.least[k]), median(r.middle[k]), r.frames[k]))
		}
		fmt.Println()
	}
	walk := func(way string, d int) float64 { return slices.Min(r.least[key{d, way}]) }
	for _, w := range r.ways {
		if strings.Contains(w, "walk") || strings.Contains(w, "unw_backtrace") {
			fmt.Printf("%-34s %8.2f ns a frame, from depth 30 to 100\n", w, (walk(w, 100)-walk(w, 30))/70)
		}
	}
}

// measure runs the program once, with the unwind tables of its own modules in a file, as the collector makes them.
func measure(exe string, depth int, file string) (string, error) {
	cmd := exec.Command(exe, strconv.Itoa(depth), file)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return "", err
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		return "", errors.Join(err, cmd.Wait())
	}
	err := tables(cmd.Process.Pid, file)
	fmt.Fprintln(in)
	in.Close()
	text, err2 := io.ReadAll(lines)
	return string(text), errors.Join(err, err2, cmd.Wait())
}

func tables(pid int, file string) error {
	entries, err := assemble.ReadMaps(pid)
	if err != nil {
		return err
	}
	mem := make([]uint64, 4<<20/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), len(mem)*8)
	region, err := unwind.NewRegion(b, 1, elf.EM_X86_64)
	if err != nil {
		return err
	}
	var list []unwind.Module
	for _, e := range entries {
		if !strings.HasPrefix(e.Path, "/") {
			continue
		}
		f, err := os.Open(e.Path)
		if err != nil {
			return err
		}
		loads, err1 := symbols.ReadLoads(f)
		table, err2 := unwind.Compile(f)
		f.Close()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		at, err := region.AddTable(e.Path, table)
		if err != nil {
			return err
		}
		if bias, ok := loads.Bias(e.Lo, e.Offset); ok {
			list = append(list, unwind.Module{Lo: e.Lo, Hi: e.Hi, Bias: bias, Table: at})
		}
	}
	if _, err := region.Publish(0, 1, list, nil); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func gcc(args ...string) error {
	if msg, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, msg)
	}
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
