// The run command: record a program, write the files, exit as the program did.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/collector"
	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/spf13/cobra"
)

const (
	defaultPrefix = "hbtrace"
	leastRing     = 64 << 10
	mostRing      = 4 << 30
	leastHistory  = 16 << 20 // of what waits between ring and file
)

// runFlags are run's flags as given.
type runFlags struct {
	prefix         string
	freq           int
	signal         signalFlag
	duration       durationFlag
	events         eventsFlag
	unwind         unwindFlag
	allocPeriod    sizeFlag
	budget         budgetFlag
	threshold      durationFlag
	buffer         sizeFlag
	kernel         kernelFlag
	follow         bool
	keep           keepFlags
	push           pushFlags
	quiet, verbose bool

	patience time.Duration // for tests; 0: the constant
}

func newRun() *cobra.Command { return newRunFlags().command() }

func newRunFlags() *runFlags {
	return &runFlags{
		events: eventsFlag{features}, unwind: "auto",
		allocPeriod: sizeFlag{value: 512 << 10}, threshold: durationFlag{needsUnit: true}, buffer: sizeFlag{value: 8 << 20, needsUnit: true},
	}
}

// command is run with these flags; attach has most of them as well.
func (f *runFlags) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] [--] PROGRAM [ARGUMENT…]",
		Short: "Record a program from its start",
		Long: `run starts a program and records it and the processes that it starts, until it ends. It writes PREFIX` + suffixTrace + `,
PREFIX` + suffixPprof + ` and PREFIX` + suffixPerfetto + ` and a summary on standard error. The program has standard input, output and
error to itself; signals are passed on to it.

Files that exist already are kept as NAME.old, as perf does. Outputs estimated to take over 90 s (or an eighth of the
recorded time) are skipped, and the commands that create them are printed.

It exits with the program's status, 128+n when signal n ended it, and with 125 when something is wrong with the
recording or the program cannot be started.`,
		Example: `  hbtrace run ./app --its-own-flag
  hbtrace run -F 999 -e cpu,lock -o /tmp/app-%p -- ./app
  hbtrace run -d 10s ./server`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the program to record: hbtrace run ./app")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
	}
	flags := c.Flags()
	flags.SetInterspersed(false) // what follows the program's name is the program's
	flags.StringVarP(&f.prefix, "output", "o", defaultPrefix, "`prefix` of the files written; %p is the program's pid, %h the host, %t the time")
	flags.IntVarP(&f.freq, "freq", "F", 499, "CPU samples per second of CPU time, of each thread")
	flags.VarP(&f.duration, "duration", "d", "stop recording after this (10, 10s, 500ms); the program runs on")
	flags.VarP(&f.events, "events", "e", "what to record: a comma-separated list of cpu, alloc, lock, syscall")
	flags.VarP(&f.unwind, "unwind", "g", "how to walk stacks: auto (unwind tables, frame pointers where there are none) or fp")
	flags.Lookup("unwind").NoOptDefVal = "auto" // perf's -g has no value
	flags.Var(&f.allocPeriod, "alloc-period", "mean bytes between sampled allocations; 1 samples all")
	flags.Var(&f.threshold, "threshold", "waits and calls shorter than this are only counted (20us, 1ms; 0 records all; default 10us for locks, 100us for calls)")
	flags.Var(&f.budget, "budget", "most CPU time that recording may use, in percent of the program's (2%): detail is dropped, and reported, to stay below; off records all")
	flags.VarP(&f.buffer, "buffer", "m", "memory between the program and the recorder, a power of two; a larger buffer drops fewer events")
	flags.Var(&f.kernel, "kernel", "record the kernel's own scheduling events, which adds overhead: off, auto (where permitted), on")
	flags.Var(&f.signal, "signal", "the sampling signal: urg, or rtmin+0 to rtmin+30 where the program needs SIGURG (less safe: docs/design/sampling.md)")
	flags.BoolVar(&f.follow, "follow", false, "record processes that outlive the program to their end")
	f.keep.add(flags)
	flags.StringVar(&f.push.to, "push", "", "flight recorder (--keep, default 60s,64M) that sends profiles to a receiver, by `URL`; see hbtrace push")
	flags.DurationVar(&f.push.every, "push-every", 15*time.Second, "`time` between pushes")
	flags.StringVar(&f.push.service, "service", "", "service.name of what is pushed (default: OTEL_SERVICE_NAME, or the command)")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print errors only")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print all statistics of the recording")
	return c
}

