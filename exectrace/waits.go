package exectrace

import (
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
	exp "golang.org/x/exp/trace"
)

// reasons are those of the runtime's tracer for a goroutine that stops (traceBlockReasonStrings), and what such a wait is called in
// a recording. Locks have one reason for all of them: those are told apart by their stacks.
var reasons = map[string]trace.HookID{
	"network": hooks.GoIoWait, "select": hooks.GoSelect, "sync.(*Cond).Wait": hooks.GoCondWait, "sync": hooks.GoSemacquire,
	"chan send": hooks.GoChanSend, "chan receive": hooks.GoChanReceive, "GC mark assist wait for work": hooks.GoGcAssistWait,
	"GC background sweeper wait": hooks.GoGcWait, "wait until GC ends": hooks.GoWaitForGcCycle, "sleep": hooks.GoSleep,
	"forever": hooks.GoSelectNoCases, "GC weak to strong wait": hooks.GoGcWait,
}

// callers are functions whose wait for a semaphore, or without a reason, is theirs.
var callers = map[string]trace.HookID{
	"sync.(*Mutex).Lock": hooks.GoMutexLock, "sync.(*RWMutex).RLock": hooks.GoRwmutexRlock, "sync.(*RWMutex).Lock": hooks.GoRwmutexLock,
	"sync.(*WaitGroup).Wait": hooks.GoWaitgroupWait, "sync.(*Cond).Wait": hooks.GoCondWait, "time.Sleep": hooks.GoSleep,
	"runtime.chanrecv1": hooks.GoChanReceive, "runtime.chanrecv2": hooks.GoChanReceive, "runtime.chansend1": hooks.GoChanSend,
	"runtime.selectgo": hooks.GoSelect, "internal/poll.runtime_pollWait": hooks.GoIoWait,
}

// waitHook is what a wait is called. The outermost of callers decides: a RWMutex has a Mutex.
func waitHook(reason string, s exp.Stack) trace.HookID {
	hook, ok := reasons[reason]
	if ok && hook != hooks.GoSemacquire {
		return hook
	}
	if !ok {
		hook = hooks.GoWait
	}
	for f := range s.Frames() {
		if h, ok := callers[f.Func]; ok {
			hook = h
		}
	}
	return hook
}
