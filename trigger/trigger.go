// Package trigger says when a flight recorder is to make a dump: expressions over what is recorded.
//
//	t, err := trigger.Parse("lock > 50ms && thread =~ 'worker.*'")
//	e := trigger.NewEngine(list)
//	if e.Wants(&event) { fired := e.Interval(trigger.Interval{…}) }
//
// An expression speaks of one of four things, and the names in it say of which: an interval as it ended, the program's
// state as it is polled, the program's end, or a stall while it lasts. Two forms have no expression: deadlock and crash.
// expr-lang/expr compiles expressions once; a filter by hooked function and least time (filter.go) keeps it from being
// asked about events that cannot hold.
package trigger

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
)

// Kind is what a trigger speaks of.
type Kind uint8

const (
	KindInterval Kind = iota // a wait or a call that ended: [Interval]
	KindState                // the program as it is polled: [State]
	KindEnd                  // the program's end: [End]
	KindStall                // an event loop that does not come back
	KindDeadlock             // threads that wait for each other
)

// Interval is what an expression can say of a wait or a call that ended. Times are nanoseconds; 50ms in an expression is
// 50,000,000.
type Interval struct {
	Wait    float64 `expr:"wait"` // how long it waited for another thread: the next four, and join, barrier, futex
	Lock    float64 `expr:"lock"` // how long for a lock; 0: it is none
	Cond    float64 `expr:"cond"` // for a condition variable
	Sem     float64 `expr:"sem"`  // for a semaphore
	Took    float64 `expr:"took"` // of any interval
	Ms      float64 `expr:"ms"`   // the same in milliseconds
	Call    string  `expr:"call"` // the hooked function
	Thread  string  `expr:"thread"`
	Process string  `expr:"process"` // base name of its executable
	Pid     int     `expr:"pid"`
	Tid     int     `expr:"tid"`
	Result  int     `expr:"result"` // what the call returned, -errno where it failed
	Owner   string  `expr:"owner"`  // thread that held the lock when the wait began; "" unknown
}

// State is what an expression can say of the program as it is.
type State struct {
	Runnable float64 `expr:"runnable"` // longest time of a thread without a CPU, in the last second; ns
	Threads  float64 `expr:"threads"`
	CPU      float64 `expr:"cpu"`  // of all its threads, in percent of one CPU, over the last second
	RSS      float64 `expr:"rss"`  // bytes
	Idle     float64 `expr:"idle"` // for how long it has used no CPU; ns
}

// End is what an expression can say of the program's end.
type End struct {
	Exit   int `expr:"exit"`   // status; -1 where a signal ended it
	Signal int `expr:"signal"` // 0 none
}

// Trigger is one reason for a dump.
type Trigger struct {
	Name string // for file names: slow-lock, stall, …
	Text string // as it was given
	Kind Kind

	Thread *regexp.Regexp // of a stall: names of threads; nil all
	Least  time.Duration  // of a stall
	For    time.Duration  // of a state: it must hold for as long
	growth float64        // of a state: bytes that RSS must grow by within For; 0: program holds
	crash  bool
	run    *vm.Program
	filter filter
}

// Error is an expression that cannot be used.
type Error struct {
	Text, Why string
	Column    int // in Text, from 0; -1 nowhere in particular
}

func (e *Error) Error() string { return fmt.Sprintf("--on %q: %s", e.Text, e.Why) }

// Caret is the expression with a mark under the mistake; "" where it has no place.
func (e *Error) Caret() string {
	if e.Column < 0 || e.Column > len(e.Text) {
		return ""
	}
	return "  " + e.Text + "\n  " + strings.Repeat(" ", len([]rune(e.Text[:e.Column]))) + "^"
}

var (
	stallForm  = regexp.MustCompile(`^stall\s*(?:\(\s*(?:"([^"]*)"|'([^']*)')\s*\))?\s*>=?\s*(\S+)$`)
	growthForm = regexp.MustCompile(`^rss\s*\+\s*(\S+)\s+in\s+(\S+)$`)
	forForm    = regexp.MustCompile(`^(.*\S)\s+for\s+(\S+)$`)
	presetForm = regexp.MustCompile(`^([a-z-]+)(?:=(\S+))?$`)
)

// presets are triggers for people, by name. $ stands for their time.
var presets = map[string]struct{ text, least string }{
	"slow-lock": {"lock > $", "50ms"},
	"slow-wait": {"wait > $", "200ms"},
	"slow-call": {idleCalls + " && took > $", "200ms"},
	"stall":     {"stall > $", "500ms"},
	"idle":      {"idle > $", "10s"},
	"deadlock":  {"", ""},
	"crash":     {"", ""},
}

// idleCalls leaves out the calls in which threads wait for work: those are long by intent.
const idleCalls = `not (call in ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "__poll_chk", "__ppoll_chk", "select",
 "pselect", "io_uring_enter", "io_getevents", "nanosleep", "clock_nanosleep", "usleep", "sleep", "thrd_sleep", "pause", "sigsuspend",
 "sigwait", "sigwaitinfo", "sigtimedwait", "wait", "waitpid", "wait3", "wait4", "waitid", "accept", "accept4"]) && wait == 0`

// Presets lists the names of presets, with their default time behind "=" where they have one.
func Presets() []string {
	return []string{"slow-lock=50ms", "slow-wait=200ms", "slow-call=200ms", "stall=500ms", "idle=10s", "deadlock", "crash"}
}

