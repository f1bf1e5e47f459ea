// Command threads measures how the time of reports and exports grows with the threads of a recording. It makes
// recordings of which every wait overlaps the turns of all other threads (package synthetic, Queue), runs hbtrace's
// reports and exports on each, and prints the CPU time, the time an event and the peak of memory:
//
//	go run ./bench/threads -n 1000,10000,100000
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

func main() {
	list := flag.String("n", "1000,10000,100000", "threads, a recording for each")
	rounds := flag.Int("rounds", 2, "how often each thread gets the lock")
	bin := flag.String("hbtrace", "", "the hbtrace to measure (default: built from this tree)")
	limit := flag.Duration("limit", 2*time.Minute, "a command that takes longer is ended, and said to be")
	only := flag.String("only", "", "the outputs to measure, separated by commas")
	flag.Parse()
	if err := measure(*list, *rounds, *bin, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "threads:", err)
		os.Exit(1)
	}
}

var outputs = []struct {
	name string
	args []string // F is the recording, O a file
}{
	{"report", []string{"report", "F"}},
	{"report --threads", []string{"report", "--threads", "F"}},
	{"report --locks", []string{"report", "--locks", "F"}},
	{"pprof", []string{"export", "F", "--pprof", "O"}},
	{"perfetto", []string{"export", "F", "--perfetto", "O"}},
	{"html", []string{"export", "F", "--html", "O"}},
}

func measure(list string, rounds int, bin, only string, limit time.Duration) error {
	dir, err := os.MkdirTemp("", "hbtrace-threads-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if bin == "" {
		bin = filepath.Join(dir, "hbtrace")
		cmd := exec.Command("go", "build", "-o", bin, "./cmd/hbtrace")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building hbtrace: %w\n%s", err, out)
		}
	}
	fmt.Printf("%8s %8s  %-18s %10s %12s %10s %10s\n", "threads", "events", "", "CPU s", "ns/event", "peak RSS", "written")
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-n: %w", err)
		}
		path := filepath.Join(dir, text+".hbt")
		events, err := save(path, n, rounds)
		if err != nil {
			return err
		}
		for _, o := range outputs {
			if only != "" && !strings.Contains(","+only+",", ","+o.name+",") {
				continue
			}
			out := filepath.Join(dir, "out")
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			var args []string
			for _, a := range o.args {
				args = append(args, strings.NewReplacer("F", path, "O", out).Replace(a))
			}
			cmd := exec.CommandContext(ctx, bin, args...)
			cmd.Stderr = os.Stderr
			err := cmd.Run()
			ended := ctx.Err()
			cancel()
			u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			if err != nil && ended == nil || !ok {
				return fmt.Errorf("%s of %d threads: %w", o.name, n, err)
			}
			cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
			size, note := int64(0), ""
			if st, err := os.Stat(out); err == nil {
				size = st.Size()
				os.Remove(out)
			}
			if ended != nil {
				note = "  not done after " + limit.String()
			}
			fmt.Printf("%8d %8d  %-18s %10.2f %12.0f %6d MiB %6.1f MiB%s\n", n, events, o.name, cpu.Seconds(),
				float64(cpu)/float64(events), u.Maxrss>>10, float64(size)/(1<<20), note)
		}
		os.Remove(path)
	}
	return nil
}

// save writes the recording and returns how many events it has.
func save(path string, n, rounds int) (int, error) {
	src := synthetic.Queue(n, rounds).Source()
	w, err := tracefile.Create(path, src.Meta())
	if err != nil {
		return 0, err
	}
	put := func(e error) { err = firstOf(err, e) }
	for _, p := range src.Processes() {
		put(w.PutProcess(&p))
	}
	for _, t := range src.Threads() {
		put(w.PutThread(&t))
	}
	for _, m := range src.Modules() {
		put(w.PutModule(&m))
	}
	events := 0
	put(func() error {
		for id := trace.StackID(1); int(id) <= src.Nodes(); id++ {
			put(w.PutNodes(id, []trace.Node{src.Node(id)}))
		}
		return trace.Events(src, func(e *trace.Event) error {
			events++
			return w.PutEvent(e)
		})
	}())
	for id := trace.StackID(1); int(id) <= src.Nodes(); id++ {
		n := src.Node(id)
		put(w.PutSymbols(n.Addr.Module, []uint64{n.Lookup()}, [][]trace.SymFrame{src.Symbols(id)}))
	}
	put(w.Close(src.Stats()))
	return events, err
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
