// arrivals.go judges what samples that arrived by signal say of where runs of one origin spend their time.
package weigh

import (
	"cmp"
	"slices"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/trace"
)

// Every signal is sent at a random moment. What it says depends on how it met its thread:
//
//   - It interrupted instructions of the program: the thread was there at a random moment.
//   - The thread had been preempted, and stood between instructions of the program when it went on. Mostly that, too, was a random moment, and there
//     may be many more of these. But the kernel preempts at its tick, and a program that is in step with that is met at one place of its period. So they
//     count as much as their difference from those in time allows: fully where it is no larger than chance makes it.
//   - It was taken at the end of a system call. From another processor it may have been on its way in the work before: what is taken there is time inside
//     the call and some microseconds more (6 % of the samples of 80 us of work between calls of 0.3 us). From the thread's own
//     processor it was not on its way at all. So the latter tell how much of the time is spent in system calls. But they, too, err upwards, where threads preempt one
//     another at the ends of system calls within microseconds (waking somebody who waits for a lock): the less of the two is believed,
//     and half of the former where there are no others.
//   - The thread had been preempted at the end of a system call. The kernel puts preemption off to there, so this says next to nothing: 37 % of those of
//     8 threads on two processors named a call that takes 1.5 % of the time.
//
// Samples that say next to nothing decide where there is nothing better.

// Arrived counts the samples of one place, each for what its recorder says that it stands for next to others of its origin ([trace.Event.Weight]).
type Arrived struct {
	inTime, own float64 // met instructions; of them, those sent on the thread's own processor
	preempted   float64 // met instructions after the thread had been preempted
	end, ownEnd float64 // met the end of a system call; of them, those sent on the thread's own processor
	poor        float64 // preempted at the end of a system call
}

// mostWorth is the largest weight of a sample that is believed, in 256ths.
const mostWorth = 256 * 256

// Add counts a KindCPU event of a run of work, as what it counts for.
func (a *Arrived) Add(e *trace.Event) {
	n := float64(max(e.Count, 1))
	if e.Weight != 0 {
		n *= float64(min(e.Weight, mostWorth)) / 256
	}
	late, preempted, end, own := e.Flags&trace.FlagLate != 0, e.Flags&trace.FlagPreempted != 0, e.Flags&trace.FlagSyscallEnd != 0, e.Flags&trace.FlagSameCPU != 0
	switch {
	case preempted && end:
		a.poor += n
	case preempted:
		a.preempted += n
	case late: // at the next call: by no signal
	case end:
		a.end += n
		if own {
			a.ownEnd += n
		}
	default:
		a.inTime += n
		if own {
			a.own += n
		}
	}
}

func (a *Arrived) sum(b Arrived) {
	a.inTime += b.inTime
	a.own += b.own
	a.preempted += b.preempted
	a.end += b.end
	a.ownEnd += b.ownEnd
	a.poor += b.poor
}

// PlaceArrived are the samples of a place.
type PlaceArrived struct {
	At trace.Site
	Arrived
}

// arrivals are the samples that arrived in runs of one origin.
type arrivals struct {
	at  []PlaceArrived // by stack and hook, each once
	all Arrived

	// What judge finds:
	preempted float64                 // what a preempted sample counts for next to one in time
	inCalls   float64                 // share of the time that is spent in system calls
	calls     []call                  // which
	callOf    map[trace.StackID]int32 // of places at the end of one
}

// call is a system call, by its instruction.
type call struct {
	own, other, any float64 // samples that met its end, sent on the thread's own processor and not; any at all
	share           float64 // of the time
	parts           []Part  // of that, by the samples of all threads
}

// fromOthers is how many samples from the thread's own processor those from others count for, together, in how much of the time is spent in
// a system call: where those are few. Half of the ends that they met are taken to have been on their way, since nothing tells.
const fromOthers = 10

// fewEnds is how many samples at ends of system calls, and none elsewhere, a thread must have to speak for itself. One or two of a thread that lived
// for two milliseconds say which system call it made, and not what it did.
const fewEnds = 8

// little is what a sample counts for that says next to nothing.
const little = 1.0 / 1024

// Origin is what runs of work of a thread have in common: the call that they began after.
type Origin struct {
	Proc   trace.ProcID
	Thread trace.ThreadID // 0: all of the process
	Began  uint64
}

