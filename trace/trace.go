// Package trace is the vocabulary that every stage shares: what one recorded event is, and the processes,
// threads and modules it speaks of. It holds no algorithm and depends on nothing of hbtrace's.
//
// The life of an event: an agent writes a raw record into the ring (segment/layout.h); the collector turns it
// into an [Event] whose stack is one id of the stacktable; blockbuf keeps it; tracefile stores it;
// visualize reads it back through [Source].
package trace

import (
	"strconv"
	"time"
)

// ProcID, ThreadID and ModuleID are unique within one recording and start at 1; 0 means unknown.
// An operating system's pid or tid may occur several times in a recording, these never do.
type (
	ProcID   uint32
	ThreadID uint32
	ModuleID uint32
)

// StackID names a node of the recording's (parent, address) table: the stack that ends in that node.
// 0 is the empty stack.
type StackID uint32

// Ns is a point in time: CLOCK_MONOTONIC nanoseconds of the machine that was recorded.
type Ns int64

// Kind says what an event is.
type Kind uint8

const (
	KindCPU         Kind = iota + 1 // sample for the CPU profile, which is computed from these (and KindThreadExit's rest) alone. CPU is its weight, 0 when no sampling point was passed; Hook the call that it lies in, or 0 and Object where the run of work began that it lies in
	KindGap                         // async sample of a thread that burned CPU and passed no hook: timeline only
	KindSync                        // sample taken at a hook in a new tick: timeline only
	KindEnter                       // entered a call that parks; the thread may be blocked from here on
	KindWait                        // interval [Start, Time]: waited for a lock, condition, semaphore, barrier, thread or futex
	KindCall                        // interval [Start, Time]: a blocking call longer than the threshold
	KindRelease                     // let Object go while somebody waited for it; Debt is the delay it caused
	KindAlloc                       // sampled allocation: Object is the address, Size the bytes requested, Weight the bytes it stands for
	KindFree                        // a sampled allocation was freed: Object is the address
	KindThreadStart                 // first event of a thread
	KindThreadExit                  // last event of a thread; CPU is the CPU time since its last KindCPU, which nothing else accounts for
	KindLost                        // Count records of this thread were lost before this moment
	KindOff                         // interval [Start, Time]: off its CPU, as the kernel saw it (recorded with privileges only). Not in its thread's order: may be stored late, Same is 0
	KindHold                        // interval [Start, Time]: had Object, for which others waited when it let go; Stack and Hook are where it took it. Not in its thread's order: Same is 0
	KindUsage                       // interval [Start, Time]: what the kernel counted of the thread in it: Size minor and Weight major page faults, Object voluntary and Object2 involuntary context switches, Debt how long it was ready to run and had no CPU (0 where KindOff tells). Not in its thread's order
	KindKnob                        // how much detail is recorded changed, of all threads: Object is the Knob, Object2 its value before and Size from here on (0: as configured). Thread is the first that was met, to have one. Not in its order
)

// Next to says that events of a kind stand next to their thread's own account: in no order with its other events, and no
// part of where its time went.
func (k Kind) Beside() bool { return k == KindOff || k == KindHold || k == KindUsage || k == KindKnob }

// Knob is what a KindKnob event changed: how much detail is recorded from there on, of all threads.
type Knob uint64

const (
	KnobTicks       Knob = iota + 1 // ticks from one wake-up of the sampler to the next
	KnobGaps                        // 1: no samples for the timeline alone
	KnobHolds                       // acquisitions of hot locks that a thread notes in a tick
	KnobAllocPeriod                 // least mean bytes between sampled allocations
	KnobCPUPeriod                   // ns of CPU time for each sampling point of a thread
	KnobWaits                       // shorter waits (ns) are only counted
	KnobCalls                       // shorter calls (ns) are only counted
	KnobWriters                     // 1: who wrote to a descriptor is not looked up
	KnobLast        = KnobWriters
)

// Flags of an event.
type Flags uint16

