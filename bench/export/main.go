// Command export measures what it takes to write a large recording as a Perfetto timeline and as a pprof profile:
// time, and the largest resident size of the exporting process. It makes the recording itself: threads with
// stacks that grow, shrink and change as programs' do, samples, waits with their releases, calls, allocations. A
// report is measured twice: as it reads the events, and with the summary in the file that a run stores at its end. Run
// it from the repository (60000000 samples are 1 GB):
//
//	go run ./bench/export [-samples 10000000] [-threads 64] [-dir DIR]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/hbtrace/hbtrace/visualize/report"
)

func main() {
	samples := flag.Int("samples", 10_000_000, "samples in the recording")
	threads := flag.Int("threads", 64, "threads in it")
	dir := flag.String("dir", "", "directory for the files, some GB (default: a temporary one)")
	bin := flag.String("hbtrace", "", "the hbtrace to measure (default: built from this tree)")
	keep := flag.String("recording", "", "measure on this recording; made first, and kept, when it is not there")
	flag.Parse()
	if err := run(*samples, *threads, *dir, *bin, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "export: %v\n", err)
		os.Exit(1)
	}
}

func run(samples, threads int, dir, bin, path string) error {
	tmp, err := os.MkdirTemp(dir, "hbtrace-export-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if bin == "" {
		bin = filepath.Join(tmp, "hbtrace")
		cmd := exec.Command("go", "build", "-o", bin, "./cmd/hbtrace")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building hbtrace: %w\n%s", err, out)
		}
	}
	if path == "" {
		path = filepath.Join(tmp, "big.hbt")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		begun := time.Now()
		made, err := synthesise(path, samples, threads)
		if err != nil {
			return err
		}
		fmt.Printf("recording: %d samples, %d events in all, %d threads, %d nodes; made in %v\n", made.samples, made.events, threads, made.nodes,
			time.Since(begun).Round(time.Millisecond))
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", path, size(st.Size()))
	fmt.Printf("%-28s %10s %10s %12s %10s\n", "", "wall", "CPU", "peak RSS", "file")
	for _, f := range []struct{ what, flag, file string }{
		{"report, of the events", "", ""},
		{"report --locks", "--locks", ""},
		{"to pprof", "--pprof", "out.pb.gz"},
		{"to Perfetto", "--perfetto", "out.perfetto-trace"},
		{"report, of the summary", "", ""},
	} {
		if f.what == "report, of the summary" {
			if err := summarise(path); err != nil {
				return err
			}
		}
		args := []string{"export", path, f.flag, filepath.Join(tmp, f.file)}
		if f.file == "" {
			if args = []string{"report", path}; f.flag != "" {
				args = append(args, f.flag)
			}
		}
		cmd := exec.Command(bin, args...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		begun := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, stderr.String())
		}
		wall := time.Since(begun)
		u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			return fmt.Errorf("%s: no resource usage", f.what)
		}
		file := ""
		if f.file != "" {
			st, err := os.Stat(filepath.Join(tmp, f.file))
			if err != nil {
				return err
			}
			file = size(st.Size())
		}
		fmt.Printf("%-28s %10v %10v %12s %10s\n", f.what, wall.Round(10*time.Millisecond),
			time.Duration(u.Utime.Nano()+u.Stime.Nano()).Round(10*time.Millisecond), size(u.Maxrss*1024), file)
	}
	return nil
}

// summarise stores what a run stores at its end.
func summarise(path string) error {
	src, err := tracefile.Open(path)
	if err != nil {
		return err
	}
	defer src.Close()
	facts, err := report.Collect(src)
	if err != nil {
		return err
	}
	return tracefile.AppendSummary(path, facts.Encode())
}

func size(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