// ShareOut judges what arrived in runs of the origins of one recording, whose frames tab knows, together in those that differ by their
// threads alone, and gives each origin the parts of its time: none when nothing arrived in any thread's. arrived and share are called with
// indices of origins, in an order that does not depend on theirs.
func ShareOut(src trace.Source, tab *frames.Table, origins []Origin, arrived func(i int) []PlaceArrived, share func(i int, parts []Part)) {
	order := make([]int, len(origins))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int {
		a, b := &origins[x], &origins[y]
		return cmp.Or(cmp.Compare(a.Proc, b.Proc), cmp.Compare(a.Began, b.Began), cmp.Compare(a.Thread, b.Thread))
	})
	j := judge{src: src, tab: tab}
	for len(order) > 0 { // the threads of one origin
		first := &origins[order[0]]
		end := slices.IndexFunc(order, func(i int) bool { return origins[i].Proc != first.Proc || origins[i].Began != first.Began })
		if end < 0 {
			end = len(order)
		}
		var came []PlaceArrived
		for _, i := range order[:end] {
			came = append(came, arrived(i)...)
		}
		all := newArrivals(came)
		j.look(all)
		for _, i := range order[:end] {
			share(i, all.parts(newArrivals(arrived(i))))
		}
		order = order[end:]
	}
}

// newArrivals adds up what arrived at the same place.
func newArrivals(list []PlaceArrived) *arrivals {
	a := &arrivals{at: make([]PlaceArrived, 0, len(list))}
	type key struct { // small: sorting moves it
		site  uint64
		index int
	}
	keys := make([]key, len(list))
	for i := range list {
		keys[i] = key{uint64(list[i].At.Stack)<<16 | uint64(list[i].At.Hook), i}
	}
	slices.SortFunc(keys, func(x, y key) int { return cmp.Or(cmp.Compare(x.site, y.site), cmp.Compare(x.index, y.index)) })
	for _, k := range keys {
		s := &list[k.index]
		a.all.sum(s.Arrived)
		if n := len(a.at); n > 0 && a.at[n-1].At == s.At {
			a.at[n-1].sum(s.Arrived)
		} else {
			a.at = append(a.at, *s)
		}
	}
	return a
}

// judge compares the kinds of samples of origins of one recording.
type judge struct {
	src  trace.Source
	tab  *frames.Table
	tree differences
}

// look finds what the samples of an origin, of all its threads, are to count for.
func (j *judge) look(a *arrivals) {
	a.preempted = j.tree.agreement(j.tab, a)
	a.systemCalls(j.src)
}

// systemCalls finds how much of the time is spent in system calls, by their instruction: whatever leads there ends at the same one, and
// there are few of these.
func (a *arrivals) systemCalls(src trace.Source) {
	own := a.all.own + a.all.ownEnd
	other := a.all.inTime + a.all.end - own
	otherEnds := a.all.end - a.all.ownEnd
	if a.all.end == 0 { // those of preempted threads do not tell how much of the time is spent there
		return
	}
	number := map[trace.Addr]int32{}
	a.callOf = map[trace.StackID]int32{}
	for i := range a.at {
		s := &a.at[i]
		if s.end+s.poor == 0 {
			continue
		}
		addr := src.Node(s.At.Stack).Addr
		n, ok := number[addr]
		if !ok {
			n = int32(len(a.calls))
			number[addr] = n
			a.calls = append(a.calls, call{})
		}
		a.callOf[s.At.Stack] = n
		k := &a.calls[n]
		k.own += s.ownEnd
		k.other += s.end - s.ownEnd
		k.any += s.end + s.poor
	}
	for i := range a.calls {
		k := &a.calls[i]
		if other == 0 {
			k.share = k.own / own
			continue
		}
		most, guess := k.other/other, k.other/2/(other-otherEnds/2)
		k.share = min(most, (k.own+fromOthers*guess)/(own+fromOthers))
	}
	for _, k := range a.calls {
		a.inCalls += k.share
	}
	if a.all.inTime+a.all.preempted == 0 && a.inCalls > 0 {
		for i := range a.calls {
			a.calls[i].share /= a.inCalls
		}
		a.inCalls = 1
	}
	a.eachEnd(a, func(s *PlaceArrived, n int32, samples float64) {
		if k := &a.calls[n]; k.share > 0 {
			k.parts = append(k.parts, Part{s.At, k.share * samples / k.any})
		}
	})
}

