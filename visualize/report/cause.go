// Causes: what costs most, for the top of the summary, and which table to read next.

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/number"
)

// Shares from which on something is worth a place at the top.
const (
	chainWorth = 0.005 // of the recording's time: waits
	lockFirst  = 0.05  // of the recording's time: waits for locks, which come before longer waits for work
	allocWorth = 0.05  // of the CPU time
	someCPU    = 0.1   // of the recording's time: CPU time, where waits came to less
)

// causes are the heaviest chains: those of locks first, since somebody holds a lock, and a wait for a condition may be an idle thread; and
// last those that ended by their time-outs, which are idle threads' most of the time.
func (f *facts) causes() []*chainGroup {
	groups := f.chainGroups(func(*blame.Chain) bool { return true })
	worth := func(g *chainGroup, share float64) bool { return float64(g.total) >= share*float64(f.duration()) }
	var locks, others, idle []*chainGroup
	for _, g := range groups {
		switch {
		case !worth(g, chainWorth):
		case g.Lock && worth(g, lockFirst):
			locks = append(locks, g)
		case g.End == blame.TimedOut:
			idle = append(idle, g)
		default:
			others = append(others, g)
		}
	}
	return slices.Concat(locks, others, idle)
}

// causeTime is the time waited in causes that did not end by time-outs.
func (f *facts) causeTime() (ns int64) {
	for _, g := range f.causes() {
		if g.End != blame.TimedOut {
			ns += g.total
		}
	}
	return ns
}

// allocators are the functions that programs allocate and free through.
var allocators = map[string]bool{
	"malloc": true, "calloc": true, "realloc": true, "reallocarray": true, "free": true, "cfree": true, "posix_memalign": true,
	"aligned_alloc": true, "memalign": true, "valloc": true, "pvalloc": true, "g_malloc": true, "g_free": true,
	// what glibc's are made of: a function that ends with a call of one of these does not appear in the stack
	"_int_malloc": true, "_int_free": true, "_int_free_merge_chunk": true, "_int_free_create_chunk": true, "_int_realloc": true,
	"_int_memalign": true, "malloc_consolidate": true, "unlink_chunk": true, "sysmalloc": true, "systrim": true,
}

func allocates(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "__GI_"), "__libc_")
	return allocators[name] || strings.HasPrefix(name, "operator new") || strings.HasPrefix(name, "operator delete") ||
		strings.HasPrefix(name, "__rust_alloc") || strings.HasPrefix(name, "__rust_dealloc") || strings.HasPrefix(name, "__rust_realloc")
}

// allocating is the CPU time spent in allocators, and the function outside the run-time libraries that most of it was spent for.
func (f *facts) allocating() (total int64, most frames.Place, its int64) {
	by := map[frames.Place]int64{}
	var path []trace.StackID
	for i := range f.weights.Rows {
		r := &f.weights.Rows[i]
		w := r.Values[weigh.CPU]
		if w == 0 {
			continue
		}
		path = f.frames.Path(path[:0], r.Stack)
		if !allocates(f.hook(r.Hook)) && !f.passes(path) {
			continue
		}
		total += w
		at := f.frames.CulpritAt(r.Stack, f.hook(r.Hook))
		by[at] += w
	}
	sums := map[string]int64{}
	for at, w := range by {
		sums[at.Func] += w
	}
	for at, w := range by {
		a, b := sums[at.Func], sums[most.Func]
		if a > b || a == b && (at.Func < most.Func || at.Func == most.Func && (w > by[most] || w == by[most] && at.Line < most.Line)) {
			most = at
		}
	}
	return total, most, sums[most.Func]
}

// passes says whether a stack goes through an allocator.
func (f *facts) passes(path []trace.StackID) bool {
	for _, node := range path {
		for _, at := range f.frames.Of(node) {
			if allocates(f.frames.Frame(at.ID).Name) {
				return true
			}
		}
	}
	return false
}

// allocCost is a line about the CPU time spent on allocating; "" where it is little.
func (f *facts) allocCost() string {
	cpu := f.weights.Total[weigh.CPU]
	total, most, its := f.allocating()
	if cpu <= 0 || float64(total) < allocWorth*float64(cpu) {
		return ""
	}
	text := fmt.Sprintf("allocating and freeing memory took %s of the CPU time", number.Percent(total, cpu))
	if most.Func != "" {
		text += fmt.Sprintf(", %s in %s", number.Percent(its, cpu), most.Func)
		if place := fileLine(most.File, most.Line); place != "" {
			text += " (" + place + ")"
		}
	}
	return text
}

// next is the command that shows more of what was found.
func (f *facts) next(recording string) string {
	if recording == "" {
		return ""
	}
	cpu := float64(f.weights.Total[weigh.CPU])
	whole := float64(max(1, f.duration()))
	causes := f.causes()
	alloc, _, _ := f.allocating()
	view := "view"
	switch {
	case f.blame != nil && len(f.blame.Deadlocks) > 0:
		view = "report --locks"
	case len(causes) > 0 && causes[0].Lock:
		view = "report --locks"
	case (len(causes) == 0 || cpu >= 0.2*whole) && float64(alloc) >= 0.15*cpu && alloc > 0:
		view = "report --alloc --stacks"
	case cpu >= 0.5*whole, cpu >= someCPU*whole && cpu >= float64(f.causeTime()):
		view = "report --tree"
	case len(f.blocks) > 0:
		view = "report --blocked --stacks"
	}
	return "hbtrace " + view + " " + recording
}