const (
	FlagStackCut     Flags = 1 << iota // callers are missing at the root end
	FlagStackGuessed                   // at least one frame was found by a guess
	FlagStackOmitted                   // frames are missing in the middle; a marker frame says how many
	FlagLate                           // the sample was taken when a call was entered, for work before it, or where the thread had been preempted
	FlagInterrupted                    // interval ended by EINTR
	FlagTimedOut                       // interval ended by its time-out: nobody released it
	FlagFailed                         // interval ended in another error
	FlagUnwound                        // interval left by exception, cancellation or longjmp
	FlagOpen                           // interval had not ended when recording did: Time is the end of the recording
	FlagCertain                        // Releaser is the only candidate
	FlagNoStack                        // no stack was taken: Stack is 0
	FlagSameCall                       // the frame at depth Same is the same invocation as the one at that depth before, at another instruction: one span
	FlagPreempted                      // with FlagLate: a signal that found its thread preempted; Stack is where it stood
	FlagSyscallEnd                     // KindCPU: a signal that was taken where a system call ended
	FlagSameCPU                        // KindCPU: a signal that was sent on the thread's own CPU, by interrupting it
)

// Event is one thing that happened on one thread. Fields that a kind does not use are zero.
//
// KindOff uses fields of others: Object and Object2 are the CPUs that it left and went on at, Result the state that it
// was in ([OffRunnable] …), Release when it could run again (0: it could all the time), Releaser the thread of the
// recording that woke it, Size the waker's thread id in the kernel's numbering (0: none was running), Weight [OffByThread] …. Its stack is
// the kernel's frames on top of the program's, the latter by frame pointers.
//
// Equal neighbours of a thread (same Kind, Stack, Same == depth of Stack) are merged: Count says how many
// there were, Start the time of the first, Time that of the last, CPU their sum. A sample taken at the entry of a call
// that blocked and came to an end is not an event next to the call's interval.
type Event struct {
	Kind     Kind
	Flags    Flags
	Hook     HookID // the wrapped function at the leaf; 0 for async samples
	Thread   ThreadID
	Time     Ns // when; for intervals and merged runs the end
	Start    Ns // intervals and merged runs: the beginning; otherwise == Time
	Stack    StackID
	Same     uint32   // frames, counted from the root, that are the same invocations as in the thread's previous event with a stack
	Count    uint32   // samples merged into this event; 1 for intervals
	CPU      int64    // ns of thread CPU time this event stands for (KindCPU, KindThreadExit)
	Object   uint64   // lock, futex or allocation address, or descriptor; KindCPU: return address of the call before the run of work, 0 unknown or a run like no other
	Object2  uint64   // condition wait: the mutex; poll with a Releaser: the descriptor that was ready
	Size     uint64   // allocation: bytes requested. Wait with a Weight above 1: how likely it is that Releaser is the one, in thousandths; 0 not estimated
	Weight   uint64   // KindCPU: what the sample counts for next to others of its Object, in 256ths; 0: as one. Allocation: bytes this sample stands for; objects = Weight/Size. Wait, and call that signals: how many threads may have ended it, of whom Releaser is one; 0 one, or not counted
	Debt     int64    // release: ns of delay caused; KindUsage: ns of delay by others on its CPU
	Result   int64    // interval: the call's return value or -errno
	Owner    ThreadID // wait: who held the object when the wait began; 0 unknown
	Releaser ThreadID // wait: who let go last before it ended; call: who wrote what it waited for; 0 unknown
	Release  Ns       // wait: when the releaser let go; release: when the lock had been taken (0 unknown)
}

// Result of a KindOff: why the thread was taken off its CPU. Other values are the kernel's task states as they are.
const (
	OffRunnable        = 0 // it had to make room
	OffInterruptible   = 1 // it waited for something
	OffUninterruptible = 2 // for a disk, a page, or a lock of the kernel's
)

// Weight of a KindOff: what let it go on.
const (
	OffByThread    = 0 // a thread woke it, or nobody had to
	OffByInterrupt = 1 // a timer or a device, while Size happened to be running
	OffNew         = 2 // it had not run before: Start is its creation
)

// Runnable is when a thread of whom a KindOff tells could run again, and whether it had to wait for a CPU then.
func (e *Event) Runnable() (since Ns, waited bool) {
	since = e.Release
	if since == 0 && e.Result == OffRunnable {
		since = e.Start
	}
	return since, since != 0 && since < e.Time
}

