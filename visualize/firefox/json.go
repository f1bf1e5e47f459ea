// The file: JSON in columns.

package firefox

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// version of the processed format that is written.
const version = 62

// Categories of markers, by state; stacks are of the first.
var categories = []struct {
	name, color string
	states      []weigh.State
}{
	{"Other", "grey", nil},
	{"Waiting for a lock", "red", []weigh.State{weigh.Locked}},
	{"Waiting for a signal or thread", "orange", []weigh.State{weigh.Signaled, weigh.Other}},
	{"Reading or writing", "blue", []weigh.State{weigh.InOut}},
	{"Idle", "transparent", []weigh.State{weigh.Polling, weigh.Sleeping}},
}

func category(s weigh.State) int {
	for i, c := range categories {
		for _, x := range c.states {
			if x == s {
				return i
			}
		}
	}
	return 0
}

type out struct{ *bufio.Writer }

// column writes a member that is an array.
func column[T any](w out, name string, rows []T, cell func(b []byte, row *T) []byte) {
	w.WriteString(`"` + name + `":[`)
	var b []byte
	for i := range rows {
		b = b[:0]
		if i > 0 {
			b = append(b, ',')
		}
		w.Write(cell(b, &rows[i]))
	}
	w.WriteString("]")
}

// index is a number, null where it is below 0.
func index(b []byte, i int32) []byte {
	if i < 0 {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, int64(i), 10)
}

// same is a column of one thing.
func same[T any](text string) func([]byte, *T) []byte {
	return func(b []byte, _ *T) []byte { return append(b, text...) }
}

// milli is ns in milliseconds.
func milli(b []byte, ns int64) []byte { return strconv.AppendFloat(b, float64(ns)/1e6, 'f', -1, 64) }

func (w out) length(n int) { w.WriteString(`,"length":` + strconv.Itoa(n)) }

// value writes what is small as JSON. Only strings, numbers, lists and maps of them are passed: it cannot fail.
func (w out) value(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte("null")
	}
	w.WriteString(`"` + name + `":`)
	w.Write(b)
}

func (x *writer) write(to io.Writer) error {
	w := out{bufio.NewWriterSize(to, 1<<16)}
	w.WriteString("{")
	w.value("meta", x.about())
	var libs []lib
	for _, id := range x.libs {
		libs = append(libs, x.lib(id))
	}
	if libs == nil {
		libs = []lib{}
	}
	w.WriteString(",\n")
	w.value("libs", libs)
	w.WriteString(`,"pages":[],"counters":[],"profilerOverhead":[],` + "\n" + `"threads":[`)
	procs := map[trace.ProcID]*trace.Process{}
	ps := x.src.Processes()
	for i := range ps {
		procs[ps[i].ID] = &ps[i]
	}
	for i, t := range x.order {
		if i > 0 {
			w.WriteString(",\n")
		}
		x.writeThread(w, t, procs)
	}
	w.WriteString("],\n" + `"shared":`)
	x.writeShared(w) // last: threads add their names
	w.WriteString("}\n")
	return w.Flush()
}