// Parse reads a trigger: a preset (slow-lock=50ms, deadlock), or an expression.
func Parse(text string) (*Trigger, error) {
	text = strings.TrimSpace(text)
	t := &Trigger{Text: text, Name: "on"}
	body := text
	if m := presetForm.FindStringSubmatch(text); m != nil {
		p, ok := presets[m[1]]
		if !ok {
			return nil, &Error{text, "no such preset: use " + strings.Join(Presets(), ", ") + ", or an expression", 0}
		}
		t.Name = m[1]
		least := p.least
		if m[2] != "" {
			if p.text == "" {
				return nil, &Error{text, m[1] + " takes no time", len(m[1])}
			}
			if d, err := time.ParseDuration(m[2]); err != nil || d <= 0 {
				return nil, &Error{text, "use a time such as " + p.least, len(m[1]) + 1}
			}
			least = m[2]
		}
		switch m[1] {
		case "deadlock":
			t.Kind = KindDeadlock
			return t, nil
		case "crash":
			t.Kind, t.crash = KindEnd, true
			return t, nil
		}
		body = strings.ReplaceAll(strings.ReplaceAll(p.text, "\n", " "), "$", least)
	}
	if m := stallForm.FindStringSubmatchIndex(body); m != nil {
		return t, t.stall(body, m)
	}
	if m := growthForm.FindStringSubmatchIndex(body); m != nil {
		return t, t.grows(body, m)
	}
	if m := forForm.FindStringSubmatchIndex(body); m != nil {
		d, err := time.ParseDuration(body[m[4]:m[5]])
		if err != nil || d <= 0 {
			return nil, &Error{text, "use a time such as 10s", m[4]}
		}
		t.For, body = d, body[:m[3]]
	}
	if err := t.compile(body); err != nil {
		return nil, err
	}
	if t.For > 0 && t.Kind != KindState {
		return nil, &Error{text, `"for" is for what is polled: runnable, threads, cpu, rss, idle`, -1}
	}
	return t, nil
}

func group(s string, m []int, i int) string {
	if m[2*i] < 0 {
		return ""
	}
	return s[m[2*i]:m[2*i+1]]
}

func (t *Trigger) stall(body string, m []int) (err error) {
	if t.Name == "on" {
		t.Name = "stall"
	}
	t.Kind = KindStall
	if name := group(body, m, 1) + group(body, m, 2); name != "" {
		if t.Thread, err = regexp.Compile("^(?:" + name + ")$"); err != nil {
			return &Error{t.Text, "the name of a thread is a regular expression: " + err.Error(), strings.Index(t.Text, name)}
		}
	}
	if t.Least, err = time.ParseDuration(group(body, m, 3)); err != nil || t.Least <= 0 {
		return &Error{t.Text, "use a time such as 500ms", m[6]}
	}
	return nil
}

func (t *Trigger) grows(body string, m []int) (err error) {
	t.Kind, t.Name = KindState, "rss"
	if t.growth, err = strconv.ParseFloat(units(group(body, m, 1)), 64); err != nil || t.growth <= 0 {
		return &Error{t.Text, "use a size such as 100M", m[2]}
	}
	if t.For, err = time.ParseDuration(group(body, m, 2)); err != nil || t.For <= 0 {
		return &Error{t.Text, "use a time such as 10s", m[4]}
	}
	return nil
}

// units is a number with a unit as a plain one; what is none comes back as it is.
func units(s string) string {
	if d, err := time.ParseDuration(s); err == nil {
		return strconv.FormatInt(int64(d), 10)
	}
	for i, u := range "KMG" {
		if n, ok := strings.CutSuffix(s, string(u)); ok {
			if v, err := strconv.ParseFloat(n, 64); err == nil {
				return strconv.FormatFloat(v*float64(int64(1)<<(10*(i+1))), 'f', -1, 64)
			}
		}
	}
	return strings.TrimSuffix(s, "%")
}

var quantity = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h|K|M|G|%)`)

// translate replaces numbers with units by plain ones, and =~ by the library's word. places[i] is where byte i of the
// result stands in s.
func translate(s string) (out string, places []int) {
	var b strings.Builder
	add := func(text string, from int, moves bool) {
		for i := range len(text) {
			at := from
			if moves {
				at += i
			}
			places = append(places, at)
		}
		b.WriteString(text)
	}
	quote := byte(0)
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case quote != 0:
			if c == '\\' && i+1 < len(s) {
				add(s[i:i+2], i, true)
				i += 2
				continue
			}
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case strings.HasPrefix(s[i:], "=~"):
			add(" matches ", i, false)
			i += 2
			continue
		case c >= '0' && c <= '9' && (i == 0 || !isWord(s[i-1])):
			if q := quantity.FindString(s[i:]); q != "" && (i+len(q) == len(s) || !isWord(s[i+len(q)])) {
				add(units(q), i, false)
				i += len(q)
				continue
			}
		}
		add(s[i:i+1], i, true)
		i++
	}
	return b.String(), append(places, len(s))
}

func isWord(c byte) bool {
	return c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Holds of an interval. An expression that fails on a value does not hold.
func (t *Trigger) holds(env any) bool {
	out, err := expr.Run(t.run, env)
	if err != nil {
		return false
	}
	yes, _ := out.(bool)
	return yes
}
