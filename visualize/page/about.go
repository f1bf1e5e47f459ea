// About: what the recording is, its threads, and how far to trust it.

package page

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// about is the page's first question; it is asked again while the recording is being read.
type about struct {
	Command   string        `json:"command"`
	Host      string        `json:"host"`
	Kernel    string        `json:"kernel"`
	Arch      string        `json:"arch"`
	Version   string        `json:"version"`
	CPUs      int           `json:"cpus"`
	Started   string        `json:"started"` // RFC 3339; "" unknown
	Length    int64         `json:"length"`  // ns
	Freq      int           `json:"freq"`
	TickNs    int64         `json:"tickNs"`
	Period    uint64        `json:"period"` // bytes between sampled allocations
	CallNs    int64         `json:"callNs"` // thresholds
	LockNs    int64         `json:"lockNs"`
	Features  []string      `json:"features"`
	Status    int           `json:"status"`
	Signal    int           `json:"signal"`
	Hooks     []string      `json:"hooks"` // polling ones that were met: what turns can be made of
	Threads   []aboutThread `json:"threads"`
	Processes []aboutProc   `json:"processes"`
	Stats     aboutStats    `json:"stats"`
	Doubt     doubt         `json:"doubt"`
	Notes     []string      `json:"notes"`
	Marks     []aboutMark   `json:"marks"`
	Read      uint64        `json:"read"` // events
	Events    uint64        `json:"events"`
	Done      bool          `json:"done"`
	Failed    string        `json:"failed,omitempty"`
	Chained   bool          `json:"chained"` // chains were looked for
	// Resolution in ns: pieces shorter than that are added up. 0: nothing is.
	Resolution int64 `json:"resolution"`
}

type aboutThread struct {
	Name    string        `json:"name"`
	TID     int           `json:"tid"`
	Proc    int           `json:"proc"` // index into Processes; -1 unknown
	Main    bool          `json:"main,omitempty"`
	Start   int64         `json:"start"` // ns since the recording's start
	End     int64         `json:"end"`
	CPU     int64         `json:"cpu"` // ns; -1 unknown
	Total   [states]int64 `json:"total"`
	Exact   int64         `json:"exact"` // ns of its life; see spans.Coverage
	Sampled int64         `json:"sampled"`
	Unknown int64         `json:"unknown"`
	Stacks  uint64        `json:"stacks"`
	Samples uint64        `json:"samples"`
	Ready   int64         `json:"ready"` // ns runnable without a CPU; -1 unknown
	Lost    uint64        `json:"lost"`
}

// aboutMark is a moment that concerns the recording and not a thread.
type aboutMark struct {
	At   int64  `json:"at"` // ns since the recording's start
	Text string `json:"text"`
}

// maxKnobs is how many changes of detail the page draws.
const maxKnobs = 200

// marks are when hbtrace came to programs that ran already, and when it left.
func marks(meta *trace.Meta, from trace.Ns) []aboutMark {
	out := []aboutMark{}
	for _, a := range meta.Attached {
		out = append(out, aboutMark{int64(a.At - from), fmt.Sprintf("hbtrace attached to process %d", a.PID)})
		if a.Left != 0 {
			out = append(out, aboutMark{int64(a.Left - from), fmt.Sprintf("hbtrace left process %d", a.PID)})
		}
	}
	return out
}

type aboutProc struct {
	PID     int      `json:"pid"`
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Doubts  []string `json:"doubts"`
}

// aboutStats are the figures of trace.Stats that say what was lost and what it cost; times in ns.
type aboutStats struct {
	Records, RecordBytes, Lost, Gaps, Broken, Events, Overwritten uint64
	Ticks, TicksMissed, SignalsSent, SignalsFailed, SignalsStuck  uint64
	ThreadsUnslotted, ProcsUnslotted, SubbufsLost                 uint64
	CollectorCPU, SamplerCPU, AgentCPU, TargetCPU                 int64
	Complete                                                      bool
}