func (x *writer) about() map[string]any {
	var list []map[string]any
	for _, c := range categories {
		list = append(list, map[string]any{"name": c.name, "color": c.color, "subcategories": []string{"Other"}})
	}
	interval := 1.0
	if x.meta.Freq > 0 {
		interval = 1000 / float64(x.meta.Freq)
	}
	start := 0.0
	if !x.meta.Started.IsZero() {
		start = float64(x.meta.Started.UnixMicro()) / 1000
	}
	schema := map[string]any{
		"name": "Wait", "display": []string{"marker-chart", "marker-table"},
		"chartLabel": "{marker.data.object}", "tooltipLabel": "{marker.name} {marker.data.object}", "tableLabel": "{marker.name} {marker.data.object}",
		"fields": []map[string]string{
			{"key": "object", "label": "Object", "format": "string"}, {"key": "owner", "label": "Who had it", "format": "string"},
			{"key": "releaser", "label": "Who let go", "format": "string"},
		},
	}
	m := map[string]any{
		"version": 24, "preprocessedProfileVersion": version, "interval": interval, "startTime": start, "processType": 0,
		"product": frames.Valid(strings.Join(x.meta.Command, " ")), "importedFrom": "hbtrace", "stackwalk": 1, "debug": false,
		"platform": "Linux", "oscpu": frames.Valid(x.meta.Kernel), "abi": x.meta.Arch, "logicalCPUs": x.meta.CPUs, "toolkit": "",
		"extensions": map[string]any{"baseURL": []string{}, "id": []string{}, "name": []string{}, "length": 0},
		"categories": list, "markerSchema": []any{schema}, "symbolicated": true, "pausedRanges": []any{},
		"sampleUnits":          map[string]string{"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
		"usesOnlyOneStackType": true, "sourceCodeIsNotOnSearchfox": true,
	}
	if m["product"] == "" {
		m["product"] = "hbtrace"
	}
	return m
}

func (x *writer) writeThread(w out, t *thread, procs map[trace.ProcID]*trace.Process) {
	var p *trace.Process
	name, tid, main := x.who(t.id), int(t.id), false
	start, end := int64(0), int64(-1)
	if t.info != nil {
		p = procs[t.info.Proc]
		tid, main, start = t.info.ExportTID(), t.info.Main, x.since(t.info.Start)
		if t.info.Name != "" {
			name = frames.Valid(t.info.ExportName())
		}
		if t.info.End != 0 {
			end = x.since(t.info.End)
		}
	}
	pid, process, began, gone := "0", "", int64(0), int64(-1)
	if p != nil {
		pid, process, began = strconv.Itoa(p.PID), processName(p), x.since(p.Start)
		if p.End != 0 {
			gone = x.since(p.End)
		}
	}
	ms := func(ns int64) any {
		if ns < 0 {
			return nil
		}
		return float64(ns) / 1e6
	}
	w.WriteString("{")
	for i, f := range []struct {
		name string
		v    any
	}{
		{"name", name}, {"isMainThread", main}, {"processType", "default"}, {"processName", process}, {"pid", pid}, {"tid", tid},
		{"processStartupTime", ms(began)}, {"processShutdownTime", ms(gone)}, {"registerTime", ms(start)}, {"unregisterTime", ms(end)},
		{"pausedRanges", []any{}}, {"showMarkersInTimeline", true},
	} {
		if i > 0 {
			w.WriteString(",")
		}
		w.value(f.name, f.v)
	}
	w.WriteString(`,"samples":{"weightType":"tracing-ms",`)
	last := int64(0)
	column(w, "timeDeltas", t.samples, func(b []byte, s *sample) []byte {
		d := s.at - last
		last = s.at
		return milli(b, d)
	})
	w.WriteString(",")
	column(w, "stack", t.samples, func(b []byte, s *sample) []byte { return index(b, s.stack) })
	w.WriteString(",")
	column(w, "weight", t.samples, func(b []byte, s *sample) []byte { return milli(b, s.cpu) })
	w.WriteString(",")
	column(w, "threadCPUDelta", t.samples, func(b []byte, s *sample) []byte {
		return strconv.AppendInt(b, int64(math.Round(float64(s.cpu)/1e3)), 10)
	})
	w.length(len(t.samples))
	w.WriteString(`},"markers":{`)
	column(w, "name", t.markers, func(b []byte, m *marker) []byte { return index(b, m.name) })
	w.WriteString(",")
	column(w, "startTime", t.markers, func(b []byte, m *marker) []byte { return milli(b, m.start) })
	w.WriteString(",")
	column(w, "endTime", t.markers, func(b []byte, m *marker) []byte { return milli(b, m.end) })
	w.WriteString(",")
	column(w, "phase", t.markers, same[marker]("1")) // from startTime to endTime
	w.WriteString(",")
	column(w, "category", t.markers, func(b []byte, m *marker) []byte { return strconv.AppendInt(b, int64(category(m.state)), 10) })
	w.WriteString(",")
	column(w, "data", t.markers, func(b []byte, m *marker) []byte {
		data := struct {
			Type     string `json:"type"`
			Object   string `json:"object"`
			Owner    string `json:"owner,omitempty"`
			Releaser string `json:"releaser,omitempty"`
		}{Type: "Wait"}
		if m.object >= 0 {
			data.Object = x.strings[m.object]
		}
		if m.owner != 0 {
			data.Owner = x.who(m.owner)
		}
		if m.releaser != 0 {
			data.Releaser = x.who(m.releaser)
		}
		text, _ := json.Marshal(data) // strings
		return append(b, text...)
	})
	w.length(len(t.markers))
	w.WriteString("}}")
}

func (x *writer) writeShared(w out) {
	names := make([]int32, len(x.libs)) // before the strings are written
	for i, id := range x.libs {
		names[i] = x.string(x.lib(id).Name)
	}
	w.WriteString("{")
	w.value("stringArray", append([]string{}, x.strings...))
	w.WriteString(",\n\"stackTable\":{")
	column(w, "frame", x.stacks, func(b []byte, s *stackRow) []byte { return index(b, s.frame) })
	w.WriteString(",")
	column(w, "prefix", x.stacks, func(b []byte, s *stackRow) []byte { return index(b, s.prefix) })
	w.length(len(x.stacks))
	w.WriteString("},\n\"frameTable\":{")
	column(w, "func", x.frames, func(b []byte, f *frameRow) []byte { return index(b, f.function) })
	w.WriteString(",")
	column(w, "line", x.frames, func(b []byte, f *frameRow) []byte {
		if f.line <= 0 {
			return append(b, "null"...)
		}
		return index(b, f.line)
	})
	w.WriteString(",")
	column(w, "inlineDepth", x.frames, func(b []byte, f *frameRow) []byte { return index(b, f.inline) })
	for _, c := range []struct{ name, text string }{
		{"address", "-1"}, {"category", "0"}, {"subcategory", "0"}, {"nativeSymbol", "null"}, {"innerWindowID", "0"}, {"column", "null"},
	} {
		w.WriteString(",")
		column(w, c.name, x.frames, same[frameRow](c.text))
	}
	w.length(len(x.frames))
	w.WriteString("},\n\"funcTable\":{")
	column(w, "name", x.funcs, func(b []byte, f *function) []byte { return index(b, f.name) })
	w.WriteString(",")
	column(w, "resource", x.funcs, func(b []byte, f *function) []byte { return strconv.AppendInt(b, int64(f.lib), 10) })
	sources, at := []int32{}, map[int32]int32{}
	w.WriteString(",")
	column(w, "source", x.funcs, func(b []byte, f *function) []byte {
		if f.file < 0 {
			return append(b, "null"...)
		}
		return index(b, intern(&sources, at, f.file))
	})
	for _, c := range []struct{ name, text string }{{"isJS", "false"}, {"relevantForJS", "false"}, {"lineNumber", "null"}, {"columnNumber", "null"}} {
		w.WriteString(",")
		column(w, c.name, x.funcs, same[function](c.text))
	}
	w.length(len(x.funcs))
	w.WriteString("},\n\"sources\":{")
	column(w, "filename", sources, func(b []byte, s *int32) []byte { return index(b, *s) })
	for _, c := range []struct{ name, text string }{{"id", "null"}, {"sourceMapURL", "null"}, {"startLine", "1"}, {"startColumn", "1"}} {
		w.WriteString(",")
		column(w, c.name, sources, same[int32](c.text))
	}
	w.length(len(sources))
	w.WriteString("},\n\"resourceTable\":{")
	i := int32(-1)
	column(w, "lib", names, func(b []byte, _ *int32) []byte { i++; return index(b, i) })
	w.WriteString(",")
	column(w, "name", names, func(b []byte, n *int32) []byte { return index(b, *n) })
	w.WriteString(",")
	column(w, "host", names, same[int32]("null"))
	w.WriteString(",")
	column(w, "type", names, same[int32]("1")) // a library
	w.length(len(names))
	w.WriteString("},\n\"nativeSymbols\":{\"address\":[],\"functionSize\":[],\"libIndex\":[],\"name\":[],\"length\":0}}")
}