// HookID is a number of hooks/table.h. Its name and class are in package hooks, and, for reading files of other
// versions, in [Meta.Hooks].
type HookID uint16

// Site is a place in the program: a stack, and the wrapped function that its leaf called.
type Site struct {
	Stack StackID
	Hook  HookID // 0: none
}

// Process is one process of the recording; exec starts a new one.
type Process struct {
	ID      ProcID
	Parent  ProcID // the recorded process that forked it or that exec replaced; 0 none
	PID     int    // in the recorder's pid namespace where known, else as the process saw itself
	PPID    int
	Start   Ns
	End     Ns     // 0: still running when the recording ended
	Exe     string // path as the process saw it
	Cmdline []string
	Forked  bool // began by fork without exec
	// Doubt: what this process could not record; see segment/layout.h hb_proc for each.
	Doubt ProcDoubt
}

// ProcDoubt counts what is missing or uncertain in one process.
type ProcDoubt struct {
	Lost, SignalsForeign, SignalsStray, WalksRefused, AllocTableFull, HooksUnresolved, BootAllocs, ModulesLost uint64
	SmallStacks                                                                                                uint64 // alternate signal stacks without room for our handler
	CodesUnnamed, PythonCut                                                                                    uint64 // frames of Python without a name; stacks of Python that end in memory that holds no frame
	SyncOnly, MutexOpaque, HandlerChained                                                                      bool
	Disabled                                                                                                   string // why the agent stopped recording; "" = it did not
}

// Thread is one thread of the recording.
type Thread struct {
	ID           ThreadID
	Proc         ProcID
	Parent       ThreadID // who created it; 0 unknown
	TID          int
	Name         string // the last name it had
	Start        Ns
	End          Ns   // 0: still alive when the recording ended
	StartRoutine Addr // zero for main threads and lazily met ones
	Main, Lazy   bool
	Goroutine    bool  // a goroutine of a Go program: TID is its number, and its CPU time an estimate by samples
	CPU          int64 // ns of CPU time used while recorded, sampled or not; -1 unknown
	// Exact counters, kept whether sampled or not.
	AllocObjects, AllocBytes, FreeObjects uint64
	Calls, CallsSlow, Waits               uint64
	WaitNs                                int64
	Lost                                  uint64 // records dropped
	Samples, SignalsSent                  uint64
}

// goroutineTIDs is where the numbers of goroutines begin in formats that know threads by one number: above the kernel's (2^22).
const goroutineTIDs = 1 << 23

// ExportTID is the thread's number for formats that have one space of numbers for all threads: TID, and for a goroutine, whose
// number may also be a thread's or that of another program's goroutine, one that no other has.
func (t *Thread) ExportTID() int {
	if t.Goroutine {
		return goroutineTIDs + int(t.ID)
	}
	return t.TID
}

// ExportName is the thread's name for such formats: a goroutine has its number in it.
func (t *Thread) ExportName() string {
	if t.Goroutine && t.TID != 0 {
		return t.Name + "/" + strconv.Itoa(t.TID)
	}
	return t.Name
}

// Module is one mapped object. Addresses in stacks are ELF virtual addresses of a module, so that processes,
// restarts and ASLR share them.
type Module struct {
	ID      ModuleID
	Path    string // as mapped; "[vdso]" for the vDSO
	BuildID string // lower-case hex; "" none
	Kind    ModuleKind
	Proc    ProcID // of ModuleAnon: whose memory it is
	// Where it was mapped first; pprof wants a range. Bias = address - ELF virtual address.
	Lo, Hi, Bias uint64
	Code         Code   // of ModuleELF; zero where the file was not there, or has not one segment of code
	Func         string // of ModulePython: the function's qualified name; "" unknown
	Line         int    // of ModulePython: its first
	// Variables are the module's that threads waited for, by ELF virtual address of what they waited for.
	Variables map[uint64]Variable
}

// Code is a file's segment of code: ELF virtual addresses, whole pages, and the offset in the file that Lo has.
type Code struct{ Lo, Hi, Offset uint64 }

