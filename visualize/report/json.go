// The views as JSON, for programs. The package comment documents the fields; they are only ever added to.

package report

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/weigh"
)

type jsonReport struct {
	View       View      `json:"view"`
	Command    []string  `json:"command"`
	DurationNs int64     `json:"duration_ns"`
	Started    string    `json:"started"`
	ExitStatus int       `json:"exit_status"`
	ExitSignal int       `json:"exit_signal"`
	CPU        jsonCPU   `json:"cpu"`
	Doubt      jsonDoubt `json:"doubt"`
	Cost       jsonCost  `json:"cost"`

	Functions *[]jsonFunction `json:"functions,omitempty"`
	Places    *[]jsonPlace    `json:"places,omitempty"`
	Edges     *[]jsonEdge     `json:"edges,omitempty"`
	*jsonBlame
	Sites     *[]jsonSite   `json:"sites,omitempty"`
	Threads   *[]jsonThread `json:"threads,omitempty"`
	Storage   *jsonStorage  `json:"storage,omitempty"`
	SelfCheck *selfCheck    `json:"self_check,omitempty"`
}

type jsonCPU struct {
	UsedNs      int64 `json:"used_ns"` // -1 unknown
	AccountedNs int64 `json:"accounted_ns"`
	UnsampledNs int64 `json:"unsampled_ns"`
	LateNs      int64 `json:"late_ns"`   // by samples taken at the call after the work
	SharedNs    int64 `json:"shared_ns"` // noticed so late, and shared out over samples of the same runs of work
}

type jsonDoubt struct {
	Samples             int64    `json:"samples"`
	Stacks              uint64   `json:"stacks"`
	NoStack             uint64   `json:"no_stack"`
	Cut                 uint64   `json:"cut"`
	Guessed             uint64   `json:"guessed"`
	Omitted             uint64   `json:"omitted"`
	Unsymbolised        uint64   `json:"unsymbolised"`
	Lost                uint64   `json:"lost"`
	Overwritten         uint64   `json:"overwritten"`
	Broken              uint64   `json:"broken"`
	Gaps                uint64   `json:"gaps"`
	ThreadsUnrecorded   uint64   `json:"threads_unrecorded"`
	ProcessesUnrecorded uint64   `json:"processes_unrecorded"`
	ProcessesRefused    uint64   `json:"processes_refused"`
	SignalsSent         uint64   `json:"signals_sent"`
	SignalsFailed       uint64   `json:"signals_failed"`
	Ticks               uint64   `json:"ticks"`
	TicksMissed         uint64   `json:"ticks_missed"`
	WaitsFolded         uint64   `json:"waits_folded"`
	WaitsUnfollowed     uint64   `json:"waits_unfollowed"`
	ExactNs             int64    `json:"exact_ns"`
	SampledNs           int64    `json:"sampled_ns"`
	UnknownNs           int64    `json:"unknown_ns"`
	Complete            bool     `json:"complete"`
	Notes               []string `json:"notes"`
}

type jsonCost struct {
	CollectorNs int64 `json:"collector_ns"`
	SamplerNs   int64 `json:"sampler_ns"`
}

type jsonFunction struct {
	Function     string `json:"function"`
	Module       string `json:"module"`
	SelfNs       int64  `json:"self_ns"`
	CumulativeNs int64  `json:"cumulative_ns"`
	Symbolised   bool   `json:"symbolised"`
}

type jsonPlace struct {
	Function string       `json:"function"`
	Call     string       `json:"call"`
	Kind     string       `json:"kind"`
	TotalNs  int64        `json:"total_ns"`
	MaxNs    int64        `json:"max_ns"`
	Count    uint64       `json:"count"`
	Open     uint64       `json:"open"`
	Stack    []string     `json:"stack"`
	EndedBy  []jsonEnding `json:"ended_by"`
}

type jsonEnding struct {
	Thread  *jsonWho `json:"thread"`
	Count   uint64   `json:"count"`
	Certain uint64   `json:"certain"`
	TotalNs int64    `json:"total_ns"`
}

