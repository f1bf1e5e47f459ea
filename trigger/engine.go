// The triggers of a session: which of them hold, and which may make a dump now.

package trigger

import (
	"math"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

// Cooldown is how long a trigger is silent after it has held.
const Cooldown = time.Minute

// Engine holds a session's triggers. It belongs to one goroutine.
type Engine struct {
	list     []*Trigger
	interval filter // what any of them wants; nil: none
	quiet    map[*Trigger]time.Time
	since    map[*Trigger]time.Time // of states: since when they hold
	rss      []rssAt
	Passed   uint64 // times that a trigger held within its cooldown
}

type rssAt struct {
	at    time.Time
	bytes float64
}

// NewEngine takes the triggers of a session.
func NewEngine(list []*Trigger) *Engine {
	e := &Engine{list: list, quiet: map[*Trigger]time.Time{}, since: map[*Trigger]time.Time{}}
	for _, t := range list {
		if t.Kind != KindInterval {
			continue
		}
		f := append(filter(nil), t.filter...)
		if e.interval != nil {
			f = combine(f, e.interval, func(x, y int64) int64 { return min(x, y) })
		}
		e.interval = f
	}
	return e
}

// List is the triggers as they were given.
func (e *Engine) List() (texts []string) {
	for _, t := range e.list {
		texts = append(texts, t.Text)
	}
	return texts
}

// Wants reports whether a trigger may hold of an event: only then is Interval to be asked. It takes some nanoseconds.
func (e *Engine) Wants(ev *trace.Event) bool { return e.interval != nil && e.interval.wants(ev) }

// Has reports whether there is a trigger of a kind.
func (e *Engine) Has(k Kind) bool {
	for _, t := range e.list {
		if t.Kind == k {
			return true
		}
	}
	return false
}

// Interval is the first trigger that holds of an interval and may make a dump; nil none.
func (e *Engine) Interval(ev *trace.Event, env *Interval, now time.Time) *Trigger {
	for _, t := range e.list {
		if t.Kind == KindInterval && t.filter.wants(ev) && t.holds(*env) && e.mayFire(t, now) {
			return t
		}
	}
	return nil
}

// mayFire reports whether a trigger that holds may make a dump now, and begins its cooldown.
func (e *Engine) mayFire(t *Trigger, now time.Time) bool {
	if until, ok := e.quiet[t]; ok && now.Before(until) {
		e.Passed++
		return false
	}
	e.quiet[t] = now.Add(Cooldown)
	return true
}

// States lists the triggers that hold of the program's state and may make a dump.
func (e *Engine) States(s State, now time.Time) (fired []*Trigger) {
	e.rss = append(e.rss, rssAt{now, s.RSS})
	longest := time.Duration(0)
	for _, t := range e.list {
		if t.Kind != KindState {
			continue
		}
		longest = max(longest, t.For)
		holds := false
		if t.growth > 0 {
			least := math.Inf(1)
			for _, r := range e.rss {
				if now.Sub(r.at) <= t.For {
					least = min(least, r.bytes)
				}
			}
			holds = s.RSS-least >= t.growth
		} else if holds = t.holds(s); holds && t.For > 0 {
			from, known := e.since[t]
			if !known {
				from = now
				e.since[t] = now
			}
			holds = now.Sub(from) >= t.For
		} else {
			delete(e.since, t)
		}
		if holds && e.mayFire(t, now) {
			fired = append(fired, t)
		}
	}
	for len(e.rss) > 0 && now.Sub(e.rss[0].at) > longest {
		e.rss = e.rss[1:]
	}
	return fired
}

// Stall is the first trigger that holds of a thread whose event loop has not come back for so long; nil none.
func (e *Engine) Stall(thread string, d time.Duration, now time.Time) *Trigger {
	for _, t := range e.list {
		if t.Kind == KindStall && d >= t.Least && (t.Thread == nil || t.Thread.MatchString(thread)) && e.mayFire(t, now) {
			return t
		}
	}
	return nil
}

// Deadlock is the first trigger that wants deadlocks and may make a dump; nil none.
func (e *Engine) Deadlock(now time.Time) *Trigger {
	for _, t := range e.list {
		if t.Kind == KindDeadlock && e.mayFire(t, now) {
			return t
		}
	}
	return nil
}

// End is the first trigger that holds of the program's end; nil none.
func (e *Engine) End(end End) *Trigger {
	for _, t := range e.list {
		if t.Kind == KindEnd && (t.crash && crashed(end.Signal) || !t.crash && t.holds(end)) {
			return t
		}
	}
	return nil
}

// crashed tells the signals that end a program that did not mean to: not those by which people and machines end it.
func crashed(signal int) bool {
	switch unix.Signal(signal) {
	case 0, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE, unix.SIGQUIT, unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2:
		return false
	}
	return true
}

// Join is the texts of triggers, for people.
func Join(list []*Trigger) string {
	var texts []string
	for _, t := range list {
		texts = append(texts, t.Text)
	}
	return strings.Join(texts, ", ")
}
