// Command backtrace measures a synchronous backtrace at depths 10, 30 and 100: the agent's walk, and its whole sample
// into the ring, against glibc's backtrace() and libunwind, interleaved in one process. Run it from the repository:
//
//	go run ./bench/backtrace [-rounds 5] [-o FILE]
package main

import (
	"bufio"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
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
	flag.Parse()
	if err := run(*rounds, *out); err != nil {
		fmt.Fprintf(os.Stderr, "backtrace: %v\n", err)
		os.Exit(1)
	}
}

// The flags that agent/build gives the agent, which is what is measured.
var agentFlags = []string{"-std=gnu11", "-O2", "-shared", "-nostdlib", "-ffreestanding", "-fPIC", "-fvisibility=hidden",
	"-ftls-model=initial-exec", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fomit-frame-pointer", "-fno-tree-loop-distribute-patterns",
	"-fno-reorder-blocks-and-partition", "-fno-strict-aliasing", "-fasynchronous-unwind-tables", "-fno-exceptions", "-Wl,-z,now"}

type key struct {
	depth int
	way   string
}

func run(rounds int, out string) error {
	if _, err := os.Stat("bench/backtrace/backtrace.c"); err != nil {
		return errors.New("no bench/backtrace/backtrace.c here: run this from the repository's top")
	}
	tmp, err := os.MkdirTemp("", "hbtrace-backtrace-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	side, exe := filepath.Join(tmp, "side.so"), filepath.Join(tmp, "backtrace")
	if err := gcc(append(slices.Clone(agentFlags), "-I.", "-o", side, "bench/backtrace/agentside.c")...); err != nil {
		return err
	}
	base := []string{"-O2", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread", "-o", exe, "bench/backtrace/backtrace.c", side}
	if err := gcc(append(slices.Clone(base), "-DHAVE_LIBUNWIND", "-lunwind")...); err != nil {
		fmt.Println("without libunwind: it needs Debian's libunwind-dev")
		if err := gcc(base...); err != nil {
			return err
		}
	}
	least, middle := map[key][]float64{}, map[key][]float64{}
	frames := map[key]int{}
	var ways []string
	var raw strings.Builder
	fmt.Fprintln(&raw, "round,depth,way,frames,min_ns,median_ns")
	depths := []int{10, 30, 100}
	for round := range rounds {
		for _, depth := range depths {
			text, err := measure(exe, depth, filepath.Join(tmp, "region"))
			if err != nil {
				return fmt.Errorf("depth %d: %w", depth, err)
			}
			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				f := strings.Split(line, "|")
				if len(f) != 4 {
					return fmt.Errorf("depth %d: %q", depth, line)
				}
				n, err1 := strconv.Atoi(f[1])
				lo, err2 := strconv.ParseFloat(f[2], 64)
				mid, err3 := strconv.ParseFloat(f[3], 64)
				if err := errors.Join(err1, err2, err3); err != nil {
					return fmt.Errorf("depth %d: %q: %w", depth, line, err)
				}
				k := key{depth, f[0]}
				if !slices.Contains(ways, f[0]) {
					ways = append(ways, f[0])
				}
				least[k], middle[k], frames[k] = append(least[k], lo), append(middle[k], mid), n
				fmt.Fprintf(&raw, "%d,%d,%s,%d,%.2f,%.2f\n", round, depth, f[0], n, lo, mid)
			}
		}
	}
	fmt.Printf("ns per backtrace, warm: least / median (frames found); %d processes per depth\n%-34s", rounds, "")
	for _, d := range depths {
		fmt.Printf(" %24s", fmt.Sprintf("depth %d", d))
	}
	fmt.Println()
	for _, w := range ways {
		fmt.Printf("%-34s", w)
		for _, d := range depths {
			k := key{d, w}
			fmt.Printf(" %24s", fmt.Sprintf("%.1f / %.1f (%d)", slices.Min(least[k]), median(middle[k]), frames[k]))
		}
		fmt.Println()
	}
	if out != "" {
		return os.WriteFile(out, []byte(raw.String()), 0o644)
	}
	return nil
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
	if _, err := region.Publish(0, 1, list); err != nil {
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
