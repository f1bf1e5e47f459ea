// Command export measures what it takes to read a large recording: reports, a pprof profile, a Perfetto timeline and the
// page, each in a process of its own: time, and the largest resident size. It makes the recording itself: threads with
// stacks that grow, shrink and change as programs' do, samples, waits with their releases, calls, allocations. What can
// be made of the summary that a run stores at its end is measured twice: without one, of the events, and with it. Run it
// from the repository (60000000 samples are 1 GB):
//
//	go run ./bench/export [-samples 10000000] [-threads 64] [-dir DIR] [-only REGEXP]
//	go run ./bench/export -next to 30000          # what perf's tools take for a recording of the same run
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/spans"
	"github.com/hbtrace/hbtrace/analysis/stored"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/hbtrace/hbtrace/visualize/pprof"
	"github.com/hbtrace/hbtrace/visualize/report"
)

func main() {
	samples := flag.Int("samples", 10_000_000, "samples in the recording")
	threads := flag.Int("threads", 64, "threads in it")
	dir := flag.String("dir", "", "directory for the files, some GB (default: a temporary one)")
	bin := flag.String("hbtrace", "", "the hbtrace to measure (default: built from this tree)")
	keep := flag.String("recording", "", "measure on this recording; made first, and kept, when it is not there")
	step := flag.String("step", "", "do one step of the measuring with -recording: make, count or summarise (used by the program itself)")
	perf := flag.Int("beside", 0, "instead, record this many `rounds` of bench/workloads/mixed.c with perf beside, and measure its tools and ours on that")
	some := flag.String("only", "", "measure what matches this `regexp` alone")
	flag.Parse()
	only, err := regexp.Compile(*some)
	switch {
	case err != nil:
	case *step != "":
		err = do(*step, *keep, *samples, *threads)
	default:
		err = run(*samples, *threads, *dir, *bin, *keep, only, *perf)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "export: %v\n", err)
		os.Exit(1)
	}
}