// options checks the flags and turns them into the collector's terms, all but the output.
func (f *runFlags) options(command []string) (collector.Options, error) {
	o := collector.Options{
		Command: command, Freq: f.freq, AllocPeriod: f.allocPeriod.value, Duration: f.duration.value, Follow: f.follow,
		RingBytes: int(f.buffer.value), BufferBytes: max(leastHistory, 2*int(f.buffer.value)), Version: version(),
	}
	o.Budget = f.budget.share
	o.Kernel, o.Sampling, o.Keep = f.kernel.mode, f.signal.number, f.keep.keep.value
	if f.push.to != "" {
		if err := f.push.check(); err != nil {
			return o, err
		}
		if o.Keep == (flight.Keep{}) {
			o.Keep = flight.Keep{Time: time.Minute, Bytes: 64 << 20}
		}
	}
	if f.unwind == "fp" {
		o.Unwind = collector.UnwindFP
	}
	if f.freq < 1 {
		return o, errors.New("-F: use 1 or more; to leave CPU samples out, name the others: -e alloc,lock,syscall")
	}
	if f.allocPeriod.value == 0 {
		return o, errors.New("--alloc-period: use 1 or more; to leave allocations out, name the others: -e cpu,lock,syscall")
	}
	if b := f.buffer.value; bits.OnesCount64(b) != 1 || b < leastRing || b > mostRing {
		return o, fmt.Errorf("-m: use a power of two from %s to %s", (&sizeFlag{value: leastRing}).String(), (&sizeFlag{value: mostRing}).String())
	}
	bit := map[string]uint32{
		"cpu": segment.FeatureCPU, "alloc": segment.FeatureAlloc, "lock": segment.FeatureLock, "syscall": segment.FeatureCall,
	}
	for _, name := range f.events.chosen {
		o.Features |= bit[name]
	}
	if f.threshold.given {
		o.CallThreshold, o.LockThreshold = f.threshold.value, f.threshold.value
		if f.threshold.value == 0 { // where 0 stands for the default
			o.CallThreshold, o.LockThreshold, o.ReleaseDebt = -1, -1, -1
		}
	}
	return o, nil
}

func (f *runFlags) run(cmd *cobra.Command, command []string) error {
	o, err := f.options(command)
	if err != nil {
		return err
	}
	out, err := newOutputs(f.prefix, time.Now())
	if err != nil {
		return err
	}
	if err := f.keep.options(&o, cmd.Flags().Changed); err != nil {
		return err
	}
	o.Output = out.recording()
	if o.Dumps.Prefix, err = out.expand(os.Getpid()); err != nil { // the program's pid is not known yet
		return err
	}
	stderr := cmd.ErrOrStderr()
	line := newProgress(stderr, f.quiet)
	if !f.quiet {
		o.Alert = func(text string) {
			line.clear()
			fmt.Fprintf(stderr, "hbtrace: %s\n", text)
		}
	}
	if f.verbose {
		o.Remark = func(text string) { fmt.Fprintf(stderr, "hbtrace: %s\n", text) }
	}
	o.Progress = recordingProgress(line)
	if f.push.to != "" {
		p := &pusher{flags: &f.push, stderr: stderr}
		o.KeepBegun, o.KeepEnded = p.begin, p.end
	}

	undo := func() {}
	if _, missing := exec.LookPath(command[0]); missing == nil && o.Keep == (flight.Keep{}) {
		if undo, err = out.keepOld(); err != nil {
			return err
		}
	}
	began := time.Now()
	res, failed := collector.Record(context.Background(), o)
	line.clear()
	if res == nil {
		undo()
		return failed
	}
	// From here on a reader of our output that went away must not keep the program's status from being passed on.
	// Not earlier: the program would inherit it.
	signal.Ignore(syscall.SIGPIPE)
	if o.Keep != (flight.Keep{}) {
		if failed != nil {
			return failed
		}
		f.tellKept(res, o.Keep, stderr)
		return programStatus(res)
	}
	if failed == nil {
		failed = f.finish(out, line, stderr)
	} else { // the program ran to its end, and its status is its own
		fmt.Fprintf(stderr, "hbtrace: %v: what was written is in %s\n", failed, o.Output)
		failed = nil
	}
	if failed != nil {
		return failed
	}
	if !f.quiet {
		for _, path := range executionTraces(command, began) {
			fmt.Fprintf(stderr, "hbtrace: %s is a Go execution trace: hbtrace import %s\n", path, shellWord(path))
		}
	}
	return programStatus(res)
}