type jsonWho struct {
	Thread trace.ThreadID `json:"thread"`
	PID    int            `json:"pid"`
	TID    int            `json:"tid"`
	Name   string         `json:"name"`
}

type jsonSite struct {
	Function     string   `json:"function"`
	Objects      int64    `json:"objects"`
	AllocBytes   int64    `json:"alloc_bytes"`
	InuseObjects int64    `json:"inuse_objects"`
	InuseBytes   int64    `json:"inuse_bytes"`
	Stack        []string `json:"stack"`
}

type jsonThread struct {
	jsonWho
	CPUNs        int64  `json:"cpu_ns"`
	SampledCPUNs int64  `json:"sampled_cpu_ns"`
	LockNs       int64  `json:"lock_ns"`
	WaitNs       int64  `json:"wait_ns"`
	CallNs       int64  `json:"call_ns"`
	Samples      uint64 `json:"samples"`
	AllocObjects uint64 `json:"alloc_objects"`
	AllocBytes   uint64 `json:"alloc_bytes"`
	Lost         uint64 `json:"lost"`
	ExactNs      int64  `json:"exact_ns"`
	SampledNs    int64  `json:"sampled_ns"`
	UnknownNs    int64  `json:"unknown_ns"`
}

type jsonStorage struct {
	Records     uint64            `json:"records"`
	RecordBytes uint64            `json:"record_bytes"`
	Events      uint64            `json:"events"`
	EventBytes  uint64            `json:"event_bytes"`
	Nodes       uint64            `json:"nodes"`
	Kinds       map[string]uint64 `json:"kinds"`

	Samples        uint64 `json:"samples"`
	SampleEvents   uint64 `json:"sample_events"`
	SampleBytes    uint64 `json:"sample_bytes"`
	NodesCap       uint64 `json:"nodes_cap"`
	NodeBytes      uint64 `json:"node_bytes"`
	NodesCollected uint64 `json:"nodes_collected"`
	HistoryBytes   uint64 `json:"history_bytes"`
	HistoryNs      uint64 `json:"history_ns"`
}

