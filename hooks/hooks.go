// Package hooks is the list of functions that hbtrace wraps, as Go sees it. table.h is the list; zhooks.go is
// made from it; hooks.go gives its columns types and finds entries by id.
package hooks

//go:generate go run ./gen

import "github.com/hbtrace/hbtrace/trace"

// Class says what kind of thing a wrapped function does.
type Class uint8

const (
	ClassNone   Class = iota
	ClassAlloc        // allocation
	ClassLock         // taking a lock
	ClassUnlock       // letting a lock go
	ClassCond         // waiting on a condition variable
	ClassSem          // waiting on a semaphore
	ClassWake         // letting waiters go
	ClassSync         // barrier, join, futex
	ClassCall         // call that can sleep
	ClassLife         // thread and process life
	ClassSignal       // signal dispositions and masks
	ClassLoad         // dlopen and kin
)

var classNames = [...]string{"NONE", "ALLOC", "LOCK", "UNLOCK", "COND", "SEM", "WAKE", "SYNC", "CALL", "LIFE", "SIGNAL", "LOAD"}

// String is the class as table.h spells it.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[ClassNone]
}

// Waits says whether an interval of this class is a wait for another thread: a trace.KindWait. Intervals of
// other classes are calls.
func (c Class) Waits() bool {
	return c == ClassLock || c == ClassCond || c == ClassSem || c == ClassSync
}

// Object says what the object of a hook's records is.
type Object uint8

const (
	ObjectNone Object = iota
	ObjectFD          // a descriptor
	ObjectAddr        // an address
	ObjectPID         // a process id, as waitpid takes it
	ObjectNs          // the time asked for
)

var objectNames = [...]string{"NONE", "FD", "ADDR", "PID", "NS"}

// String is the object kind as table.h spells it.
func (o Object) String() string {
	if int(o) < len(objectNames) {
		return objectNames[o]
	}
	return objectNames[ObjectNone]
}

// Info is one line of the table.
type Info struct {
	ID      trace.HookID
	Name    string // the symbol that is interposed, or the Go runtime's reason for a wait
	Class   Class
	Object  Object
	Parks   bool   // whoever enters usually sleeps
	Version string // glibc symbol version; "" = the only one; "syscall" = met inside syscall(); "go" = a wait of the Go runtime, "python" = CPython's GIL
}

// Go says that the entry is no function but what a goroutine waits for.
func (i Info) Go() bool { return i.Version == "go" }

var byID = func() []Info {
	t := make([]Info, Table[len(Table)-1].ID+1)
	for _, h := range Table {
		t[h.ID] = h
	}
	return t
}()

// ByID is the entry of id; false, and a zero Info, for ids that this version does not have.
func ByID(id trace.HookID) (Info, bool) {
	if int(id) >= len(byID) || byID[id].ID == 0 {
		return Info{}, false
	}
	return byID[id], true
}

// Map is the table as a recording carries it.
func Map() map[trace.HookID]trace.HookInfo {
	m := make(map[trace.HookID]trace.HookInfo, len(Table))
	for _, h := range Table {
		m[h.ID] = trace.HookInfo{Name: h.Name, Class: trace.HookClass(h.Class.String()), Object: trace.HookObject(h.Object.String())}
	}
	return m
}