// tellKept says what a flight recorder held when its program ended.
func (f *runFlags) tellKept(res *collector.Result, keep flight.Keep, w io.Writer) {
	if f.quiet {
		return
	}
	for _, note := range res.Notes {
		fmt.Fprintf(w, "hbtrace: %s\n", note)
	}
	fmt.Fprintf(w, "hbtrace: %s\n", heldLine(res.Held, keep))
}

// programStatus is the program's end as an exit status; nil for 0.
func programStatus(res *collector.Result) error {
	switch {
	case res.Signal != 0:
		return status(128 + int(res.Signal))
	case res.ExitStatus != 0:
		return status(res.ExitStatus)
	}
	return nil
}

// recordingProgress shows how far a recording is, unless the program itself writes to the terminal: a line of ours
// in the middle of its output would spoil it.
func recordingProgress(line *progress) func(collector.Progress) {
	mixed := isTerminal(os.Stdout)
	return func(p collector.Progress) {
		switch {
		case p.Saving:
			line.stage("saving the recording")
		case !mixed:
			line.show("%s, %d events, %s", p.Elapsed.Round(100*time.Millisecond), p.Events, megabytes(p.FileBytes))
		}
	}
}

func megabytes(n uint64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// outputs are the names of a run's files. Where the pid is part of them, it is known only when the program runs:
// until then the recording has a name of its own next to its final one.
type outputs struct {
	prefix  string // "" until settle
	pattern string // with %p
	interim string
	at      time.Time
}

func newOutputs(pattern string, at time.Time) (*outputs, error) {
	out := &outputs{pattern: trimSuffix(pattern), at: at}
	// with some pid, to be checked before anything is started
	prefix, err := out.expand(os.Getpid())
	if err != nil {
		return nil, err
	}
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	if again, err := out.expand(os.Getpid() + 1); err == nil && again == prefix {
		out.prefix = prefix
		return out, nil
	}
	out.interim = filepath.Join(filepath.Dir(prefix), fmt.Sprintf(".hbtrace-%d%s", os.Getpid(), suffixTrace))
	return out, nil
}

// keepOld keeps what an earlier run wrote under the same names. Names with the pid in them are new.
func (out *outputs) keepOld() (undo func(), err error) {
	if out.prefix == "" {
		return func() {}, nil
	}
	return keepOld(out.prefix+suffixTrace, out.prefix+suffixPprof, out.prefix+suffixPerfetto)
}

func (out *outputs) expand(pid int) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return expand(out.pattern, pid, host, out.at)
}

// recording is where the recording is now.
func (out *outputs) recording() string {
	if out.prefix == "" {
		return out.interim
	}
	return out.prefix + suffixTrace
}

// settle gives the recording its final name. The program is the process that this one started; of one that could
// not be recorded the pid is not known, and this process's stands in for it.
func (out *outputs) settle(processes []trace.Process) error {
	if out.prefix != "" {
		return nil
	}
	pid := os.Getpid()
	for _, p := range processes {
		if p.PPID == os.Getpid() {
			pid = p.PID
			break
		}
	}
	prefix, err := out.expand(pid)
	if err != nil {
		return err
	}
	if err := os.Rename(out.interim, prefix+suffixTrace); err != nil {
		return fmt.Errorf("naming the recording: %s stays where it is: %w", out.interim, bare(err))
	}
	out.prefix = prefix
	return nil
}

// shellWord quotes a path for a command line that is to be copied.
func shellWord(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./+,:@%=", r))
	}) < 0 && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
