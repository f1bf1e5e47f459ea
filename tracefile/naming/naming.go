// Package naming stores the functions of a recording's addresses in it.
package naming

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// Input is what is to be named.
type Input struct {
	Modules   []trace.Module              // a module that was announced again is looked up once
	Addresses map[trace.ModuleID][]uint64 // of frames, as [trace.Node.Lookup] gives them
	// what threads waited for in a module's data, as ELF virtual addresses; nil: nothing
	Waited func(*trace.Module) []uint64
	Kernel func(*trace.Module, []uint64) // stores the names of the kernel's addresses; nil: they stay without
	Stop   <-chan struct{}               // being closed ends it
}

// Result is how that went.
type Result struct {
	Notes      []string // what could not be named, and why: one line each
	Unfinished bool     // Stop was closed
}

// Store looks up the names of all addresses, several modules at a time, and puts them into w. put is told of each
// error of w.
func Store(w *tracefile.Writer, r *symbols.Resolver, in Input, put func(error)) (res Result) {
	type job struct {
		m             trace.Module
		addrs, waited []uint64
		frames        [][]trace.SymFrame
	}
	var jobs []*job
	seen := map[trace.ModuleID]bool{}
	for _, m := range in.Modules {
		var addrs, waited []uint64
		if !seen[m.ID] {
			addrs = in.Addresses[m.ID]
		}
		if in.Waited != nil {
			waited = in.Waited(&m)
		}
		seen[m.ID] = true
		if len(addrs) == 0 && len(waited) == 0 {
			continue
		}
		if m.Kind == trace.ModuleKernel {
			if in.Kernel != nil {
				in.Kernel(&m, addrs)
			}
			continue
		}
		slices.Sort(addrs)
		if err := r.Add(m); err != nil {
			res.Notes = append(res.Notes, fmt.Sprintf("names of %s: %v", m.Path, err))
			continue
		}
		jobs = append(jobs, &job{m: m, addrs: slices.Compact(addrs), waited: waited})
	}
	var next atomic.Int64
	done := make(chan *job)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
				select {
				case <-in.Stop:
					return
				default:
				}
				j := jobs[i]
				j.m.Variables = r.Variables(j.m.ID, j.waited)
				j.frames = r.Resolve(j.m.ID, j.addrs)
				done <- j
			}
		})
	}
	go func() { workers.Wait(); close(done) }()
	written := 0
	for j := range done {
		written++
		known, ok := r.Module(j.m.ID)
		if learned := ok && j.m.BuildID == "" && known.BuildID != ""; learned || len(j.m.Variables) > 0 {
			j.m.BuildID = known.BuildID
			put(w.PutModule(&j.m))
		}
		if len(j.addrs) > 0 {
			put(w.PutSymbols(j.m.ID, j.addrs, j.frames))
		}
		j.frames = nil
	}
	res.Unfinished = written < len(jobs)
	// On most machines the system's libraries are stripped: a few lines say so as well as fifty.
	lines := r.Notes()
	const few = 4
	if len(lines) > few {
		lines = append(
			lines[:few:few],
			fmt.Sprintf(
				"and %d more modules without full symbols (hbtrace report shows them as module+0xoffset)",
				len(lines)-few,
			),
		)
	}
	res.Notes = append(res.Notes, lines...)
	return res
}
