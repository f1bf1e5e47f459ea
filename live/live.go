// Package live is how a recording that runs tells what its threads are doing at this moment: live.go is what it tells,
// server.go the recorder's side, client.go the reader's side.
//
// A recorder listens on an abstract socket whose name begins with [Prefix] and its pid, so that it is found in
// /proc/net/unix and vanishes with it. Who connects gets one [Snapshot] as JSON, and the connection is closed. Both sides ask
// the kernel who the other is: a recorder answers its own user and root, and nobody else is listened to. The
// recorded program takes no part in it.
package live

import "github.com/hbtrace/hbtrace/trace"

// Version is that of the form; a client refuses others.
const Version = 1

// Snapshot is one moment of a recording.
type Snapshot struct {
	Version   int
	Recorder  int    // pid
	Output    string // path of the recording, absolute
	Command   []string
	Start     trace.Ns // of the recording
	Now       trace.Ns
	Lost      uint64 // records, so far
	Processes []trace.Process
	Threads   []Thread
	Modules   []trace.Module // that frames and objects lie in
	Nodes     []trace.Node   // a stack is 1 + the index of its leaf frame in here
}

// Thread is what one thread is doing.
type Thread struct {
	trace.Thread
	Hook   trace.HookInfo // the call that it is in and may sleep in; zero: none
	Waits  bool           // that call is a wait for another thread: a [trace.KindWait]
	Since  trace.Ns       // when that call began
	Object uint64         // address waited for, descriptor, … as Hook.Object says
	Place  trace.Addr     // the address in a module; Module 0: in none
	Owner  trace.ThreadID // who had the lock when the wait began; 0 unknown

	// Stack is the call's if Exact, and the call's caller alone if not; outside of calls it is the newest one.
	Stack     trace.StackID // 0 none
	StackTime trace.Ns
	Exact     bool

	// From the kernel: ns on a CPU and ready to run since the thread began, -1 unknown, and its state (R, S, D, …),
	// "" unknown.
	CPUNs, ReadyNs int64
	Kernel         string
}
