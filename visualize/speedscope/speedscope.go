// Package speedscope writes a recording's weighted stacks for speedscope (https://www.speedscope.app): one profile for each
// thing that weighs, in one file, which speedscope lets the reader switch between.
//
// The form is that of speedscope's file-format-schema.json: a table of frames, and in each profile of type "sampled" a list
// of stacks, root first, with their weights. Stacks are sorted by name: they are sums, and have no order in time.
package speedscope

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// schema is what a file of this form names.
const schema = "https://www.speedscope.app/file-format-schema.json"

// titles of the profiles, in the order in which they are offered. What is missing is of no use in a flame graph.
var titles = []struct {
	value weigh.Value
	title string
}{
	{weigh.CPU, "CPU time"}, {weigh.Blocked, "blocked time"}, {weigh.Wall, "CPU and blocked time"}, {weigh.Delay, "time waited for locks"},
	{weigh.AllocSpace, "bytes allocated"}, {weigh.InuseSpace, "bytes still in use"},
}

type frame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
}

// Write writes src to w. Errors are those of src and w.
func Write(w io.Writer, src trace.Source) error {
	values := make([]weigh.Value, len(titles))
	for i := range titles {
		values[i] = titles[i].value
	}
	t, err := weigh.Collect(src, weigh.Options{Values: values})
	if err != nil {
		return fmt.Errorf("speedscope: %w", err)
	}
	x := &writer{src: src, t: t, index: map[frame]int{}}
	x.stacks()
	out := bufio.NewWriterSize(w, 1<<16)
	x.write(out)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("speedscope: writing: %w", err)
	}
	return nil
}

type writer struct {
	src    trace.Source
	t      *weigh.Table
	frames []frame
	index  map[frame]int
	rows   []row
}

// row is a stack by function, root first, as text that stands in the file.
type row struct {
	stack  string
	values [weigh.NumValues]int64
}

func (x *writer) frame(f frame) int {
	i, ok := x.index[f]
	if !ok {
		i = len(x.frames)
		x.frames = append(x.frames, f)
		x.index[f] = i
	}
	return i
}

// stacks adds up rows that are one to a reader: of the same functions, by name.
func (x *writer) stacks() {
	sums := map[string]int{}
	var text []byte
	for i := range x.t.Rows {
		r := &x.t.Rows[i]
		text = text[:0]
		push := func(f frame) {
			if len(text) > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendInt(text, int64(x.frame(f)), 10)
		}
		for _, id := range x.t.Frames.Path(nil, r.Stack) {
			for _, at := range x.t.Frames.Of(id) {
				f := x.t.Frames.Frame(at.ID)
				push(frame{f.Name, f.File})
			}
		}
		if r.Stack == 0 && !frames.Begins(x.src.Meta(), r.Hook) { // what stands where there is none
			for _, f := range x.t.Stack(x.src, nil, &weigh.Key{Routine: r.Routine}) {
				push(frame{Name: f.Name})
			}
		}
		if r.Hook != 0 {
			push(frame{Name: frames.HookName(x.src.Meta(), r.Hook)})
		}
		at, ok := sums[string(text)]
		if !ok {
			at = len(x.rows)
			sums[string(text)] = at
			x.rows = append(x.rows, row{stack: string(text)})
		}
		for v, n := range r.Values {
			x.rows[at].values[v] += n
		}
	}
	slices.SortFunc(x.rows, func(a, b row) int { return strings.Compare(a.stack, b.stack) })
}

func (x *writer) write(w *bufio.Writer) {
	m := x.src.Meta()
	head, _ := json.Marshal(map[string]any{ // of strings alone: it cannot fail
		"$schema": schema, "exporter": "hbtrace " + frames.Valid(m.Version), "name": frames.Valid(strings.Join(m.Command, " ")), "activeProfileIndex": 0,
	})
	w.Write(head[:len(head)-1])
	w.WriteString(`,"shared":{"frames":[`)
	for i, f := range x.frames {
		comma(w, i)
		b, _ := json.Marshal(f)
		w.Write(b)
	}
	w.WriteString(`]},"profiles":[`)
	n := 0
	for _, t := range titles {
		if slices.Contains(x.t.Values, t.value) {
			comma(w, n)
			x.profile(w, t.value, t.title)
			n++
		}
	}
	if n == 0 { // nothing was recorded: a file without a profile is none
		x.profile(w, weigh.CPU, titles[0].title)
	}
	w.WriteString("]}\n")
}

func (x *writer) profile(w *bufio.Writer, v weigh.Value, title string) {
	var total int64
	var samples, weights []byte
	for i := range x.rows {
		r := &x.rows[i]
		if r.values[v] <= 0 {
			continue
		}
		if len(samples) > 0 {
			samples, weights = append(samples, ','), append(weights, ',')
		}
		if total += r.values[v]; total < 0 {
			total = math.MaxInt64 // of weights that make no sense
		}
		samples = append(append(append(samples, '['), r.stack...), ']')
		weights = strconv.AppendInt(weights, r.values[v], 10)
	}
	unit := v.Unit()
	if unit == "count" {
		unit = "none"
	}
	fmt.Fprintf(w, `{"type":"sampled","name":%q,"unit":%q,"startValue":0,"endValue":%d,"samples":[`, title, unit, total)
	w.Write(samples)
	w.WriteString(`],"weights":[`)
	w.Write(weights)
	w.WriteString("]}")
}

func comma(w *bufio.Writer, i int) {
	if i > 0 {
		w.WriteString(",\n")
	}
}
