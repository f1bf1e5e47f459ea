// What is known when all events have been read: the profile, edges, chains, and who took part.

package tables

import (
	"path/filepath"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

func (x *export) profile(t *weigh.Table) error {
	return writeAll(x, "profile", func(add func(profileRow) error) error {
		for i := range t.Rows {
			r := &t.Rows[i]
			err := add(profileRow{
				Recording: x.id, Process: int32(r.Proc), Thread: int64(r.Thread), Kind: string(r.Kind), Stack: x.stacks.ofRow(&r.Key), Object: r.Object,
				Samples: r.Values[weigh.Samples], CPUNs: r.Values[weigh.CPU], BlockedNs: r.Values[weigh.Blocked],
				Contentions: r.Values[weigh.Contentions], DelayNs: r.Values[weigh.Delay],
				AllocObjects: r.Values[weigh.AllocObjects], AllocBytes: r.Values[weigh.AllocSpace],
				InuseObjects: r.Values[weigh.InuseObjects], InuseBytes: r.Values[weigh.InuseSpace],
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *export) edges(list []*edges.Edge, res *blame.Result) error {
	meta := x.src.Meta()
	return writeAll(x, "edges", func(add func(edgeRow) error) error {
		for _, e := range list {
			proc := x.proc[e.Waiter]
			row := edgeRow{
				Recording: x.id, Process: int32(proc), Kind: weigh.ObjectKind(meta.Hooks[e.Hook]), Call: frames.HookName(meta, e.Hook),
				Object: e.Object, ObjectName: res.ObjectName(x.stacks.tab, blame.Object{Proc: proc, Addr: e.Object}),
				Lock: x.locking.Wait(e.Hook, e.Stack), Waiter: int64(e.Waiter), Owner: int64(e.Owner), Releaser: int64(e.Releaser),
				WaiterStack: x.stacks.of(trace.Site{Stack: e.Stack, Hook: e.Hook}), ReleaserStack: x.stacks.of(e.Release),
				Count: int64(e.Count), Certain: int64(e.Sure), Expected: float64(e.Expected) / 1000, TotalNs: e.Total, MaxNs: e.Max,
				TimedOut: int64(e.TimedOut), Open: int64(e.Open), Doing: []doingRow{},
			}
			if d := res.Edges[e.EdgeKey]; d != nil {
				row.OwnerStack = x.stacks.of(d.Taken)
				for _, did := range d.Doing {
					row.Doing = append(row.Doing, doingRow{did.Act.String(), did.Func, did.Ns})
				}
			}
			if err := add(row); err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *export) chains(res *blame.Result) error {
	return writeAll(x, "chains", func(add func(chainRow) error) error {
		for i := range res.Chains {
			c := &res.Chains[i]
			row := chainRow{
				Recording: x.id, Chain: int32(i + 1), Lock: c.Lock, Count: int64(c.Count), TotalNs: c.Total, MaxNs: c.Max,
				End: c.End.String(), EndThread: int64(c.By), EndStack: x.stacks.of(c.At), EndFunction: c.Func, Links: []linkRow{},
			}
			for j := range c.Links {
				l := &c.Links[j]
				row.Links = append(row.Links, linkRow{
					int64(l.Thread), x.stacks.of(l.At), l.Func, l.Kind, l.Object.Addr, res.ObjectName(x.stacks.tab, l.Object),
				})
			}
			if err := add(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// who writes threads, processes and the recording itself.
func (x *export) who() error {
	err := writeAll(x, "threads", func(add func(threadRow) error) error {
		for _, t := range x.src.Threads() {
			row := threadRow{
				Recording: x.id, Thread: int64(t.ID), Process: int32(t.Proc), Parent: int64(t.Parent), TID: int32(t.TID),
				Name: frames.Valid(t.Name), StartedAt: x.at(t.Start), EndedAt: x.ended(t.End), Main: t.Main,
				Calls: int64(t.Calls), Waits: int64(t.Waits), WaitNs: t.WaitNs, AllocObjects: int64(t.AllocObjects),
				AllocBytes: int64(t.AllocBytes), FreeObjects: int64(t.FreeObjects), Lost: int64(t.Lost),
			}
			if cpu := t.CPU; cpu >= 0 {
				row.CPUNs = &cpu
			}
			if err := add(row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = writeAll(x, "processes", func(add func(processRow) error) error {
		for _, p := range x.src.Processes() {
			err := add(processRow{
				Recording: x.id, Process: int32(p.ID), Parent: int32(p.Parent), PID: int32(p.PID), PPID: int32(p.PPID), Exe: frames.Valid(p.Exe),
				Cmdline: valid(p.Cmdline), StartedAt: x.at(p.Start), EndedAt: x.ended(p.End), Forked: p.Forked,
				Lost: int64(p.Doubt.Lost), Disabled: frames.Valid(p.Doubt.Disabled),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return writeAll(x, "recordings", func(add func(recordingRow) error) error { return add(x.recording()) })
}

func (x *export) recording() recordingRow {
	m, s := x.src.Meta(), x.src.Stats()
	row := recordingRow{
		Recording: x.id, Host: frames.Valid(m.Host), Kernel: frames.Valid(m.Kernel), Arch: m.Arch, CPUs: int32(m.CPUs),
		Command: valid(m.Command), Version: m.Version, StartedAt: x.at(m.StartNs), DurationNs: max(0, int64(m.EndNs-m.StartNs)),
		ExitStatus: int32(m.ExitStatus), ExitSignal: int32(m.ExitSignal), FreqHz: int32(m.Freq), AllocPeriod: int64(m.AllocPeriod),
		CallThresholdNs: m.CallThresholdNs, LockThresholdNs: m.LockThresholdNs, CPUNs: int64(s.TargetCPU),
		CollectorNs: int64(s.CollectorCPU), SamplerNs: int64(s.SamplerCPU), AgentNs: int64(s.AgentCPU), Events: int64(s.Events), Lost: int64(s.Lost),
		Overwritten: int64(s.Overwritten), Complete: s.Complete, Notes: valid(s.Notes),
	}
	if len(m.Command) > 0 {
		row.Program = frames.Valid(filepath.Base(m.Command[0]))
	}
	if ps := x.src.Processes(); len(ps) > 0 {
		for _, mod := range x.src.Modules() {
			if mod.Path == ps[0].Exe {
				row.BuildID = mod.BuildID
				break
			}
		}
	}
	return row
}

// valid is a list's copy in valid UTF-8, never nil.
func valid(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = frames.Valid(s)
	}
	return out
}
