package symbols

// This file owns the work of one Resolve: addresses sorted by unit, units shared out among the processors.

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	maxWorkers = 16   // each may hold a unit beyond what is kept
	loneJob    = 4096 // addresses without a unit that are looked up together
)

// Resolve names addrs, which are ELF virtual addresses of the module, already adjusted: of the call instruction,
// not the return address. The result has one element per address, innermost inlined frame first; nil means that
// nothing is known. Addresses are best given together, in one call; equal addresses share their element, which must
// not be modified.
func (r *Resolver) Resolve(mod trace.ModuleID, addrs []uint64) [][]trace.SymFrame {
	out := make([][]trace.SymFrame, len(addrs))
	m := r.locked(mod)
	if m == nil || len(addrs) == 0 {
		if m != nil {
			m.mu.Unlock()
		}
		return out
	}
	defer m.mu.Unlock()
	distinct := slices.Clone(addrs)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	got := r.named(m, distinct)
	for i, a := range addrs {
		k, _ := slices.BinarySearch(distinct, a)
		out[i] = got[k]
	}
	return out
}

// task is the addresses of one unit: at[from:to] of a batch.
type task struct {
	unit     int32 // -1: in none
	from, to int
}

// batch is one call's work. Workers write different elements of got.
type batch struct {
	m     *module
	addrs []uint64
	at    []int32 // of addrs, in order of unit
	got   [][]trace.SymFrame
	holds []extent // of got
}

// named looks up addrs, which are sorted: in what is known from before, then in the files. m.mu is held.
func (r *Resolver) named(m *module, addrs []uint64) [][]trace.SymFrame {
	switch m.m.Kind {
	case trace.ModuleAnon:
		return r.code(m, addrs)
	case trace.ModulePython:
		return pythonLines(&m.m, addrs)
	}
	out := make([][]trace.SymFrame, len(addrs))
	var open []uint64
	var to []int
	for i, a := range addrs {
		var ok bool
		if out[i], ok = m.cache.find(a); !ok {
			open, to = append(open, a), append(to, i)
		}
	}
	if len(open) == 0 {
		return out
	}
	r.prepare(m)
	b := r.lookUp(m, open)
	var fresh []cached
	for i, fs := range b.got {
		out[to[i]] = fs
		if fs != nil || m.named() { // that a module has no names is said every time
			fresh = append(fresh, cached{b.holds[i].lo, b.holds[i].hi, fs, true})
		}
	}
	if m.cache != nil && m.problems.Load() == 0 && len(fresh) > 0 {
		m.cache.add(fresh)
		if err := m.cache.save(); err == nil {
			r.saved.Store(true)
		}
	}
	return out
}

// lookUp looks addrs up in the files.
func (r *Resolver) lookUp(m *module, addrs []uint64) *batch {
	b := &batch{m: m, addrs: addrs, at: make([]int32, len(addrs)), got: make([][]trace.SymFrame, len(addrs)), holds: make([]extent, len(addrs))}
	units := make([]int32, len(addrs))
	for i, a := range addrs {
		b.at[i], units[i] = int32(i), -1
		if m.dw != nil {
			units[i] = m.dw.at.find(a)
		}
	}
	slices.SortStableFunc(b.at, func(x, y int32) int { return cmp.Compare(units[x], units[y]) })
	var tasks []task
	for from := 0; from < len(addrs); {
		to := from + 1
		unit := units[b.at[from]]
		for to < len(addrs) && units[b.at[to]] == unit && (unit >= 0 || to-from < loneJob) {
			to++
		}
		tasks = append(tasks, task{unit, from, to})
		from = to
	}
	if m.dw != nil {
		m.dw.work.start()
		defer m.dw.work.stop()
	}
	var next atomic.Int64
	work := func() {
		var l *lookup
		if m.dw != nil {
			l = newLookup(m.dw)
		}
		for {
			i := int(next.Add(1)) - 1
			if i >= len(tasks) {
				return
			}
			r.do(b, tasks[i], l)
		}
	}
	workers := min(runtime.GOMAXPROCS(0), maxWorkers, len(tasks))
	var wait sync.WaitGroup
	for range workers - 1 {
		wait.Go(work)
	}
	work()
	wait.Wait()
	return b
}

// do works one task off. A panic costs its debug information, then its names, never those of other tasks.
func (r *Resolver) do(b *batch, t task, l *lookup) {
	for _, use := range []*lookup{l, nil} {
		err := guarded(func() {
			for _, i := range b.at[t.from:t.to] {
				b.got[i], b.holds[i] = b.m.resolve(b.addrs[i], t.unit, use)
			}
			if use != nil && t.unit >= 0 {
				use.d.done(t.unit)
			}
		})
		if err == nil {
			return
		}
		r.note("module %s: %v", b.m.m.Path, err)
		b.m.problems.Add(1) // what comes out now is not kept
	}
}

// resolve names one address with what m has. l is nil where debug information is not to be used. The same is at all
// addresses of the extent.
func (m *module) resolve(addr uint64, unit int32, l *lookup) ([]trace.SymFrame, extent) {
	symbol, e := "", extent{0, 1<<64 - 1}
	if m.syms != nil {
		symbol, e = m.syms.part(addr, e)
	}
	if l != nil && unit >= 0 {
		f, e := l.frames(unit, addr, symbol, &m.names, e)
		if f != nil {
			return f, e
		}
	}
	if m.gotab != nil {
		if f := m.gotab.frames(addr); f != nil {
			return f, extent{addr, addr + 1}
		}
	}
	if m.dw != nil || m.gotab != nil {
		e = extent{addr, addr + 1} // what begins next to it is not known here
	}
	if symbol == "" {
		return nil, e
	}
	return []trace.SymFrame{{Func: m.names.readable(symbol), Linkage: symbol}}, e
}

// guarded runs f and turns its panics into errors, faults on mapped files that shrank included.
func guarded(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("corrupt file or debug information: %v", p)
		}
	}()
	f()
	return nil
}