func run(samples, threads int, dir, bin, path string, only *regexp.Regexp, perf int) error {
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
	if perf > 0 {
		return beside(bin, tmp, perf)
	}
	if path == "" {
		path = filepath.Join(tmp, "big.hbt")
	}
	// What takes memory is done by children: a process's largest size is at least what its parent had when it was started.
	var took struct { // by the last step
		wall, cpu time.Duration
		rss       int64
	}
	step := func(name string) (string, error) {
		cmd := exec.Command("/proc/self/exe", "-step", name, "-recording", path, "-samples", strconv.Itoa(samples), "-threads", strconv.Itoa(threads))
		cmd.Stderr = os.Stderr
		begun := time.Now()
		out, err := cmd.Output()
		took.wall = time.Since(begun)
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			took.cpu, took.rss = time.Duration(u.Utime.Nano()+u.Stime.Nano()), u.Maxrss*1024
		}
		return string(out), err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		text, err := step("make")
		if err != nil {
			return err
		}
		fmt.Print(text)
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	var c count
	text, err := step("count")
	if err == nil {
		_, err = fmt.Sscan(text, &c.samples, &c.events, &c.spans)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s, %d samples in %d events, %d spans\n", path, size(st.Size()), c.samples, c.events, c.spans)
	fmt.Printf("%-28s %10s %10s %12s %10s\n", "", "wall", "CPU", "peak RSS", "file")
	has, known := false, false // a summary is in the recording; whether that is known
	for _, m := range measures {
		what := m.what + ", of the events"
		if m.stored {
			what = m.what + ", of the summary"
		}
		if !only.MatchString(what) {
			continue
		}
		if m.stored != has || !known {
			if has, known = m.stored, true; !has {
				err = tracefile.AppendSummary(path, nil)
			} else if text, err = step("summarise"); err == nil {
				fmt.Print(text)
				line("summing up, as a run's end", took.wall, took.cpu, took.rss, "")
			}
			if err != nil {
				return err
			}
		}
		if m.page {
			err = view(what, bin, path)
		} else {
			err = m.run(what, bin, path, tmp, &c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// do is what run has children do.
func do(step, path string, samples, threads int) error {
	switch step {
	case "make":
		begun := time.Now()
		made, err := synthesise(path, samples, threads)
		if err != nil {
			return err
		}
		fmt.Printf("recording: %d samples, %d events in all, %d threads, %d nodes; made in %v\n", made.samples, made.events, threads, made.nodes,
			time.Since(begun).Round(time.Millisecond))
		return nil
	case "count":
		c, err := tally(path)
		if err == nil {
			fmt.Println(c.samples, c.events, c.spans)
		}
		return err
	case "summarise":
		parts, err := summary(path)
		if err != nil {
			return err
		}
		return tracefile.AppendSummary(path, parts)
	}
	return fmt.Errorf("there is no step %q", step)
}

// measure is one thing to do with a recording: report with a flag, an export to a file, or a view.
type measure struct {
	what       string
	flag, file string
	stored     bool // with a summary in the recording
	page       bool
	per        func(*count) (int, string) // what is counted per second
}

func perSample(c *count) (int, string) { return c.samples, "samples" }
func perSpan(c *count) (int, string)   { return c.spans, "spans" }

var measures = []measure{
	{what: "report"},
	{what: "report --locks", flag: "--locks"},
	{what: "report --blocked", flag: "--blocked"},
	{what: "report --json", flag: "--json"},
	{what: "to pprof", flag: "--pprof", file: "out.pb.gz", per: perSample},
	{what: "to Perfetto", flag: "--perfetto", file: "out.perfetto-trace", per: perSpan},
	{what: "view", page: true},
	{what: "report", stored: true},
	{what: "report --locks", flag: "--locks", stored: true},
	{what: "report --blocked", flag: "--blocked", stored: true},
	{what: "report --json", flag: "--json", stored: true},
	{what: "to pprof", flag: "--pprof", file: "out.pb.gz", per: perSample, stored: true},
}

func (m *measure) run(what, bin, path, dir string, c *count) error {
	args := []string{"report", path}
	file := filepath.Join(dir, m.file)
	if m.file != "" {
		args = []string{"export", path, m.flag, file}
		defer os.Remove(file)
	} else if m.flag != "" {
		args = append(args, m.flag)
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
		return fmt.Errorf("%s: no resource usage", what)
	}
	written := ""
	if m.file != "" {
		st, err := os.Stat(file)
		if err != nil {
			return err
		}
		written = size(st.Size())
		if n, unit := m.per(c); n > 0 {
			written += fmt.Sprintf("   %.2f M %s/s, %.1f B each", float64(n)/wall.Seconds()/1e6, unit, float64(st.Size())/float64(n))
		}
	}
	line(what, wall, time.Duration(u.Utime.Nano()+u.Stime.Nano()), u.Maxrss*1024, written)
	return nil
}

func line(what string, wall, cpu time.Duration, rss int64, more string) {
	fmt.Printf("%-28s %10v %10v %12s %s\n", what, wall.Round(10*time.Millisecond), cpu.Round(10*time.Millisecond), size(rss), more)
}

// count is what is in a recording.
type count struct {
	spans.Discard
	samples, events, spans int
}

// Begin implements [spans.Sink].
func (c *count) Begin(*spans.Span) error { c.spans++; return nil }

// Interval implements [spans.Sink]: waits and calls are slices, too.
func (c *count) Interval(*spans.Interval) error { c.spans++; return nil }
func (c *count) Return(*spans.Interval) error   { return nil }

func tally(path string) (*count, error) {
	src, err := tracefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	c := &count{}
	b := spans.New(src, frames.New(src), c)
	err = trace.Events(src, func(e *trace.Event) error {
		c.events++
		switch e.Kind {
		case trace.KindCPU, trace.KindSync, trace.KindEnter, trace.KindGap:
			c.samples += int(max(e.Count, 1))
		}
		return b.Add(e)
	})
	if err != nil {
		return nil, err
	}
	_, err = b.Close()
	return c, err
}

// summary is what a run stores at its end, in the way in which it finds it out.
func summary(path string) ([]byte, error) {
	debug.SetMemoryLimit(700 << 20) // as all of hbtrace's that reads recordings has
	src, err := tracefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	weights := pprof.Weights(src, pprof.Options{})
	facts, err := report.CollectWith(src, true, weights)
	if err != nil {
		return nil, err
	}
	var profile bytes.Buffer
	if err := pprof.WriteWeighed(&profile, src, weights, pprof.Options{}); err != nil {
		return nil, err
	}
	parts := append(facts.Parts(), pprof.Part(profile.Bytes()))
	for _, p := range parts {
		fmt.Printf("  part %d of the summary: %s\n", p.Number, size(int64(len(p.Bytes))))
	}
	return stored.Encode(parts...), nil
}

func size(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
