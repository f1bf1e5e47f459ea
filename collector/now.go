// What hbtrace top is told: a copy of what the session knows of its threads at one moment.
package collector

import (
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hbtrace/hbtrace/collector/assemble"
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/live"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// onlookers are those who ask what the session's threads are doing. They are answered by the session's goroutine, between
// two passes.
type onlookers struct {
	ask    chan chan *live.Snapshot
	quit   chan struct{}
	once   sync.Once
	server *live.Server // nil: nobody can ask
}

// listen lets others ask. That it cannot be done is no reason not to record.
func (o *onlookers) listen() (err error) {
	o.ask, o.quit = make(chan chan *live.Snapshot), make(chan struct{})
	o.server, err = live.Listen(func() *live.Snapshot {
		answer := make(chan *live.Snapshot, 1)
		select {
		case o.ask <- answer:
			return <-answer
		case <-o.quit:
			return nil
		}
	})
	return err
}

// close ends it; who is asking is told nothing.
func (o *onlookers) close() {
	o.once.Do(func() {
		if o.server != nil {
			close(o.quit)
			o.server.Close()
		}
	})
}

// snapshot is what threads are doing now. What they have recorded so far is taken in first: two passes, as the
// second makes events of what the first took in.
func (s *session) snapshot() *live.Snapshot {
	s.pass()
	s.pass()
	out := &live.Snapshot{
		Version: live.Version, Recorder: os.Getpid(), Output: s.opt.Output, Command: s.opt.Command, Start: s.meta.StartNs,
		Lost: s.lost(),
	}
	if path, err := filepath.Abs(out.Output); err == nil {
		out.Output = path
	}
	ids := map[trace.StackID]trace.StackID{0: 0}
	used := map[trace.ModuleID]bool{}
	var stack func(trace.StackID) trace.StackID
	stack = func(id trace.StackID) trace.StackID {
		if to, ok := ids[id]; ok {
			return to
		}
		n := s.stacks.Node(id)
		n.Parent = stack(n.Parent)
		used[n.Addr.Module] = true
		out.Nodes = append(out.Nodes, n)
		ids[id] = trace.StackID(len(out.Nodes))
		return ids[id]
	}
	procs := map[trace.ProcID]bool{}
	s.asm.Now(func(n *assemble.Now) {
		t := live.Thread{
			Thread: n.Thread, Since: n.Since, Object: n.Object, Place: n.Place, Owner: n.Owner,
			Stack: stack(n.Stack), StackTime: n.StackTime, Exact: n.Exact,
		}
		if h, ok := hooks.ByID(n.Hook); ok && n.Hook != 0 {
			t.Hook = trace.HookInfo{Name: h.Name, Class: trace.HookClass(h.Class.String()), Object: trace.HookObject(h.Object.String())}
			t.Waits = h.Class.Waits()
		}
		used[n.Place.Module] = true
		procs[t.Proc] = true
		out.Threads = append(out.Threads, t)
	})
	s.asm.Processes(func(p trace.Process) {
		if procs[p.ID] {
			p.Cmdline = slices.Clone(p.Cmdline)
			out.Processes = append(out.Processes, p)
		}
	})
	for _, m := range s.modules {
		if used[m.ID] && !slices.ContainsFunc(out.Modules, func(x trace.Module) bool { return x.ID == m.ID }) {
			out.Modules = append(out.Modules, m)
		}
	}
	out.Now = trace.Ns(segment.Now())
	return out
}
