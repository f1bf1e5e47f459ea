// The views as JSON, for programs. The package comment documents the fields; they are only ever added to.

package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// jsonHead is what all views have.
type jsonHead struct {
	View       View           `json:"view"`
	Command    []string       `json:"command"`
	DurationNs int64          `json:"duration_ns"`
	Started    string         `json:"started"`
	ExitStatus int            `json:"exit_status"`
	ExitSignal int            `json:"exit_signal"`
	CPU        jsonCPU        `json:"cpu"`
	Doubt      jsonDoubt      `json:"doubt"`
	Cost       jsonCost       `json:"cost"`
	Attached   []jsonAttached `json:"attached,omitempty"` // programs that ran already
}

type jsonCPU struct {
	UsedNs      int64 `json:"used_ns"` // -1 unknown
	AccountedNs int64 `json:"accounted_ns"`
	UnsampledNs int64 `json:"unsampled_ns"`
	OutsideNs   int64 `json:"outside_ns"`      // in no recorded thread's clock: starts and ends in the kernel, children of vfork
	LateNs      int64 `json:"late_ns"`         // by samples taken at the call after the work
	SharedNs    int64 `json:"shared_ns"`       // noticed so late, and shared out over samples of the same runs of work
	UnnamedNs   int64 `json:"unsymbolised_ns"` // self time of functions without a symbol
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
	WaitsEstimated      uint64   `json:"waits_estimated"`
	ExactNs             int64    `json:"exact_ns"`
	SampledNs           int64    `json:"sampled_ns"`
	UnknownNs           int64    `json:"unknown_ns"`
	Complete            bool     `json:"complete"`
	Notes               []string `json:"notes"`

	UnrecordedPrograms []jsonUnrecorded `json:"unrecorded_programs"`
}

// jsonUnrecorded is a program of which processes were not recorded. Counts and times are lower bounds.
type jsonUnrecorded struct {
	Program   string `json:"program"`
	Reason    string `json:"reason"`
	Processes uint64 `json:"processes"`
	CPUNs     int64  `json:"cpu_ns"`
}

type jsonCost struct {
	CollectorNs int64    `json:"collector_ns"`
	SamplerNs   int64    `json:"sampler_ns"`
	AgentNs     int64    `json:"agent_ns"`         // in the program, a part of its CPU time
	Detail      []string `json:"detail,omitempty"` // what --budget gave up, and for how long
}

type jsonFunction struct {
	Function     string `json:"function"`
	Module       string `json:"module"`
	SelfNs       int64  `json:"self_ns"`
	CumulativeNs int64  `json:"cumulative_ns"`
	Symbolised   bool   `json:"symbolised"`
	File         string `json:"file"`
	Line         int    `json:"line"`
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
	File     string       `json:"file"`
	Line     int          `json:"line"`
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
	File         string   `json:"file"`
	Line         int      `json:"line"`
}

