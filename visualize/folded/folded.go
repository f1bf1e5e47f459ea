// Package folded writes a recording as folded stacks, one line per distinct call path, root first:
//
//	main;work;inner 1234
//
// which flame graph tools read.
package folded

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Options for Write.
type Options struct {
	Value   string // "cpu" (or ""), "blocked", "wall", "alloc_space", …: the names of package weigh
	Threads bool   // begin each path with its thread: "name tid"
}

// clean makes a name fit for a line: semicolons part frames, a line feed ends it.
var clean = strings.NewReplacer(";", ":", "\n", " ", "\r", " ")

// Write writes src to w, sorted by path. Values are in the unit of Options.Value; paths that weigh nothing are left
// out. It is an error to ask for a value that does not exist or was not recorded.
func Write(w io.Writer, src trace.Source, o Options) error {
	return WriteMerged(w, []trace.Source{src}, o)
}

// WriteMerged is Write for the sum of several recordings.
func WriteMerged(w io.Writer, srcs []trace.Source, o Options) error {
	all := map[string]int64{}
	for _, src := range srcs {
		sums, err := collect(src, o)
		if err != nil {
			return err
		}
		for p, n := range sums {
			all[p] += n
		}
	}
	return write(w, all, func(line []byte, p string) []byte { return strconv.AppendInt(line, all[p], 10) })
}

// WriteDiff writes each path with what it weighs in base and in src, two numbers apart by a blank: the form that
// differential flame graphs are made of.
func WriteDiff(w io.Writer, base, src trace.Source, o Options) error {
	before, err := collect(base, o)
	if err != nil {
		return err
	}
	after, err := collect(src, o)
	if err != nil {
		return err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	return write(w, all, func(line []byte, p string) []byte {
		return strconv.AppendInt(append(strconv.AppendInt(line, before[p], 10), ' '), after[p], 10)
	})
}

// collect is what each path weighs.
func collect(src trace.Source, o Options) (map[string]int64, error) {
	if o.Value == "" {
		o.Value = weigh.CPU.String()
	}
	v, err := weigh.ParseValue(o.Value)
	if err != nil {
		return nil, fmt.Errorf("folded: %w", err)
	}
	by := weigh.By(0)
	if o.Threads {
		by = weigh.ByThread
	}
	t, err := weigh.Collect(src, weigh.Options{Values: []weigh.Value{v}, By: by})
	if err != nil {
		return nil, fmt.Errorf("folded: %w", err)
	}
	if len(t.Values) == 0 {
		return nil, fmt.Errorf("folded: the recording has no %s: record with the event that it comes from", v)
	}
	threads := map[trace.ThreadID]string{}
	for _, th := range src.Threads() {
		threads[th.ID] = fmt.Sprintf("%s %d", frames.Valid(th.Name), th.TID)
	}
	sums := map[string]int64{} // paths differ in fewer ways than stacks: by name, not by address
	var path []weigh.Frame
	var line strings.Builder
	for i := range t.Rows {
		r := &t.Rows[i]
		path = t.Stack(src, path[:0], &r.Key)
		line.Reset()
		if o.Threads {
			clean.WriteString(&line, threads[r.Thread])
			line.WriteByte(';')
		}
		for j := range path {
			if j > 0 {
				line.WriteByte(';')
			}
			clean.WriteString(&line, path[j].Name)
		}
		sums[line.String()] += r.Values[v]
	}
	return sums, nil
}

// write writes paths in their order, each with what is appended to its line.
func write(w io.Writer, sums map[string]int64, weight func(line []byte, path string) []byte) error {
	b := bufio.NewWriter(w)
	var line []byte
	for _, p := range slices.Sorted(maps.Keys(sums)) {
		line = append(append(line[:0], p...), ' ')
		b.Write(append(weight(line, p), '\n'))
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("folded: writing: %w", err)
	}
	return nil
}