func (m *Model) about() *about {
	m.mu.RLock()
	defer m.mu.RUnlock()
	meta, stats := m.src.Meta(), m.src.Stats()
	a := &about{
		Command: frames.Valid(strings.Join(meta.Command, " ")), Host: frames.Valid(meta.Host), Kernel: frames.Valid(meta.Kernel),
		Arch: frames.Valid(meta.Arch), Version: frames.Valid(meta.Version), CPUs: meta.CPUs,
		Length: int64(m.to - m.from), Freq: meta.Freq, TickNs: meta.TickNs, Period: meta.AllocPeriod,
		CallNs: meta.CallThresholdNs, LockNs: meta.LockThresholdNs, Features: meta.Features,
		Status: meta.ExitStatus, Signal: meta.ExitSignal, Hooks: m.pollers(),
		Threads: []aboutThread{}, Processes: []aboutProc{}, Notes: []string{}, Marks: append(marks(meta, m.from), m.knobs...),
		Resolution: m.res, Doubt: m.doubt, Read: m.read, Events: stats.Events, Done: m.done, Chained: m.chains != nil,
		Stats: aboutStats{
			Records: stats.Records, RecordBytes: stats.RecordBytes, Lost: stats.Lost, Gaps: stats.Gaps, Broken: stats.Broken,
			Events: stats.Events, Overwritten: stats.Overwritten, Ticks: stats.Ticks, TicksMissed: stats.TicksMissed,
			SignalsSent: stats.SignalsSent, SignalsFailed: stats.SignalsFailed, SignalsStuck: stats.SignalsStuck,
			ThreadsUnslotted: stats.ThreadsUnslotted, ProcsUnslotted: stats.ProcsUnslotted, SubbufsLost: stats.SubbufsLost,
			CollectorCPU: int64(stats.CollectorCPU), SamplerCPU: int64(stats.SamplerCPU), AgentCPU: int64(stats.AgentCPU), TargetCPU: int64(stats.TargetCPU),
			Complete: stats.Complete,
		},
	}
	if !meta.Started.IsZero() {
		a.Started = meta.Started.UTC().Format(time.RFC3339)
	}
	for _, n := range stats.Notes {
		a.Notes = append(a.Notes, frames.Valid(n))
	}
	if m.failed != nil {
		a.Failed = frames.Valid(m.failed.Error())
	}
	procs := map[trace.ProcID]int{}
	list := m.src.Processes()
	for i := range list {
		procs[list[i].ID] = i
		a.Processes = append(a.Processes, describe(&list[i]))
	}
	for _, t := range m.threads {
		a.Threads = append(a.Threads, t.about(m, procs))
	}
	return a
}

func (t *thread) about(m *Model, procs map[trace.ProcID]int) aboutThread {
	x := aboutThread{
		Name: frames.Valid(t.info.Name), TID: t.info.TID, Proc: -1, Main: t.info.Main, Start: t.start, End: t.end,
		CPU: t.info.CPU, Total: t.total, Exact: t.cover.Exact, Sampled: t.cover.Sampled, Unknown: t.cover.Unknown,
		Stacks: t.cover.Stacks, Samples: t.info.Samples, Lost: t.lost,
	}
	if i, ok := procs[t.info.Proc]; ok {
		x.Proc = i
	}
	if x.Ready = t.ready; !m.kernel && !m.anyReady {
		x.Ready = -1
	}
	if t.end < 0 {
		x.End = int64(m.to - m.from)
	}
	return x
}

// describe says what a process is, and what it could not record.
func describe(p *trace.Process) aboutProc {
	out := aboutProc{PID: p.PID, Name: cmp.Or(frames.Title(p), frames.Valid(filepath.Base(p.Exe))), Command: frames.Valid(strings.Join(p.Cmdline, " ")), Doubts: []string{}}
	d := &p.Doubt
	say := func(yes bool, what string) {
		if yes {
			out.Doubts = append(out.Doubts, what)
		}
	}
	say(d.Disabled != "", "recording stopped: "+frames.Valid(d.Disabled))
	say(d.SyncOnly, "no CPU samples: the program keeps the sampling signal for itself")
	say(d.MutexOpaque, "mutex owners are not known: the C library's mutexes are laid out in another way")
	say(d.HandlerChained, "the program has a handler of its own for the sampling signal: CPU samples are taken at its next call and lean towards calls; record with --signal rtmin+10")
	say(d.CodesUnnamed > 0, "some frames of Python have no name")
	say(d.PythonCut > 0, "some stacks of Python are cut where the interpreter's memory made no sense")
	say(d.SmallStacks > 0, "alternate signal stacks are too small for the sampling signal: their threads are sampled at their calls only")
	say(d.HooksUnresolved > 0, "some functions could not be hooked")
	say(d.ModulesLost > 0, "some loaded modules are not known")
	say(d.AllocTableFull > 0, "frees of some sampled allocations were not seen")
	say(d.WalksRefused > 0, "some stacks could not be walked")
	return out
}

// pollers names the hooked functions that wait for work, as far as they were met: a server's turns lie between them.
func (m *Model) pollers() []string {
	seen := map[trace.HookID]bool{}
	out := []string{}
	for _, k := range m.sites.keys {
		if k.Hook == 0 || seen[k.Hook] {
			continue
		}
		seen[k.Hook] = true
		h := m.src.Meta().Hooks[k.Hook]
		if h.Class == trace.HookCond || h.Class == trace.HookSem || h.Class == trace.HookCall && weigh.StateOf(trace.KindCall, h, false) == weigh.Polling {
			out = append(out, frames.Valid(h.Name))
		}
	}
	return out
}