// Variable is a place in a module's data.
type Variable struct {
	Name string // demangled
	Off  uint64 // bytes from its beginning
}

// ModuleKind tells files from the rest.
type ModuleKind uint8

const (
	ModuleELF ModuleKind = iota
	ModuleVDSO
	ModuleAnon   // executable memory with no file: JIT code, trampolines; addresses are absolute
	ModuleKernel // the kernel; addresses are absolute
	ModulePython // one function of Python, Func, of the source file Path; addresses are lines
)

// Addr is an address as stacks hold it.
type Addr struct {
	Module ModuleID // 0: in no known module, Off is absolute
	Off    uint64   // ELF virtual address in Module
}

// How says how a frame was found: the HB_PC_* numbers of segment/layout.h.
type How uint8

const (
	HowExact  How = iota + 1 // the interrupted instruction: symbolise this very address
	HowCaller                // a hook's own return address
	HowFP                    // return address, by frame pointer
	HowTable                 // return address, by unwind table
	HowGuess                 // return address, sniffed
	HowMark                  // no address: Addr.Off frames were omitted here
)

// Node is one frame of a stack: the frame and, through Parent, its callers.
type Node struct {
	Parent StackID // 0: outermost frame
	Addr   Addr
	How    How
}

// Lookup is the address to symbolise a frame with: the call instruction, not the return address behind it.
func (n Node) Lookup() uint64 {
	if n.How == HowExact || n.Addr.Off == 0 {
		return n.Addr.Off
	}
	return n.Addr.Off - 1
}

// SymFrame is one function at an address; inlined calls give several per address, innermost first.
type SymFrame struct {
	Func    string // demangled
	Linkage string // as in the symbol table
	File    string
	Line    int
	Inlined bool // this function was inlined into the next one
}

// Meta describes a recording.
type Meta struct {
	Version                          string    // of the hbtrace that recorded
	Started                          time.Time // wall clock at StartNs
	StartNs                          Ns        // first instant of the recording
	EndNs                            Ns
	BoottimeOffset                   int64 // CLOCK_BOOTTIME - CLOCK_MONOTONIC at start
	Host, Kernel, Arch               string
	CPUs                             int
	Command                          []string
	Features                         []string // cpu, alloc, lock, syscall
	Freq                             int      // periodic samples per second of CPU
	TickNs                           int64
	AllocPeriod                      uint64
	CallThresholdNs, LockThresholdNs int64
	ExitStatus                       int                 // of the recorded command; -1 unknown
	ExitSignal                       int                 // it died by this signal; 0 none
	Hooks                            map[HookID]HookInfo // the table in force when it was recorded
	Dump                             Dump                // of a flight recorder's window; zero: it is no dump
	Attached                         []Attached          // programs that ran already: hbtrace attach
}

// Attached is a program that ran already when it was recorded.
type Attached struct {
	Proc     ProcID // 0: it made no recorded call
	PID      int
	At, Left Ns // when its calls were redirected, and when they were given back; Left 0: it had ended, or the recorder was killed
	Threads  []Before
}

// Before is a thread as it was when hbtrace attached.
type Before struct {
	TID    int
	Name   string
	State  string   // the letter of /proc/PID/stat
	Call   string   // the system call that it slept in, by name or number; "" it ran
	ForNs  int64    // how long it had not run by then; 0 not known
	Thread ThreadID // as which it is in the recording; 0: it is not
	Slept  bool     // it slept in that call all the time: its only event is that call, from Attached.At on, with FlagOpen and FlagNoStack
}

// Dump says why a dump of a flight recorder was made, and of what.
type Dump struct {
	Session string
	Keep    string   // bounds of the window, as --keep takes them
	Bound   string   // the bound that was met: time, size; "" none yet
	Why     string   // asked, trigger, crash, recovered: see Dumped…
	Trigger string   // the expression that held
	Event   string   // what it held of, one line
	Chain   []string // who waited for whom at that moment, one line each, the first is the event's thread
	Thread  ThreadID // whose event it was; 0 none
	// Of the event; 0 none.
	Start, End Ns
}

