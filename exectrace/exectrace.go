// Package exectrace reads Go execution traces (runtime/trace, and those of its flight recorder) and writes them as recordings: a
// goroutine is a thread, a wait has its stack and the goroutine that ended it.
//
// exectrace.go reads the trace; goroutine.go is the state machine of a goroutine; stacks.go is the table of stacks; waits.go is what the
// trace's reasons are called in recordings.
package exectrace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	exp "golang.org/x/exp/trace"
)

// Options of an import.
type Options struct {
	Version                      string // of this hbtrace
	Name                         string // of the trace, as the recording's command
	CallThreshold, LockThreshold time.Duration
}

// Is says whether a file is an execution trace, by its first bytes.
func Is(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 16)
	if _, err := io.ReadFull(f, head); err != nil {
		return false
	}
	return strings.HasPrefix(string(head), "go 1.") && strings.HasSuffix(string(head), " trace\x00\x00\x00")
}

// Import writes the recording of an execution trace to path. A trace that ends in the middle, as that of a program that was killed, is
// imported up to there, with a note.
func Import(r io.Reader, path string, o Options) (trace.Stats, error) {
	in, err := exp.NewReader(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return trace.Stats{}, fmt.Errorf("no Go execution trace can be read: %w", err)
	}
	m := &importer{o: o, goroutines: map[exp.GoID]*goroutine{}, stacks: newStacks()}
	var broken error
	for {
		e, err := in.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			broken = err
			break
		}
		if err := m.take(&e, path); err != nil {
			return m.stats, errors.Join(err, m.close())
		}
	}
	if m.w == nil {
		return m.stats, fmt.Errorf("the execution trace has no events (%v)", broken)
	}
	if broken != nil {
		m.stats.Notes = append(m.stats.Notes, fmt.Sprintf("the execution trace ends in the middle: %v", broken))
	}
	return m.stats, m.close()
}

// importer makes a recording of one trace's events.
type importer struct {
	o          Options
	w          *tracefile.Writer
	meta       trace.Meta
	stats      trace.Stats
	offset     int64 // from the trace's clock to CLOCK_MONOTONIC, where the trace says so
	wall       time.Time
	now        trace.Ns
	goroutines map[exp.GoID]*goroutine
	all        []*goroutine // by thread id - 1
	stacks     *stacks
	procs      map[exp.ProcID]struct{}
	failed     error
}

// process is the recording's only one.
const process trace.ProcID = 1

func (m *importer) begin(path string, at trace.Ns) error {
	m.meta = trace.Meta{
		Version: m.o.Version, Started: m.wall, StartNs: at, Arch: runtime.GOARCH, CPUs: 1, Command: []string{m.o.Name},
		Features: []string{"cpu", "lock", "syscall"}, Freq: 100, TickNs: 1e6, CallThresholdNs: int64(m.o.CallThreshold),
		LockThresholdNs: int64(m.o.LockThreshold), ExitStatus: -1, Hooks: hooks.Map(),
	}
	w, err := tracefile.Create(path, &m.meta)
	if err != nil {
		return err
	}
	m.w, m.procs = w, map[exp.ProcID]struct{}{}
	return nil
}

func (m *importer) take(e *exp.Event, path string) error {
	if e.Kind() == exp.EventSync {
		if c := e.Sync().ClockSnapshot; c != nil && m.w == nil {
			m.offset, m.wall = int64(c.Mono)-int64(c.Trace), c.Wall
		}
		return nil
	}
	m.now = max(m.now, trace.Ns(int64(e.Time())+m.offset))
	if m.w == nil {
		if err := m.begin(path, m.now); err != nil {
			return err
		}
	}
	if p := e.Proc(); p != exp.NoProc {
		m.procs[p] = struct{}{}
	}
	switch e.Kind() {
	case exp.EventStackSample:
		if id := e.Goroutine(); id != exp.NoGoroutine {
			m.goroutine(id).sampled(m, e.Stack())
		}
	case exp.EventStateTransition:
		if s := e.StateTransition(); s.Resource.Kind == exp.ResourceGoroutine {
			from, to := s.Goroutine()
			m.goroutine(s.Resource.Goroutine()).changes(m, e, &s, from, to)
		}
	}
	return m.failed
}

// goroutine is the one with that number; numbers are not used again.
func (m *importer) goroutine(id exp.GoID) *goroutine {
	g := m.goroutines[id]
	if g == nil {
		g = &goroutine{id: id, state: exp.GoUndetermined, since: m.meta.StartNs, reported: m.meta.StartNs}
		g.thread = trace.Thread{
			ID: trace.ThreadID(len(m.all) + 1), Proc: process, TID: int(id), Start: m.meta.StartNs, Goroutine: true, Main: id == 1, Lazy: true,
		}
		m.goroutines[id] = g
		m.all = append(m.all, g)
	}
	return g
}

func (m *importer) emit(e *trace.Event) {
	e.Count = 1
	if e.Stack == 0 {
		e.Flags |= trace.FlagNoStack
	}
	m.stats.Events++
	if err := m.w.PutEvent(e); err != nil && m.failed == nil {
		m.failed = err
	}
}

// close ends what is open at the trace's end, and the file.
func (m *importer) close() error {
	if m.w == nil {
		return m.failed
	}
	put := func(err error) {
		if m.failed == nil {
			m.failed = err
		}
	}
	for _, g := range m.all {
		g.end(m)
	}
	put(m.w.PutProcess(&trace.Process{ID: process, PID: 1, Start: m.meta.StartNs, Cmdline: []string{m.o.Name}}))
	for _, g := range m.all {
		put(m.w.PutThread(&g.thread))
	}
	m.meta.EndNs, m.meta.CPUs = m.now, max(len(m.procs), 1)
	put(m.w.PutModule(&trace.Module{ID: module, Path: m.o.Name, Kind: trace.ModuleELF, Lo: m.stacks.lo, Hi: m.stacks.hi + 1}))
	put(m.w.PutSymbols(module, m.stacks.addresses, m.stacks.symbols))
	put(m.w.PutMeta(&m.meta))
	m.stats.Nodes, m.stats.Complete = uint64(m.stacks.next-1), true
	err := m.w.Close(&m.stats)
	put(err)
	return m.failed
}
