// What a thread does: one list of states, and one judgement of which a wait or call is, for all views.

package weigh

import (
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

// State is what a thread was doing.
type State uint8

// The states. Views show them in this order.
const (
	Unknown  State = iota // nothing tells
	Running               // on a CPU, at the place of the sample that the time was counted by
	Off                   // off the CPU between two samples, in no recorded wait: ready to run, or waits under the thresholds
	Locked                // waited for a mutex, rwlock or futex that is one
	Signaled              // waited for a condition, semaphore, barrier or thread
	InOut                 // read, write, send, receive, sync
	Polling               // waited until a descriptor is ready
	Other                 // waited for a process, signal or queue
	Sleeping
	Ready // could have run, and did not: the kernel's word (trace.KindOff)
	NumStates
)

var stateNames = [NumStates]string{
	"unknown", "running", "off the CPU", "waiting for a lock", "waiting for a signal or thread", "reading or writing",
	"waiting for I/O to be ready", "waiting for a process", "sleeping", "ready to run",
}

// String is the state's name for people.
func (s State) String() string {
	if s >= NumStates {
		return "unknown"
	}
	return stateNames[s]
}

var stateLabels = [NumStates]string{"unknown", "running", "off", "lock", "signal", "io", "poll", "process", "sleep", "ready"}

// Label is the state in one word, for labels, categories and programs.
func (s State) Label() string { return stateLabels[min(s, NumStates)%NumStates] }

// StateOf sorts a wait (for a lock or not) or a blocking call by hook h into a state.
func StateOf(k trace.Kind, h trace.HookInfo, lock bool) State {
	if k == trace.KindWait {
		if lock {
			return Locked
		}
		return Signaled
	}
	if h.Class == trace.HookWake { // it lets others go on, and had to wait for that
		return Signaled
	}
	name := strings.Trim(strings.TrimSuffix(h.Name, "_chk"), "_")
	switch {
	case strings.HasPrefix(name, "wait"), strings.HasPrefix(name, "sig"), strings.HasPrefix(name, "sem"),
		strings.HasPrefix(name, "msg"), name == "pause":
		return Other
	case strings.Contains(name, "poll"), strings.Contains(name, "select"), strings.HasPrefix(name, "accept"):
		return Polling
	case strings.Contains(name, "sleep"):
		return Sleeping
	}
	return InOut
}
