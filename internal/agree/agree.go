// Package agree holds the outputs that are made of one recording to one another: what each thread did, in each state,
// to the nanosecond, in the report, in both forms of the page, in the picture and in the Perfetto trace; and the CPU
// time of each function in the summary, the report, the profile and both forms of the page.
//
// Each is asked as its users ask it: reports as JSON, the page by its own questions and by what an exported file holds,
// the Perfetto trace by SQL.
package agree

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/page"
	"github.com/hbtrace/hbtrace/visualize/picture"
	"github.com/hbtrace/hbtrace/visualize/pprof"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// did is ns by thread and state.
type did map[trace.ThreadID]map[string]int64

func (d did) add(id trace.ThreadID, state string, ns int64) {
	if ns == 0 {
		return
	}
	if d[id] == nil {
		d[id] = map[string]int64{}
	}
	d[id][state] += ns
}

// cost is CPU time by function, in ns: on itself, and on it and what it called, or unknown.
type cost map[string][2]int64

const unknown = -1

// Source returns nil where the outputs of src agree, else an error that names what differs.
func Source(src trace.Source) error {
	want, functions, err := fromReport(src, report.ViewThreads, report.ViewCPU)
	if err != nil {
		return err
	}
	_, summary, err := fromReport(src, report.ViewSummary)
	if err != nil {
		return err
	}
	profiled, err := fromProfile(src)
	if err != nil {
		return err
	}
	served, inPage, err := fromServer(src)
	if err != nil {
		return err
	}
	exported, inFile, err := fromExport(src)
	if err != nil {
		return err
	}
	drawn, err := fromPicture(src)
	if err != nil {
		return err
	}
	var d differences
	d.cost("the summary", summary, functions)
	d.cost("the profile", profiled, functions)
	d.did("the page, served,", served, want)
	d.cost("the page, served,", inPage, functions)
	d.did("the page, exported,", exported, want)
	d.cost("the page, exported,", inFile, functions)
	if len(src.Threads()) > mostLanes { // the picture has the busiest threads
		maps.DeleteFunc(want, func(id trace.ThreadID, _ map[string]int64) bool { return drawn[id] == nil })
	}
	d.did("the picture", drawn, want)
	return errors.Join(d...)
}

// differences are what two outputs disagree on, at most mostDifferences of each comparison.
type differences []error

const mostDifferences = 10

func (d *differences) did(what string, got, want did) {
	n := 0
	for _, id := range union(got, want) {
		if maps.Equal(got[id], want[id]) {
			continue
		}
		if n++; n <= mostDifferences {
			*d = append(*d, fmt.Errorf("%s has thread %d in %v, the report in %v", what, id, got[id], want[id]))
		}
	}
}

func (d *differences) cost(what string, got, want cost) {
	n := 0
	for _, f := range union(got, want) {
		g, w := got[f], want[f]
		if g == w || w[1] == unknown && g[0] == w[0] {
			continue
		}
		if n++; n <= mostDifferences {
			*d = append(
				*d,
				fmt.Errorf(
					"%s has %d ns of CPU time in %q and %d with what it called, the report %d and %d",
					what,
					g[0],
					f,
					g[1],
					w[0],
					w[1],
				),
			)
		}
	}
}

// union are the keys of both, in order.
func union[K interface{ ~uint32 | ~string }, V any](a, b map[K]V) []K {
	all := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(all)
	return slices.Compact(all)
}

// fromReport reads views.
func fromReport(src trace.Source, views ...report.View) (did, cost, error) {
	var answer struct {
		Threads []struct {
			Thread trace.ThreadID
			States map[string]int64 `json:"states_ns"`
		}
		Functions []struct {
			Function string
			Self     int64 `json:"self_ns"`
			Cum      int64 `json:"cumulative_ns"`
		}
	}
	for _, v := range views {
		var out bytes.Buffer
		if err := report.Write(&out, src, v, report.Options{JSON: true}); err != nil {
			return nil, nil, fmt.Errorf("report: %w", err)
		}
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			return nil, nil, fmt.Errorf("report: %w", err)
		}
	}
	d, c := did{}, cost{}
	for _, th := range answer.Threads {
		for state, ns := range th.States {
			d.add(th.Thread, state, ns)
		}
	}
	for _, f := range answer.Functions {
		x, again := c[f.Function]
		if again { // in two modules, one of which may call the other
			f.Cum = unknown - x[1]
		}
		c[f.Function] = [2]int64{x[0] + f.Self, x[1] + f.Cum}
	}
	return d, c, nil
}

// fromProfile adds up a profile as `pprof -top` does. A function of one name in two modules counts for each.
func fromProfile(src trace.Source) (cost, error) {
	var out bytes.Buffer
	if err := pprof.Write(&out, src, pprof.Options{}); err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	p, err := profile.Parse(&out)
	if err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	c := cost{}
	at := slices.IndexFunc(p.SampleType, func(s *profile.ValueType) bool { return s.Type == weigh.CPU.String() })
	if at < 0 {
		return c, nil
	}
	for _, s := range p.Sample {
		seen := map[string]bool{}
		for i, l := range s.Location {
			for j, line := range l.Line {
				f := line.Function.Name
				c.add(f, s.Value[at], i == 0 && j == 0, seen)
			}
		}
	}
	return c, nil
}

// add counts ns for a function of a stack, in which it counts once.
func (c cost) add(f string, ns int64, leaf bool, seen map[string]bool) {
	if ns == 0 || strings.HasSuffix(f, " frames omitted]") {
		return
	}
	x := c[f]
	if leaf {
		x[0] += ns
	}
	if !seen[f] {
		x[1] += ns
	}
	seen[f] = true
	c[f] = x
}

const mostLanes = 1000

func fromPicture(src trace.Source) (did, error) {
	var out bytes.Buffer
	if err := picture.Timeline(&out, src, picture.Options{MaxThreads: mostLanes}); err != nil {
		return nil, fmt.Errorf("picture: %w", err)
	}
	d := did{}
	const mark = ` data-thread="`
	for part := range strings.SplitSeq(out.String(), mark) {
		var id trace.ThreadID
		var list string
		if n, _ := fmt.Sscanf(part, `%d" data-ns=%q`, &id, &list); n != 2 {
			continue
		}
		for item := range strings.FieldsSeq(list) {
			state, text, _ := strings.Cut(item, ":")
			var ns int64
			if _, err := fmt.Sscan(text, &ns); err != nil {
				return nil, fmt.Errorf("picture: %q: %w", item, err)
			}
			d.add(id, state, ns)
		}
	}
	return d, nil
}

// pageThread is the i-th thread of a page; 0 for one that src does not list.
func pageThread(src trace.Source, i int) trace.ThreadID {
	if threads := src.Threads(); i < len(threads) {
		return threads[i].ID
	}
	return 0
}

// read makes the page's model of src.
func read(src trace.Source) (*page.Model, error) {
	m := page.New(src)
	if err := m.Read(context.Background()); err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	return m, nil
}
