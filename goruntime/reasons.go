package goruntime

import (
	"strings"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// The runtime's wait reasons by number, from 0 (runtime2.go, waitReasonStrings). New ones were added at the end up to Go
// 1.23, in the middle in 1.24 and 1.25; 1.26 has them in another order.
const reasons20 = "|GC assist marking|IO wait|chan receive (nil chan)|chan send (nil chan)|dumping heap|garbage collection|garbage collection scan|" +
	"panicwait|select|select (no cases)|GC assist wait|GC sweep wait|GC scavenge wait|chan receive|chan send|finalizer wait|" +
	"force gc (idle)|semacquire|sleep|sync.Cond.Wait|sync.Mutex.Lock|sync.RWMutex.RLock|sync.RWMutex.Lock|trace reader (blocked)|" +
	"wait for GC cycle|GC worker (idle)|GC worker (active)|preempted|debug call|GC mark termination|stopping the world|" +
	"flushing proc caches|trace goroutine status|trace proc status|page trace flush|coroutine|GC weak to strong wait"

const reasons26 = "|GC assist marking|IO wait|dumping heap|garbage collection|garbage collection scan|panicwait|GC assist wait|" +
	"GC sweep wait|GC scavenge wait|finalizer wait|force gc (idle)|GOMAXPROCS updater (idle)|semacquire|sleep|chan receive (nil chan)|" +
	"chan send (nil chan)|select (no cases)|select|chan receive|chan send|sync.Cond.Wait|sync.Mutex.Lock|sync.RWMutex.RLock|" +
	"sync.RWMutex.Lock|sync.WaitGroup.Wait|trace reader (blocked)|wait for GC cycle|GC worker (idle)|GC worker (active)|preempted|" +
	"debug call|GC mark termination|stopping the world|flushing proc caches|trace goroutine status|trace proc status|page trace flush|" +
	"coroutine|GC weak to strong wait"

const (
	added24 = "|synctest.Run|synctest.Wait|chan receive (synctest)|chan send (synctest)|select (synctest)"
	added25 = "|synctest.Run|synctest.Wait|chan receive (durable)|chan send (durable)|select (durable)|sync.WaitGroup.Wait (durable)|" +
		"cleanup wait"
)

// Reasons are the wait reasons of a version, by number.
func Reasons(minor int) []string {
	s := reasons20
	switch {
	case minor >= 26:
		s = reasons26 + added25
	case minor >= 25:
		s = strings.Replace(s, "|semacquire", "|GOMAXPROCS updater (idle)|semacquire", 1) + added25
	case minor >= 24:
		s += added24
	}
	if minor == 24 || minor == 25 {
		s = strings.Replace(s, "|trace reader", "|sync.WaitGroup.Wait|trace reader", 1)
	}
	return strings.Split(s, "|")
}

// waits are the reasons that are recorded, and what such a wait is called in a recording. Reasons that only the runtime's own
// goroutines have are not recorded.
var waits = map[string]trace.HookID{
	"IO wait": hooks.GoIoWait, "chan receive (nil chan)": hooks.GoChanReceiveNil, "chan send (nil chan)": hooks.GoChanSendNil,
	"select": hooks.GoSelect, "select (no cases)": hooks.GoSelectNoCases, "GC assist wait": hooks.GoGcAssistWait,
	"GC assist marking": hooks.GoGcAssistWait, "garbage collection": hooks.GoGcWait, "garbage collection scan": hooks.GoGcWait,
	"GC weak to strong wait": hooks.GoGcWait, "wait for GC cycle": hooks.GoWaitForGcCycle, "stopping the world": hooks.GoStopTheWorld,
	"chan receive": hooks.GoChanReceive, "chan send": hooks.GoChanSend, "semacquire": hooks.GoSemacquire, "sleep": hooks.GoSleep,
	"sync.Cond.Wait": hooks.GoCondWait, "sync.Mutex.Lock": hooks.GoMutexLock, "sync.RWMutex.RLock": hooks.GoRwmutexRlock,
	"sync.RWMutex.Lock": hooks.GoRwmutexLock, "sync.WaitGroup.Wait": hooks.GoWaitgroupWait, "coroutine": hooks.GoCoroutine,
	"dumping heap": hooks.GoStopTheWorld, "": hooks.GoWait, "synctest.Run": hooks.GoWait, "synctest.Wait": hooks.GoWait,
	"chan receive (synctest)": hooks.GoChanReceive, "chan send (synctest)": hooks.GoChanSend, "select (synctest)": hooks.GoSelect,
	"chan receive (durable)": hooks.GoChanReceive, "chan send (durable)": hooks.GoChanSend, "select (durable)": hooks.GoSelect,
	"sync.WaitGroup.Wait (durable)": hooks.GoWaitgroupWait,
}

// hookNumbers is Reasons as the mapped code wants it.
func hookNumbers(minor int) (out [segment.GoReasons]uint8) {
	for i, r := range Reasons(minor) {
		if id, ok := waits[r]; ok && i < len(out) {
			out[i] = uint8(id - segment.GoHook)
		}
	}
	return out
}
