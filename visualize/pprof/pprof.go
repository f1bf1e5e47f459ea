// Package pprof writes a recording as a pprof profile: CPU, wall and blocked time, lock contention and allocations of
// each distinct stack. What counts as what is package weigh's to say; this one makes mappings, locations, labels and
// the comments that tell how far to trust the profile (go tool pprof -comments); holders.go adds lock contention by holder.
package pprof

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/pprof/profile"
	"github.com/klauspost/compress/gzip"

	"github.com/hbtrace/hbtrace/analysis/feed"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/stored"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Options for Write and Profile. The zero value takes everything that was recorded.
type Options struct {
	Values   []weigh.Value // sample types wanted; nil: all that were recorded
	NoLabels bool          // one sample per stack: smaller, no -tagfocus

	maxSamples int // for tests; 0: the constant
}

// Write writes src to w as a gzipped profile: as it was stored in src (Part), or made of the events. Errors are those of src
// and w.
func Write(w io.Writer, src trace.Source, o Options) error {
	if p := stored.Of(src, partVersion, stored.Profile)[0]; p != nil && o.whole() {
		if _, err := w.Write(p); err != nil {
			return fmt.Errorf("pprof: writing the profile: %w", err)
		}
		return nil
	}
	p, err := Profile(src, o)
	if err != nil {
		return err
	}
	return writeTo(w, p)
}

// WriteWeighed is Write of events that have been added to what Weights made of the same source and options.
func WriteWeighed(w io.Writer, src trace.Source, c *weigh.Collector, o Options) error {
	p, err := Weighed(src, c, o)
	if err != nil {
		return err
	}
	return writeTo(w, p)
}

