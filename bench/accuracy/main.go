// Accuracy compares what hbtrace says with what programs know of themselves: CPU time by function, waits, allocations. CPU
// time is recorded by perf in the very same run, so that both are held to one truth. Run it from the repository:
//
//	go run ./bench/accuracy [-rounds 5] [-cpu 4s] [-fp] [-perf dwarf] [-how] [-each] [-samples 10000] [-again] [-o DIR] [-stops 1000] [-only NAME] [cpu|callgrind|blocked|switches|alloc|stacks|durations …]
//
// Rounds of a scenario are summed up before they are compared: an error of the method stays, that of too few samples
// shrinks. What each round gave is in a file next to. callgrind needs valgrind, and the Go module proxy for sqlite's source the first time.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench is one run of the command.
type bench struct {
	rounds  int
	cpu     time.Duration // of a program, per round
	freq    int           // samples a second, hbtrace's as perf's
	dir     string
	hbtrace string
	perf    string // how perf takes stacks in the same run: perfModes
	fp      bool   // programs are built with frame pointers
	only    string // scenario or program
	how     bool   // CPU time also by how it was noticed
	each    bool   // and every function's mean error
	again   bool   // CPU time of recordings that are there
	samples int    // whose largest error of a function is asked for
	stops   int    // of each program whose stacks are compared
}

func main() {
	var b bench
	flag.IntVar(&b.rounds, "rounds", 5, "runs of each scenario")
	flag.DurationVar(&b.cpu, "cpu", 4*time.Second, "CPU time of one run")
	flag.IntVar(&b.freq, "F", 999, "samples a second, hbtrace's and perf's")
	flag.StringVar(&b.dir, "o", "", "where raw results go (default: a temporary directory, kept)")
	flag.StringVar(&b.hbtrace, "hbtrace", "", "the hbtrace to measure (default: built from this tree)")
	flag.BoolVar(&b.fp, "fp", false, "build the programs with frame pointers, which perf record -g needs")
	flag.StringVar(&b.only, "only", "", "one scenario or program of a part alone")
	flag.StringVar(&b.perf, "perf", "fp", "perf record in the same run: fp or dwarf (--call-graph), plain (no stacks), or none")
	flag.BoolVar(&b.how, "how", false, "of CPU time also the split by how samples came about")
	flag.BoolVar(&b.each, "each", false, "of CPU time also the mean error of each function")
	flag.BoolVar(&b.again, "again", false, "of CPU time, weigh the recordings of an earlier run that are in -o's directory, as many rounds of them: for a change of weights")
	flag.IntVar(&b.samples, "samples", 10_000, "of CPU time, in how many samples the largest error is asked for: as many rounds as have them make a set")
	flag.IntVar(&b.stops, "stops", 1000, "stacks compared of each program")
	flag.Parse()
	if _, ok := perfModes[b.perf]; !ok {
		fmt.Fprintf(os.Stderr, "accuracy: -perf %s: give fp, dwarf, plain or none\n", b.perf)
		os.Exit(2)
	}
	if err := b.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func (b *bench) run(parts []string) (err error) {
	if len(parts) == 0 {
		parts = []string{"cpu", "blocked", "switches", "alloc", "stacks", "durations", "callgrind"}
	}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "accuracy-"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if b.hbtrace == "" {
		b.hbtrace = filepath.Join(b.dir, "hbtrace")
		if err := command("go", "build", "-o", b.hbtrace, "./cmd/hbtrace").Run(); err != nil {
			return fmt.Errorf("building hbtrace: %w", err)
		}
	}
	frames := []string{"-fomit-frame-pointer"} // as distributions build
	if b.fp {
		frames = []string{"-fno-omit-frame-pointer", "-DFRAMES"}
	}
	for _, p := range []string{"cpu", "blocked", "alloc", "durations"} {
		if err := command("gcc", append(frames, "-O2", "-g", "-pthread", "-o", b.program(p), filepath.Join("bench/accuracy/programs", p+".c"))...).Run(); err != nil {
			return fmt.Errorf("compiling %s: %w", p, err)
		}
	}
	for _, part := range parts {
		switch part {
		case "cpu":
			if err = b.cpuTime(); err == nil {
				err = b.cpuBesidePerf()
			}
		case "blocked":
			err = b.blocked()
		case "switches":
			err = b.switches()
		case "alloc":
			err = b.allocations()
		case "callgrind":
			err = b.callgrind()
		case "durations":
			err = b.durations()
		case "stacks":
			err = b.stacks()
		default:
			err = fmt.Errorf("%q: give cpu, callgrind, blocked, switches, alloc, stacks or durations", part)
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("\nraw results:", b.dir)
	return nil
}

// program is the path of a compiled program; its name, cut to 15 bytes, is what perf knows it by.
func (b *bench) program(name string) string { return filepath.Join(b.dir, "acc-"+name) }

func (b *bench) file(format string, args ...any) string {
	return filepath.Join(b.dir, fmt.Sprintf(format, args...))
}

func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// quiet runs a command and shows what it said only if it failed.
func quiet(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{name}, args...), " "), err, out)
	}
	return nil
}

// readFacts calls f for each line of a truth file, split at spaces; numbers from the first that is one on.
func readFacts(path string, f func(words []string, numbers []int64) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	n := 0
	for sc := bufio.NewScanner(file); sc.Scan(); n++ {
		words := strings.Fields(sc.Text())
		var numbers []int64
		for i := len(words) - 1; i >= 0; i-- {
			v, err := strconv.ParseInt(words[i], 10, 64)
			if err != nil {
				break
			}
			numbers = append(numbers, v)
			words = words[:i]
		}
		slices.Reverse(numbers)
		if len(words) == 0 || len(numbers) == 0 {
			return fmt.Errorf("%s: line %d makes no sense: %q", path, n+1, sc.Text())
		}
		if err := f(words, numbers); err != nil {
			return err
		}
	}
	if n == 0 {
		return errors.New(path + " is empty: the program did not get to its end")
	}
	return nil
}