// inside adds where a thread's time in system calls was spent. How much of it there is in each is known of all threads. From where a thread made the call its own
// samples tell, whatever they met: those in time are of threads that are alone on the machine.
func (a *arrivals) inside(own *arrivals, out []Part) []Part {
	sums := make([]float64, len(a.calls))
	if own != a {
		own.eachEnd(a, func(_ *PlaceArrived, k int32, n float64) { sums[k] += n })
	}
	own.eachEnd(a, func(s *PlaceArrived, k int32, n float64) {
		if sums[k] > 0 && a.calls[k].share > 0 {
			out = append(out, Part{s.At, a.calls[k].share * n / sums[k]})
		}
	})
	for k := range a.calls {
		if sums[k] == 0 {
			out = append(out, a.calls[k].parts...)
		}
	}
	return out
}

// eachEnd calls f with every place where samples met the end of one of a's system calls, and their number.
func (own *arrivals) eachEnd(a *arrivals, f func(s *PlaceArrived, call int32, n float64)) {
	for i := range own.at {
		if s := &own.at[i]; s.end+s.poor > 0 {
			f(s, a.callOf[s.At.Stack], s.end+s.poor)
		}
	}
}

// agreement is what a sample of a second kind, of which there are m, is to count for next to one of the first, of which there are n, so that the
// expected square of the error is least (James and Stein's idea, with the bias in place of the prior): 1 where the shares of the kinds differ by no more than chance makes
// them, little where they differ much. variance is that of one sample, distance the square of the difference, both summed up over whatever is compared.
func agreement(variance, distance, n, m float64) float64 {
	bias := max(0, distance-variance*(1/n+1/m))
	if variance+bias*m == 0 {
		return 1
	}
	return variance / (variance + bias*m)
}

// differences is the scratch memory in which two kinds of samples are compared, at every node of the tree of stacks: a function
// that is met too often may be so at many instructions, at each by little.
type differences struct {
	count   [][2]float64 // by node
	touched []trace.StackID
}

// agreement is what a preempted sample of a's is to count for.
func (d *differences) agreement(tab *frames.Table, a *arrivals) float64 {
	n, m := a.all.inTime, a.all.preempted
	if n == 0 || m == 0 {
		return 1
	}
	for i := range a.at {
		s := &a.at[i]
		if s.inTime == 0 && s.preempted == 0 {
			continue
		}
		for id := s.At.Stack; tab.Valid(id); id = tab.Parent(id) {
			if int(id) >= len(d.count) {
				d.count = append(d.count, make([][2]float64, int(id)+1-len(d.count)+len(d.count)/2)...)
			}
			k := &d.count[id]
			if *k == ([2]float64{}) {
				d.touched = append(d.touched, id)
			}
			k[0] += s.inTime
			k[1] += s.preempted
		}
	}
	var variance, distance float64
	for _, id := range d.touched {
		k := &d.count[id]
		p := (k[0] + k[1]) / (n + m)
		variance += p * (1 - p)
		distance += (k[0]/n - k[1]/m) * (k[0]/n - k[1]/m)
		*k = [2]float64{}
	}
	d.touched = d.touched[:0]
	return agreement(variance, distance, n, m)
}

// Part is the share of a run's time that a place has. Shares of one origin add up to some sum, and a place may have two.
type Part struct {
	At    trace.Site
	Share float64
}

// parts shares a thread's time out, own being what arrived in its runs. None when nothing arrived in any thread's.
func (a *arrivals) parts(own *arrivals) []Part {
	ends := own
	if own.all.inTime+own.all.preempted == 0 && own.all.end+own.all.poor < fewEnds {
		own = a
	}
	worth := func(s *Arrived) float64 { return s.inTime + a.preempted*s.preempted + little*(s.end+s.poor) }
	var out []Part
	if all := worth(&own.all); a.inCalls < 1 && all > 0 {
		for i := range own.at {
			s := &own.at[i]
			out = append(out, Part{s.At, (1 - a.inCalls) * worth(&s.Arrived) / all})
		}
	}
	if len(a.callOf) == 0 {
		return out
	}
	return a.inside(ends, out)
}