func writeTo(w io.Writer, p *profile.Profile) error {
	z := gzip.NewWriter(w) // several times as fast as Profile.Write's
	if err := p.WriteUncompressed(z); err != nil {
		return fmt.Errorf("pprof: writing the profile: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("pprof: writing the profile: %w", err)
	}
	return nil
}

// whole says whether options leave nothing out: what is stored is made with such.
func (o Options) whole() bool { return o.Values == nil && !o.NoLabels && o.maxSamples == 0 }

// partVersion changes when what a recording's profile has does.
const partVersion = 2

// Part is a profile that Write made with Options{}, for the recording: a source that has it is not read again for one.
func Part(gzipped []byte) stored.Part {
	return stored.Part{Number: stored.Profile, Version: partVersion, Bytes: gzipped}
}

type writer struct {
	src   trace.Source
	tab   *frames.Table
	p     *profile.Profile
	procs map[trace.ProcID]*trace.Process
	thr   map[trace.ThreadID]*trace.Thread
	maps  map[trace.ModuleID]*profile.Mapping
	funcs map[string]*profile.Function // name + "\x00" + linkage + "\x00" + file
	nodes map[place]*profile.Location
	named map[string]*profile.Location
	// Samples of one stack, or of one set of labels, share their slice or maps.
	stacks map[trace.Site][]*profile.Location
	labels map[labelKey]labelSet
	lock   *weigh.Locking
	hooks  map[string]trace.HookID // by name
}

type labelKey struct {
	thread trace.ThreadID
	proc   trace.ProcID
	object uint64
	kind   weigh.Kind
	state  string
}

type labelSet struct {
	str map[string][]string
	num map[string][]int64
}

// place is what makes two nodes one location.
type place struct {
	module trace.ModuleID
	lookup uint64
	mark   bool
}

// Profile makes the profile in memory, which holds as much as there are distinct stacks and labels. Samples may share
// label maps and location slices: copy the profile before changing them. A profile needs a sample type: with nothing
// recorded that weighs anything it has cpu, and no samples.
func Profile(src trace.Source, o Options) (*profile.Profile, error) {
	if data := stored.Of(src, partVersion, stored.Profile)[0]; data != nil && o.whole() {
		if p, err := profile.ParseData(data); err == nil {
			return p, nil
		}
	}
	c := Weights(src, o)
	if err := feed.Batches(src, c.AddBatch); err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	return Weighed(src, c, o)
}

// Weighed is Profile of events that have been added to what Weights made of the same source and options.
func Weighed(src trace.Source, c *weigh.Collector, o Options) (*profile.Profile, error) {
	t := c.Table()
	if len(t.Values) == 0 {
		t.Values = []weigh.Value{weigh.CPU}
	}
	w := &writer{
		src: src, tab: t.Frames, p: &profile.Profile{},
		procs: map[trace.ProcID]*trace.Process{}, thr: map[trace.ThreadID]*trace.Thread{},
		maps: map[trace.ModuleID]*profile.Mapping{}, funcs: map[string]*profile.Function{},
		nodes: map[place]*profile.Location{}, named: map[string]*profile.Location{},
		stacks: map[trace.Site][]*profile.Location{}, labels: map[labelKey]labelSet{},
	}
	ps, ts := src.Processes(), src.Threads()
	for i := range ps {
		w.procs[ps[i].ID] = &ps[i]
	}
	for i := range ts {
		w.thr[ts[i].ID] = &ts[i]
	}
	w.lock, w.hooks = weigh.NewLocking(src.Meta(), t.Frames), map[string]trace.HookID{}
	for id, h := range src.Meta().Hooks {
		if old, ok := w.hooks[h.Name]; !ok || id < old {
			w.hooks[h.Name] = id
		}
	}
	w.header(t)
	w.mappings()
	for i := range t.Rows {
		w.sample(t, &t.Rows[i], o)
	}
	if wantsHolders(t, o) {
		if err := w.holders(t, o); err != nil {
			return nil, fmt.Errorf("pprof: %w", err)
		}
	}
	w.p.Comments = append(w.p.Comments, comments(src, t)...)
	if dropped := droppedBy(t.By, o); dropped != "" {
		w.p.Comments = append(w.p.Comments, "labels left out, because there were too many distinct ones: "+dropped)
	}
	if err := w.p.CheckValid(); err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	return w.p, nil
}

// maxSamples bounds memory: a sample takes about 1.3 KB until the profile is written.
const maxSamples = 300_000

const allLabels = weigh.ByThread | weigh.ByProcess | weigh.ByObject | weigh.ByKind

// Weights takes src's events, all and in order, for Weighed: for who reads them for more than a profile. It keeps apart as many
// labels as maxSamples allows; the distinct stacks themselves are never cut.
func Weights(src trace.Source, o Options) *weigh.Collector {
	if o.NoLabels {
		return weigh.NewCollector(src, weigh.Options{Values: o.Values})
	}
	return weigh.NewCollector(src, weigh.Options{
		Values: o.Values, By: allLabels, MaxRows: cmp.Or(o.maxSamples, maxSamples),
		Fewer: []weigh.By{allLabels &^ weigh.ByThread, weigh.ByProcess | weigh.ByKind, 0},
	})
}

// droppedBy names the labels that were wanted and are not kept apart.
func droppedBy(by weigh.By, o Options) string {
	switch {
	case o.NoLabels, by == allLabels:
		return ""
	case by == allLabels&^weigh.ByThread:
		return "thread, tid"
	case by == weigh.ByProcess|weigh.ByKind:
		return "thread, tid, lock"
	}
	return "all"
}

func (w *writer) header(t *weigh.Table) {
	m := w.src.Meta()
	for _, v := range t.Values {
		w.p.SampleType = append(w.p.SampleType, &profile.ValueType{Type: v.String(), Unit: v.Unit()})
	}
	w.p.DefaultSampleType = defaultValue(t).String()
	w.p.PeriodType = &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	if m.Freq > 0 {
		w.p.Period = int64(1e9) / int64(m.Freq)
	}
	if !m.Started.IsZero() {
		w.p.TimeNanos = m.Started.UnixNano()
	}
	w.p.DurationNanos = max(int64(m.EndNs-m.StartNs), 0)
}

// defaultValue is what go tool pprof shows when it is not told: CPU time, or blocked time where there is none.
func defaultValue(t *weigh.Table) weigh.Value {
	order := []weigh.Value{weigh.CPU, weigh.Blocked, weigh.AllocSpace}
	for _, v := range order {
		if t.Total[v] != 0 && slices.Contains(t.Values, v) {
			return v
		}
	}
	for _, v := range order {
		if slices.Contains(t.Values, v) {
			return v
		}
	}
	return t.Values[0]
}

// pythonMapping is the mapping of all functions of Python, which lie in no file of code.
const pythonMapping = "[python]"

// mappings makes one per module, and one for all functions of Python. pprof takes the first for the program, so the first process's executable leads.
func (w *writer) mappings() {
	mods := slices.Clone(w.src.Modules())
	exe := ""
	if ps := w.src.Processes(); len(ps) > 0 {
		exe = ps[0].Exe
	}
	if i := slices.IndexFunc(mods, func(m trace.Module) bool { return exe != "" && m.Path == exe }); i > 0 {
		m := mods[i]
		mods = slices.Insert(slices.Delete(mods, i, i+1), 0, m)
	}
	var python *profile.Mapping
	for i := range mods {
		m := &mods[i]
		if w.maps[m.ID] != nil {
			continue
		}
		if m.Kind == trace.ModulePython && python != nil {
			w.maps[m.ID] = python
			continue
		}
		file := frames.Valid(m.Path)
		if m.Kind == trace.ModuleAnon && file == "" {
			file = "[anon]"
		}
		if m.Kind == trace.ModulePython {
			file = pythonMapping
		}
		x := &profile.Mapping{
			ID: uint64(len(w.p.Mapping) + 1), Start: m.Lo, Limit: m.Hi, File: file, BuildID: m.BuildID,
			// Symbols are in the profile: pprof need not, and on another machine could not, look for the file.
			HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true,
		}
		// pprof looks code up there to disassemble it. A mapping that begins anywhere else than its rules for segments have it is
		// taken for another file's, and nothing is found in it.
		if t := m.Code; t.Hi != 0 {
			x.Start, x.Limit, x.Offset = m.Bias+t.Lo, m.Bias+t.Hi, t.Offset
		}
		if m.Kind == trace.ModulePython {
			python = x
		}
		w.maps[m.ID] = x
		w.p.Mapping = append(w.p.Mapping, x)
	}
}

func (w *writer) sample(t *weigh.Table, r *weigh.Row, o Options) {
	s := &profile.Sample{Value: make([]int64, len(t.Values))}
	for i, v := range t.Values {
		s.Value[i] = r.Values[v]
	}
	s.Location = w.stack(t, &r.Key)
	if !o.NoLabels {
		l := w.label(&r.Key)
		s.Label, s.NumLabel = l.str, l.num
	}
	w.p.Sample = append(w.p.Sample, s)
}

// stack returns a row's locations, leaf first.
func (w *writer) stack(t *weigh.Table, k *weigh.Key) []*profile.Location {
	key := trace.Site{Stack: k.Stack, Hook: k.Hook}
	if l, ok := w.stacks[key]; ok && k.Stack != 0 {
		return l
	}
	path := t.Frames.Path(nil, k.Stack)
	ls := make([]*profile.Location, 0, len(path)+1)
	if k.Hook != 0 {
		ls = append(ls, w.synthetic(frames.HookName(w.src.Meta(), k.Hook)))
	}
	for i := len(path) - 1; i >= 0; i-- {
		ls = append(ls, w.location(path[i]))
	}
	switch {
	case len(path) > 0:
		w.stacks[key] = ls
	case frames.Begins(w.src.Meta(), k.Hook):
	case k.Routine != (trace.Addr{}):
		ls = append(ls, w.synthetic(t.Frames.Address(k.Routine.Module, k.Routine.Off)))
	default:
		ls = append(ls, w.synthetic(weigh.NoStack))
	}
	return ls
}

func (w *writer) label(k *weigh.Key) labelSet {
	key := labelKey{k.Thread, k.Proc, k.Object, k.Kind, w.state(k)}
	if l, ok := w.labels[key]; ok {
		return l
	}
	l := labelSet{map[string][]string{}, map[string][]int64{}}
	if k.Kind != "" {
		l.str["kind"] = []string{string(k.Kind)}
	}
	if key.state != "" {
		l.str["state"] = []string{key.state}
	}
	if t := w.thr[k.Thread]; t != nil {
		if t.Name != "" {
			l.str["thread"] = []string{frames.Valid(t.Name)}
		}
		l.num["tid"] = []int64{int64(t.TID)}
	}
	if p := w.procs[k.Proc]; p != nil {
		if p.Exe != "" {
			l.str["process"] = []string{frames.Valid(filepath.Base(p.Exe))}
		}
		l.num["pid"] = []int64{int64(p.PID)}
	}
	if k.Object != 0 {
		lock := w.tab.Variable(k.Object)
		if lock == "" {
			lock = "0x" + strconv.FormatUint(k.Object, 16)
		}
		l.str["lock"] = []string{lock}
	}
	w.labels[key] = l
	return l
}

// state is what a thread did at a row: running, lock, signal, io, poll, process or sleep; "" where it is of no time.
func (w *writer) state(k *weigh.Key) string {
	kind := trace.KindCall
	switch k.Kind {
	case weigh.KindCPU, weigh.KindTail:
		return weigh.Running.Label()
	case weigh.KindWait:
		kind = trace.KindWait
	case weigh.KindCall:
	default:
		return ""
	}
	hook := k.Hook
	if hook == 0 && w.tab.Valid(k.Stack) { // the leaf is the hooked function itself
		at := w.tab.Of(k.Stack)
		leaf := w.tab.Frame(at[len(at)-1].ID)
		if hook = w.hooks[leaf.Name]; hook == 0 {
			hook = w.hooks[leaf.Linkage]
		}
	}
	return weigh.StateOf(kind, w.src.Meta().Hooks[hook], kind == trace.KindWait && w.lock.Wait(hook, k.Stack)).Label()
}

// location returns a node's location with the functions inlined there as lines, innermost first.
func (w *writer) location(id trace.StackID) *profile.Location {
	n := w.src.Node(id)
	key := place{n.Addr.Module, n.Lookup(), n.How == trace.HowMark}
	if key.mark {
		return w.synthetic(w.tab.Frame(w.tab.Of(id)[0].ID).Name)
	}
	if l := w.nodes[key]; l != nil {
		return l
	}
	l := w.add(&profile.Location{Address: key.lookup, Mapping: w.maps[key.module]})
	if m := w.tab.Module(key.module); m != nil && m.Kind == trace.ModulePython {
		l.Address |= uint64(key.module) << 32 // lines of functions: no two places have one address
	} else if m != nil && m.Kind != trace.ModuleAnon {
		l.Address += m.Bias
	}
	at := w.tab.Of(id)
	for i := len(at) - 1; i >= 0; i-- {
		f := w.tab.Frame(at[i].ID)
		l.Line = append(l.Line, profile.Line{Function: w.function(f.Name, f.Linkage, f.File), Line: int64(at[i].Line)})
	}
	w.nodes[key] = l
	return l
}

// synthetic returns a location that is no address: a hooked function, or a note.
func (w *writer) synthetic(name string) *profile.Location {
	if l := w.named[name]; l != nil {
		return l
	}
	l := w.add(&profile.Location{Line: []profile.Line{{Function: w.function(name, "", "")}}})
	w.named[name] = l
	return l
}

func (w *writer) add(l *profile.Location) *profile.Location {
	l.ID = uint64(len(w.p.Location) + 1)
	w.p.Location = append(w.p.Location, l)
	return l
}

func (w *writer) function(name, linkage, file string) *profile.Function {
	if linkage == "" {
		linkage = name
	}
	key := name + "\x00" + linkage + "\x00" + file
	f := w.funcs[key]
	if f == nil {
		f = &profile.Function{ID: uint64(len(w.p.Function) + 1), Name: name, SystemName: linkage, Filename: file}
		w.funcs[key] = f
		w.p.Function = append(w.p.Function, f)
	}
	return f
}