// Why a dump was made.
const (
	DumpedAsked     = "asked"
	DumpedTrigger   = "trigger"
	DumpedRecovered = "recovered" // of a recorder that was killed
)

// HookInfo names a hook for readers of the file.
type HookInfo struct {
	Name   string
	Class  HookClass
	Object HookObject
}

// HookClass is what a hooked function does, HookObject what its Object is, as hooks/table.h spells them.
type (
	HookClass  string
	HookObject string
)

// Those that readers tell apart.
const (
	HookLock HookClass  = "LOCK" // takes a lock
	HookCond HookClass  = "COND" // waits on a condition variable
	HookSem  HookClass  = "SEM"  // waits on a semaphore
	HookWake HookClass  = "WAKE" // lets waiters go on
	HookCall HookClass  = "CALL" // a call that can sleep
	HookFD   HookObject = "FD"   // a descriptor
)

// Stats is the account of one recording: what it kept, what it lost and what it cost.
type Stats struct {
	Records, RecordBytes                     uint64 // raw records drained from the ring
	Lost                                     uint64 // records dropped by agents
	Gaps                                     uint64 // sequence gaps that were seen in the stream (each is a KindLost event)
	Broken                                   uint64 // records that made no sense: skipped
	Events, EventBytes                       uint64 // stored, after merging; bytes before compression
	Samples                                  uint64 // samples taken: records of KindCPU, KindGap, KindSync and KindEnter, intervals not included
	SampleEvents, SampleBytes                uint64 // events that they became by merging, and bytes of these
	Overwritten                              uint64 // events that the block buffer no longer had when they were to be stored
	Nodes                                    uint64 // distinct nodes in the recording
	NodesCollected                           uint64 // times that one was taken out of the recorder's stack table because nothing needed it any more
	NodeBytes, NodesCap                      uint64 // largest size of the stack table, and how many nodes it could hold
	HistoryBytes                             uint64 // size of the history between ring and file
	HistoryNs                                uint64 // what it held at the end: from the first event in it to the last
	Ticks, TicksMissed, TicksLateNs          uint64 // sampler
	SignalsSent, SignalsFailed, SignalsStuck uint64
	ThreadsUnslotted, ProcsUnslotted         uint64
	SubbufsLost                              uint64       // sub-buffers given up because a producer died holding one
	ProcsRefused                             uint64       // processes that refused the segment
	Unrecorded                               []Unrecorded // programs below the command that were not recorded, as far as they were seen
	CollectorCPU, SamplerCPU                 time.Duration
	AgentCPU                                 time.Duration // a part of TargetCPU: the agent's, as it measured itself
	TargetCPU                                time.Duration // user+system of the recorded command and its waited-for children
	Notes                                    []string      // one line each: what could not be hooked or recorded, and why
	Complete                                 bool          // the recording was closed properly
}

// Unrecorded is a program of which processes below the command were not recorded. Short ones may have been missed.
type Unrecorded struct {
	Program, Reason string
	Count           uint64        // processes
	CPU             time.Duration // user+system
}

// Source is a recording that can be read. Implementations: tracefile.Reader, and in tests a slice.
// Methods other than Events may be called from several goroutines; results must not be modified.
type Source interface {
	Meta() *Meta
	Stats() *Stats
	Processes() []Process
	Threads() []Thread
	Modules() []Module
	// Node returns a stack's leaf frame; Node(0) is the zero Node.
	Node(StackID) Node
	// Nodes is the number of nodes: ids run from 1 to Nodes().
	Nodes() int
	// EventBatches calls f for every event in stored order, some at a time. Events of one thread come in the order they
	// happened; threads interleave roughly by time. They are f's until it calls done, once, from any goroutine and also after
	// it has returned: only then is their memory used again. Nothing more comes while too many are kept. An error of f ends
	// it and is returned.
	EventBatches(f func(events []Event, done func()) error) error
	// Symbols resolves a node's frame, innermost inlined function first; nil when nothing is known.
	Symbols(StackID) []SymFrame
	// Summary is what a run stored of its events at its end, for package analysis/stored; nil where nothing was stored, or
	// where it is not to be trusted.
	Summary() []byte
}
