package main

// This file owns the split by how a sample came about. A share that is wrong is the work of one of the ways in which
// CPU time is noticed (sampler/points.h); next to the truth each shows which.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// mechanism is how a sample for the CPU profile came about.
type mechanism string

const (
	insideCall mechanism = "points passed inside a call, by weight"
	atEntry    mechanism = "points noticed at the entry of the next call, by weight"
	atShort    mechanism = "the same, of runs too short for signals, by weight"
	inTime     mechanism = "signals from another CPU that met instructions, by number"
	own        mechanism = "signals from the thread's own CPU that met instructions, by number"
	end        mechanism = "signals from another CPU that met the end of a system call, by number"
	ownEnd     mechanism = "signals from the thread's own CPU that met the end of a system call, by number"
	alone      mechanism = "signals met by short runs, by number"
	preempted  mechanism = "signals that found their thread preempted, at instructions, by number"
	poor       mechanism = "signals that found their thread preempted, at the end of a system call, by number"
)

var mechanisms = []mechanism{insideCall, atEntry, atShort, inTime, own, end, ownEnd, alone, preempted, poor}

// mechanismOf tells by what a recording says of a KindCPU event.
func mechanismOf(e *trace.Event) mechanism {
	is := func(f trace.Flags) bool { return e.Flags&f == f }
	switch {
	case e.Hook != 0:
		return insideCall
	case is(trace.FlagPreempted | trace.FlagSyscallEnd):
		return poor
	case is(trace.FlagPreempted):
		return preempted
	case is(trace.FlagLate) && e.Object == 0:
		return atShort
	case is(trace.FlagLate):
		return atEntry
	case e.Object == 0:
		return alone
	case is(trace.FlagSyscallEnd | trace.FlagSameCPU):
		return ownEnd
	case is(trace.FlagSyscallEnd):
		return end
	case is(trace.FlagSameCPU):
		return own
	}
	return inTime
}

// byMechanism are splits of a recording's samples. periods of each is its weight in ns: what is at stake.
type byMechanism map[mechanism]*split

// add sums up a recording. Signals count by their number, because their weights go by it when a profile is made (analysis/weigh); points
// by what they weigh.
func (m byMechanism) add(path string) error {
	r, err := tracefile.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	tab := frames.New(r)
	return trace.Events(r, func(e *trace.Event) error {
		if e.Kind != trace.KindCPU {
			return nil
		}
		how := mechanismOf(e)
		s := m[how]
		if s == nil {
			s = newSplit()
			m[how] = s
		}
		n := int(max(e.Count, 1))
		w := float64(n)
		if how == insideCall || how == atEntry || how == atShort {
			w = float64(e.CPU)
		}
		var stack []string
		for id := e.Stack; id != 0; id = tab.Parent(id) {
			for _, at := range tab.Of(id) {
				stack = append(stack, tab.Frame(at.ID).Name)
			}
		}
		s.book(w, stack)
		s.samples += n - 1
		s.periods += float64(e.CPU)
		return nil
	})
}

// print is a table: how many samples, how much of the CPU time they carried, and what their split would be taken alone.
func (m byMechanism) print(truth *split) {
	var functions []string
	for f := range truth.in {
		functions = append(functions, f)
	}
	slices.Sort(functions)
	fmt.Printf("\n| how noticed | samples | carried, %% of the CPU time | %s, %% | elsewhere |\n", strings.Join(functions, ", % | "))
	fmt.Printf("|---|---|---|%s---|\n", strings.Repeat("---|", len(functions)))
	row := func(name string, s *split, carried float64) {
		fmt.Printf("| %s | %d | %.1f |", name, s.samples, carried)
		rest := 100.0
		for _, f := range functions {
			fmt.Printf(" %.1f |", s.share(f))
			rest -= s.share(f)
		}
		fmt.Printf(" %.1f |\n", rest)
	}
	row("truth", truth, 100)
	for _, how := range mechanisms {
		if s := m[how]; s != nil {
			row(string(how), s, 100*s.periods/truth.all)
		}
	}
	fmt.Println()
}