type jsonThread struct {
	jsonWho
	CPUNs        int64 `json:"cpu_ns"`
	SampledCPUNs int64 `json:"sampled_cpu_ns"`
	ReadyNs      int64 `json:"ready_ns"` // runnable without a CPU
	LockNs       int64 `json:"lock_ns"`
	WaitNs       int64 `json:"wait_ns"`
	CallNs       int64 `json:"call_ns"`
	// Time in each state, and CPU time for which the thread's time has no room.
	StatesNs     map[string]int64 `json:"states_ns"`
	UnplacedNs   int64            `json:"unplaced_cpu_ns"`
	Samples      uint64           `json:"samples"`
	AllocObjects uint64           `json:"alloc_objects"`
	AllocBytes   uint64           `json:"alloc_bytes"`
	Lost         uint64           `json:"lost"`
	ExactNs      int64            `json:"exact_ns"`
	SampledNs    int64            `json:"sampled_ns"`
	UnknownNs    int64            `json:"unknown_ns"`
	// Who created it, and when, ns from the recording's start.
	Parent  *jsonWho `json:"parent"`
	StartNs int64    `json:"start_ns"`
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

// jsonObject writes an object's members as they come: lists of a long recording's stacks are larger, as text, than memory
// should be.
type jsonObject struct {
	w   *bufio.Writer
	b   bytes.Buffer
	enc *json.Encoder
	err error
}

func newJSONObject(w io.Writer) *jsonObject {
	j := &jsonObject{w: bufio.NewWriterSize(w, 64<<10)}
	j.enc = json.NewEncoder(&j.b)
	j.enc.SetEscapeHTML(false) // operator<< is easier to read than its escapes, and nobody puts this into HTML
	return j
}

// text is v, indented as at a depth. It is valid until the next one.
func (j *jsonObject) text(v any, depth int) []byte {
	j.b.Reset()
	j.enc.SetIndent("  "[:depth], " ")
	if err := j.enc.Encode(v); err != nil && j.err == nil {
		j.err = err
	}
	return bytes.TrimSuffix(j.b.Bytes(), []byte{'\n'})
}

// head begins the object with the members of a struct.
func (j *jsonObject) head(v any) { j.w.Write(bytes.TrimSuffix(j.text(v, 0), []byte("\n}"))) }

// member writes one more member.
func (j *jsonObject) member(name string, v any) {
	fmt.Fprintf(j.w, ",\n %q: ", name)
	j.w.Write(j.text(v, 1))
}

// list writes a member that is a list of n.
func (j *jsonObject) list(name string, n int, at func(int) any) {
	fmt.Fprintf(j.w, ",\n %q: [", name)
	for i := range n {
		if i > 0 {
			j.w.WriteByte(',')
		}
		j.w.WriteString("\n  ")
		j.w.Write(j.text(at(i), 2))
	}
	if n > 0 {
		j.w.WriteString("\n ")
	}
	j.w.WriteByte(']')
}

// end writes the brace.
func (j *jsonObject) end() error {
	j.w.WriteString("\n}\n")
	return cmp.Or(j.err, j.w.Flush())
}

func (f *facts) writeJSON(w io.Writer, view View, o Options) error {
	j := newJSONObject(w)
	j.head(f.jsonHead(view))
	all := view == ViewSummary
	cut := func(n int) int {
		if o.Top > 0 {
			return min(n, o.Top)
		}
		return n
	}
	if all || view == ViewCPU {
		sums := f.byFunction(weigh.CPU)
		if o.Sort == SortCumulative {
			byCumulative(sums)
		}
		f.locate(sums, weigh.CPU)
		j.list("functions", cut(len(sums)), func(i int) any {
			s := sums[i]
			return jsonFunction{s.name, f.moduleName(s.module), s.self, s.cum, s.symbolised, s.file, s.line}
		})
	}
	if all || view == ViewBlocked {
		j.list("places", cut(len(f.blocks)), func(i int) any {
			b := f.blocks[i]
			kind := "call"
			if b.wait {
				kind = f.kind(b.at.Hook)
			}
			at := f.culpritAt(b.at)
			return jsonPlace{at.Func, f.hook(b.at.Hook), kind, b.total, b.max, b.count, b.open, f.stack(b.at), f.jsonEndings(b), at.File, at.Line}
		})
	}
	if all || view == ViewLocks {
		j.list("edges", cut(len(f.edges)), func(i int) any { return f.jsonEdge(f.edges[i]) })
		f.jsonBlame(j, cut)
	}
	if all || view == ViewAlloc {
		rows := f.allocRows()
		j.list("sites", cut(len(rows)), func(i int) any { return f.jsonSite(rows[i]) })
	}
	if all || view == ViewThreads {
		j.list("threads", cut(len(f.order)), func(i int) any {
			t := f.order[i]
			return jsonThread{
				f.identity(t.ID), t.Thread.CPU, t.cpu, t.ready, t.locked(), t.waited(), t.called(), f.states(t), t.unplaced, t.samples, t.AllocObjects, t.AllocBytes,
				max(t.lost, t.Lost), t.cover.Exact, t.cover.Sampled, t.cover.Unknown,
				f.who(t.Parent), max(0, int64(t.Start-f.meta.StartNs)),
			}
		})
	}
	if all || view == ViewStorage {
		s := f.stats
		storage := &jsonStorage{
			s.Records, s.RecordBytes, s.Events, s.EventBytes, s.Nodes, map[string]uint64{},
			s.Samples, s.SampleEvents, s.SampleBytes, s.NodesCap, s.NodeBytes, s.NodesCollected, s.HistoryBytes, s.HistoryNs,
		}
		for k, n := range f.kinds {
			if n > 0 {
				storage.Kinds[kindNames[k]] = n
			}
		}
		j.member("storage", storage)
	}
	if view == ViewTree {
		v, _ := o.value()
		j.member("value", v.String())
		j.member("unit", v.Unit())
		j.member("tree", f.tree(v))
	}
	if f.checked != nil {
		j.member("self_check", f.checked)
	}
	return j.end()
}

func (f *facts) jsonHead(view View) *jsonHead {
	s, d := f.stats, &f.weights.Doubt
	used, known := f.cpuUsed()
	if !known {
		used = -1
	}
	exact, sampled, unknown := f.covered()
	r := &jsonHead{
		View: view, Command: []string{}, DurationNs: f.duration(), Started: f.meta.Started.UTC().Format(time.RFC3339Nano),
		ExitStatus: f.meta.ExitStatus, ExitSignal: f.meta.ExitSignal,
		CPU: jsonCPU{used, f.weights.Total[weigh.CPU], d.TailCPU, f.cpuAccount().outside, d.LateCPU, d.SharedCPU, f.unnamedCPU()},
		Doubt: jsonDoubt{
			Samples: f.weights.Total[weigh.Samples], Stacks: d.Stacks, NoStack: d.NoStack, Cut: d.Cut, Guessed: d.Guessed,
			Omitted: d.Omitted, Unsymbolised: d.Unsymbolised, Lost: f.lost(), Overwritten: s.Overwritten, Broken: s.Broken,
			Gaps: s.Gaps, ThreadsUnrecorded: s.ThreadsUnslotted, ProcessesUnrecorded: s.ProcsUnslotted + f.unrecorded(),
			ProcessesRefused: s.ProcsRefused, SignalsSent: s.SignalsSent, SignalsFailed: s.SignalsFailed,
			Ticks: s.Ticks, TicksMissed: s.TicksMissed, WaitsFolded: f.folded, WaitsUnfollowed: f.unfollowed(), WaitsEstimated: f.estimated(),
			ExactNs: exact, SampledNs: sampled, UnknownNs: unknown, Complete: s.Complete, Notes: []string{},
		},
		Cost:     jsonCost{int64(s.CollectorCPU), int64(s.SamplerCPU), int64(s.AgentCPU), f.givenUp()},
		Attached: f.jsonAttached(),
	}
	r.Command = append(r.Command, f.meta.Command...)
	r.Doubt.UnrecordedPrograms = []jsonUnrecorded{}
	for _, u := range s.Unrecorded {
		r.Doubt.UnrecordedPrograms = append(r.Doubt.UnrecordedPrograms, jsonUnrecorded{
			strings.ToValidUTF8(u.Program, "\uFFFD"), u.Reason, u.Count, int64(u.CPU),
		})
	}
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
	if t := f.threads.Get(id); t != nil {
		w.TID, w.Name = t.TID, t.Name
		if p := f.procs[t.Proc]; p != nil {
			w.PID = p.PID
		}
	}
	return w
}

// states are how much time a thread was in each state, by the states' labels.
func (f *facts) states(t *threadFacts) map[string]int64 {
	out := map[string]int64{}
	for s, ns := range t.states {
		if ns > 0 {
			out[weigh.State(s).Label()] = ns
		}
	}
	return out
}

// allocRows are the rows with allocations, those of the most bytes first.
func (f *facts) allocRows() []*weigh.Row {
	var rows []*weigh.Row
	for i := range f.weights.Rows {
		if r := &f.weights.Rows[i]; r.Values[weigh.AllocSpace] != 0 || r.Values[weigh.AllocObjects] != 0 {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b *weigh.Row) int { return cmp.Compare(b.Values[weigh.AllocSpace], a.Values[weigh.AllocSpace]) })
	return rows
}

func (f *facts) jsonSite(r *weigh.Row) jsonSite {
	at := trace.Site{Stack: r.Stack, Hook: r.Hook}
	place := f.culpritAt(at)
	return jsonSite{
		place.Func, r.Values[weigh.AllocObjects], r.Values[weigh.AllocSpace],
		r.Values[weigh.InuseObjects], r.Values[weigh.InuseSpace], f.stack(at), place.File, place.Line,
	}
}

func (f *facts) jsonEndings(b *block) []jsonEnding {
	list := []jsonEnding{}
	for _, x := range b.endings() {
		list = append(list, jsonEnding{f.who(x.by), x.count, x.certain, x.total})
	}
	return list
}