func (f *facts) writeJSON(w io.Writer, view View, o Options) error {
	r := f.jsonHead(view)
	all := view == ViewSummary
	cut := func(n int) int {
		if o.Top > 0 {
			return min(n, o.Top)
		}
		return n
	}
	if all || view == ViewCPU {
		list := []jsonFunction{}
		sums := f.byFunction(weigh.CPU)
		for _, s := range sums[:cut(len(sums))] {
			list = append(list, jsonFunction{s.name, f.moduleName(s.module), s.self, s.cum, s.symbolised})
		}
		r.Functions = &list
	}
	if all || view == ViewBlocked {
		list := []jsonPlace{}
		for _, b := range f.blocks[:cut(len(f.blocks))] {
			kind := "call"
			if b.wait {
				kind = f.kind(b.at.hook)
			}
			list = append(list, jsonPlace{f.culprit(b.at), f.hook(b.at.hook), kind, b.total, b.max, b.count, b.open, f.stack(b.at), f.jsonEndings(b)})
		}
		r.Places = &list
	}
	if all || view == ViewLocks {
		list := []jsonEdge{}
		for _, e := range f.edges[:cut(len(f.edges))] {
			list = append(list, f.jsonEdge(e))
		}
		r.Edges = &list
		r.jsonBlame = f.jsonBlame(cut)
	}
	if all || view == ViewAlloc {
		list := f.jsonSites()
		list = list[:cut(len(list))]
		r.Sites = &list
	}
	if all || view == ViewThreads {
		list := []jsonThread{}
		for _, t := range f.order[:cut(len(f.order))] {
			list = append(list, jsonThread{
				f.identity(t.ID), t.Thread.CPU, t.cpu, t.locked, t.waited, t.called, t.samples, t.AllocObjects, t.AllocBytes,
				max(t.lost, t.Lost), t.cover.Exact, t.cover.Sampled, t.cover.Unknown,
			})
		}
		r.Threads = &list
	}
	r.SelfCheck = f.checked
	if all || view == ViewStorage {
		s := f.stats
		r.Storage = &jsonStorage{
			s.Records, s.RecordBytes, s.Events, s.EventBytes, s.Nodes, map[string]uint64{},
			s.Samples, s.SampleEvents, s.SampleBytes, s.NodesCap, s.NodeBytes, s.NodesCollected, s.HistoryBytes, s.HistoryNs,
		}
		for k, n := range f.kinds {
			if n > 0 {
				r.Storage.Kinds[kindNames[k]] = n
			}
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // operator<< is easier to read than its escapes, and nobody puts this into HTML
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

func (f *facts) jsonHead(view View) *jsonReport {
	s, d := f.stats, &f.weights.Doubt
	used, known := f.cpuUsed()
	if !known {
		used = -1
	}
	exact, sampled, unknown := f.covered()
	r := &jsonReport{
		View: view, Command: []string{}, DurationNs: f.duration(), Started: f.meta.Started.UTC().Format(time.RFC3339Nano),
		ExitStatus: f.meta.ExitStatus, ExitSignal: f.meta.ExitSignal,
		CPU: jsonCPU{used, f.weights.Total[weigh.CPU], d.TailCPU, d.LateCPU, d.SharedCPU},
		Doubt: jsonDoubt{
			Samples: f.weights.Total[weigh.Samples], Stacks: d.Stacks, NoStack: d.NoStack, Cut: d.Cut, Guessed: d.Guessed,
			Omitted: d.Omitted, Unsymbolised: d.Unsymbolised, Lost: f.lost(), Overwritten: s.Overwritten, Broken: s.Broken,
			Gaps: s.Gaps, ThreadsUnrecorded: s.ThreadsUnslotted, ProcessesUnrecorded: s.ProcsUnslotted,
			ProcessesRefused: s.ProcsRefused, SignalsSent: s.SignalsSent, SignalsFailed: s.SignalsFailed,
			Ticks: s.Ticks, TicksMissed: s.TicksMissed, WaitsFolded: f.folded, WaitsUnfollowed: f.unfollowed(),
			ExactNs: exact, SampledNs: sampled, UnknownNs: unknown, Complete: s.Complete, Notes: []string{},
		},
		Cost: jsonCost{int64(s.CollectorCPU), int64(s.SamplerCPU)},
	}
	r.Command = append(r.Command, f.meta.Command...)
	for _, n := range f.unseen() {
		r.Doubt.Notes = append(r.Doubt.Notes, strings.ToValidUTF8(n, "\uFFFD"))
	}
	return r
}

// who names a thread; nil for an unknown one.
func (f *facts) who(id trace.ThreadID) *jsonWho {
	if id == 0 {
		return nil
	}
	w := f.identity(id)
	return &w
}

func (f *facts) identity(id trace.ThreadID) jsonWho {
	w := jsonWho{Thread: id}
	if t := f.threads[id]; t != nil {
		w.TID, w.Name = t.TID, t.Name
		if p := f.procs[t.Proc]; p != nil {
			w.PID = p.PID
		}
	}
	return w
}

func (f *facts) jsonSites() []jsonSite {
	list := []jsonSite{}
	for i := range f.weights.Rows {
		r := &f.weights.Rows[i]
		if r.Values[weigh.AllocSpace] == 0 && r.Values[weigh.AllocObjects] == 0 {
			continue
		}
		at := site{r.Stack, r.Hook}
		list = append(list, jsonSite{
			f.culprit(at), r.Values[weigh.AllocObjects], r.Values[weigh.AllocSpace],
			r.Values[weigh.InuseObjects], r.Values[weigh.InuseSpace], f.stack(at),
		})
	}
	slices.SortStableFunc(list, func(a, b jsonSite) int { return int(max(-1, min(1, b.AllocBytes-a.AllocBytes))) })
	return list
}

func (f *facts) jsonEndings(b *block) []jsonEnding {
	list := []jsonEnding{}
	for _, x := range b.endings() {
		list = append(list, jsonEnding{f.who(x.by), x.count, x.certain, x.total})
	}
	return list
}
