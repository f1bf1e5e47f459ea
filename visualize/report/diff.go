// One recording held against another: what each function took before and takes now.

package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// Change is what one function took in two recordings.
type Change struct {
	Function string `json:"function"`
	Call     string `json:"call,omitempty"` // blocked: in which wrapped function
	Before   int64  `json:"before"`         // ns, or bytes
	After    int64  `json:"after"`
}

func (c *Change) by() int64 { return c.After - c.Before }

// Changes are what got slower or bigger, and what faster or smaller, the largest change first.
type Changes struct {
	Before       string   `json:"before"` // commands
	After        string   `json:"after"`
	BeforeNs     int64    `json:"before_ns"` // how long they ran
	AfterNs      int64    `json:"after_ns"`
	CPU          []Change `json:"cpu_ns"`     // self, by function
	Blocked      []Change `json:"blocked_ns"` // by function and call
	Alloc        []Change `json:"alloc_bytes"`
	BeforeLost   uint64   `json:"before_lost_records"`
	AfterLost    uint64   `json:"after_lost_records"`
	BeforeCPU    int64    `json:"before_cpu_ns"`
	AfterCPU     int64    `json:"after_cpu_ns"`
	BeforeBlocks int64    `json:"before_blocked_ns"`
	AfterBlocks  int64    `json:"after_blocked_ns"`
}

// Diff writes how src differs from base, as a table or as JSON. Functions are the same by name.
func Diff(w io.Writer, base, src trace.Source, o Options) error {
	if o.Width <= 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	if o.Top <= 0 {
		o.Top = 20
	}
	before, err := collect(base, false, false, nil)
	if err != nil {
		return err
	}
	after, err := collect(src, false, false, nil)
	if err != nil {
		return err
	}
	c := compare(before, after)
	var b bytes.Buffer
	if o.JSON {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(c); err != nil {
			return fmt.Errorf("writing the differences: %w", err)
		}
	} else {
		for _, l := range c.lines(o) {
			b.WriteString(l)
			b.WriteByte('\n')
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the differences: %w", err)
	}
	return nil
}

func compare(before, after *facts) *Changes {
	c := &Changes{
		Before: strings.Join(before.meta.Command, " "), After: strings.Join(after.meta.Command, " "),
		BeforeNs: before.duration(), AfterNs: after.duration(), BeforeLost: before.lost(), AfterLost: after.lost(),
		BeforeCPU: before.weights.Total[weigh.CPU], AfterCPU: after.weights.Total[weigh.CPU],
		BeforeBlocks: before.weights.Total[weigh.Blocked], AfterBlocks: after.weights.Total[weigh.Blocked],
	}
	type key struct{ function, call string }
	changes := func(take func(*facts, func(key, int64))) []Change {
		sums := map[key]*Change{}
		at := func(k key) *Change {
			x := sums[k]
			if x == nil {
				x = &Change{Function: k.function, Call: k.call}
				sums[k] = x
			}
			return x
		}
		take(before, func(k key, n int64) { at(k).Before += n })
		take(after, func(k key, n int64) { at(k).After += n })
		out := []Change{}
		for _, x := range slices.SortedFunc(maps.Values(sums), func(a, b *Change) int {
			return cmp.Or(cmp.Compare(magnitude(b.by()), magnitude(a.by())), cmp.Compare(a.Function, b.Function), cmp.Compare(a.Call, b.Call))
		}) {
			if x.by() != 0 {
				out = append(out, *x)
			}
		}
		return out
	}
	c.CPU = changes(func(f *facts, add func(key, int64)) {
		for _, s := range f.byFunction(weigh.CPU) {
			add(key{s.name, ""}, s.self)
		}
	})
	c.Blocked = changes(func(f *facts, add func(key, int64)) {
		for _, p := range f.places() {
			add(key{p.function, p.call}, p.total)
		}
	})
	c.Alloc = changes(func(f *facts, add func(key, int64)) {
		for _, a := range f.allocSites() {
			add(key{a.function, ""}, a.space)
		}
	})
	return c
}

func magnitude(n int64) int64 { return max(n, -n) }

func (c *Changes) lines(o Options) []string {
	out := terminal.Wrap("before    ", []string{c.Before, "ran " + number.Duration(c.BeforeNs), "CPU " + number.Duration(c.BeforeCPU),
		"blocked " + number.Duration(c.BeforeBlocks), number.Plural(c.BeforeLost, "record") + " lost"}, o.Width)
	out = append(out, terminal.Wrap("after     ", []string{c.After, "ran " + number.Duration(c.AfterNs), "CPU " + number.Duration(c.AfterCPU),
		"blocked " + number.Duration(c.AfterBlocks), number.Plural(c.AfterLost, "record") + " lost"}, o.Width)...)
	ns := func(n int64) string { return duration(n) }
	size := func(n int64) string {
		if n < 0 {
			return "-" + byteSize(uint64(-n))
		}
		return byteSize(uint64(n))
	}
	for _, part := range []struct {
		heading string
		rows    []Change
		text    func(int64) string
	}{
		{"CPU time, by function", c.CPU, ns}, {"Blocked, by function and call", c.Blocked, ns}, {"Allocated, by function", c.Alloc, size},
	} {
		if len(part.rows) == 0 {
			continue
		}
		t := &terminal.Table{Indent: 2, Columns: []terminal.Column{
			{Title: "change", Right: true}, {Title: "before", Right: true}, {Title: "after", Right: true}, {Title: "function", Flex: 2}, {Title: "", Flex: 1, Plain: true},
		}}
		n := min(o.Top, len(part.rows))
		for i := range part.rows[:n] {
			x := &part.rows[i]
			sign := ""
			if x.by() > 0 {
				sign = "+"
			}
			t.Add(sign+part.text(x.by()), part.text(x.Before), part.text(x.After), x.Function, x.Call)
		}
		more(t, n, len(part.rows))
		out = append(out, titled(o, part.heading, t.Lines(o.Width, o.Color))...)
	}
	if len(c.CPU)+len(c.Blocked)+len(c.Alloc) == 0 {
		out = append(out, "", "no difference")
	}
	return out
}
