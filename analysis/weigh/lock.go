// What is waiting for a lock, and what is waiting for something else: one judgement for all views.

package weigh

import (
	"strings"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/names"
	"github.com/hbtrace/hbtrace/trace"
)

// GIL is what the global interpreter lock of Python is called, as a kind of object and as an object.
const GIL = "GIL"

// ObjectKind names what kind of object a hook waits for.
func ObjectKind(h trace.HookInfo) string {
	n := h.Name
	switch {
	case strings.HasPrefix(n, "GIL"):
		return GIL
	case strings.Contains(n, "mutex") || strings.HasPrefix(n, "mtx_"):
		return "mutex"
	case strings.Contains(n, "rwlock") && strings.Contains(n, "rdlock"):
		return "rwlock-read"
	case strings.Contains(n, "rwlock"):
		return "rwlock-write"
	case strings.Contains(n, "cond") || strings.HasPrefix(n, "cnd_"):
		return "condvar"
	case strings.HasPrefix(n, "sem_"):
		return "semaphore"
	case strings.Contains(n, "barrier"):
		return "barrier"
	case strings.Contains(n, "join"):
		return "join"
	case strings.Contains(n, "futex"):
		return "futex"
	case h.Class != "":
		return strings.ToLower(string(h.Class))
	}
	return "wait"
}

// Locking tells waits for a lock, which are contention, from waits for a signal, a thread or work, which are often
// idleness. It remembers what it found: stacks recur.
type Locking struct {
	tab     *frames.Table
	hooks   map[trace.HookID]trace.HookInfo
	kinds   []lockKind             // by hook
	futexes map[trace.StackID]bool // by the stack of the wait
}

// lockKind says which of a hook's waits are for a lock.
type lockKind uint8

const (
	lockUnknown lockKind = iota
	lockNever
	lockPerhaps
	lockAlways
)

// NewLocking judges waits of the recording that tab names the frames of.
func NewLocking(meta *trace.Meta, tab *frames.Table) *Locking {
	return &Locking{tab: tab, hooks: meta.Hooks, futexes: map[trace.StackID]bool{}}
}

// Wait says whether a wait by hook, with the given stack, was for a lock. A futex may be one or not: it is where one of
// the innermost functions of the stack says so.
func (l *Locking) Wait(hook trace.HookID, stack trace.StackID) bool {
	if int(hook) >= len(l.kinds) {
		l.kinds = append(l.kinds, make([]lockKind, int(hook)+1-len(l.kinds))...)
	}
	kind := l.kinds[hook]
	if kind == lockUnknown {
		kind = lockNever
		switch ObjectKind(l.hooks[hook]) {
		case "mutex", "rwlock-read", "rwlock-write", "lock", GIL:
			kind = lockAlways
		case "futex":
			kind = lockPerhaps
		}
		l.kinds[hook] = kind
	}
	switch kind {
	case lockAlways:
		return true
	case lockPerhaps:
		is, ok := l.futexes[stack]
		if !ok {
			is = lockish(l.tab, stack)
			l.futexes[stack] = is
		}
		return is
	}
	return false
}

// lockDepth is how many functions lie between a futex and the lock's own: Rust's Mutex has four.
const lockDepth = 6

func lockish(tab *frames.Table, stack trace.StackID) bool {
	path := tab.Path(nil, stack)
	seen := 0
	for i := len(path) - 1; i >= 0; i-- {
		set := tab.Of(path[i])
		for j := len(set) - 1; j >= 0; j-- {
			if seen++; seen > lockDepth {
				return false
			}
			name := strings.ToLower(names.Bare(tab.Frame(set[j].ID).Name))
			for _, idle := range []string{"condvar", "condition", "cond_", "::park", "::once", "parker"} {
				if strings.Contains(name, idle) {
					return false // a condition variable's own functions name its mutex, too
				}
			}
			if strings.Contains(name, "mutex") || strings.Contains(name, "rwlock") || lockWord(name) {
				return true
			}
		}
	}
	return false
}

// lockWord finds "lock" in a lower-case name where it does not end another word: clock, block, unlock.
func lockWord(name string) bool {
	for at := 0; ; {
		i := strings.Index(name[at:], "lock")
		if i < 0 {
			return false
		}
		at += i
		if at == 0 || !(name[at-1] >= 'a' && name[at-1] <= 'z') || strings.HasSuffix(name[:at], "spin") {
			return true
		}
		at += len("lock")
	}
}
