package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
)

// What hb_leave is asked to do.
const (
	leaveSignal = 0
	leaveMemory = 1
)

// leaveLimit is how long threads are waited for that are in the agent.
const leaveLimit = 3 * time.Second

// Asleep is the error of a program that has been left, but for memory: threads of it sleep in calls that they made through
// the agent. It runs as if it had never been attached to; the next attach or detach takes the memory back.
type Asleep struct {
	PID, Threads int
	Confined     error // the program has confined its system calls meanwhile: nothing can be given back; nil: it has not
}

func (a *Asleep) Error() string {
	if a.Confined != nil {
		return fmt.Sprintf("%v; so the memory of the agent stays mapped", a.Confined)
	}
	return fmt.Sprintf("%d threads of process %d sleep in calls that began while it was recorded: the memory of the agent stays mapped until they wake up (hbtrace detach %d takes it back then)",
		a.Threads, a.PID, a.PID)
}

// Unhook gives the program its own calls back. From then on no call comes into the agent; those that are in it come out.
func (t *Target) Unhook() error {
	reached(StepLeaving)
	if !t.alive() {
		return ErrGone
	}
	if t.readMaps() != nil || t.readModules() != nil {
		return ErrGone
	}
	r, err := t.keptReals()
	if err != nil {
		return err
	}
	t.restore(r)
	for id := range thunkCount {
		if r[id].at != 0 {
			if err := t.write64(t.thunks+tableAt+8*uint64(id), r[id].at); err != nil {
				return err
			}
		}
	}
	if err := t.write64(t.thunks+tableAt+8*tableEnds, t.thunks+nothingAt); err != nil {
		return err
	}
	reached(StepRestored)
	return nil
}

// keptReals are the real functions as the page that stays has them.
func (t *Target) keptReals() (*reals, error) {
	b := make([]byte, 8*thunkCount)
	if err := t.read(t.thunks+realsAt, b); err != nil {
		return nil, err
	}
	r := &reals{}
	for id := range r {
		r[id].at = binary.LittleEndian.Uint64(b[8*id:])
	}
	return r, nil
}

// Leave takes back the rest, when nobody signals the program's threads any more: what the kernel does with the sampling signal, the
// descriptors, and, when no thread is in the agent, its memory.
func (t *Target) Leave() error {
	rec, err := t.record()
	if err != nil {
		return err
	}
	a := rec.Now
	if a.At == 0 {
		return nil
	}
	if err := t.checkSeccomp(); err != nil { // it may have confined itself since
		if !t.alive() {
			return ErrGone
		}
		return t.putAside(rec, &Asleep{PID: t.pid, Confined: err})
	}
	if err := t.run([]op{{kind: opFunc, nr: a.Leave, args: [6]uint64{leaveSignal}}}, t.doneAt()); err != nil {
		return err
	}
	reached(StepQuiet)
	in := t.outside(a.Text, a.Text+a.TextBytes, leaveLimit)
	if len(in) == 0 && t.startsPending(a) {
		in = []int{t.pid}
	}
	if len(in) > 0 {
		if !t.alive() {
			return ErrGone
		}
		return t.putAside(rec, &Asleep{PID: t.pid, Threads: len(in)})
	}
	reached(StepOutside)
	if err := t.unmap(rec, &rec.Now); err != nil {
		return err
	}
	reached(StepUnmapped)
	return nil
}

func (t *Target) doneAt() uint64 {
	return t.thunks + recordAt + uint64(unsafe.Offsetof(segment.Record{}.Done))
}

// startsPending: a thread has been made, and has not run its first instruction yet.
func (t *Target) startsPending(a segment.Area) bool {
	b := make([]byte, a.StartsBytes)
	if t.read(a.Starts, b) != nil {
		return false
	}
	each := len(b) / hbStarts
	for ; each > 0 && len(b) >= each; b = b[each:] {
		if binary.LittleEndian.Uint32(b) != 0 {
			return true
		}
	}
	return false
}

// hbStarts is HB_STARTS of hooks/life.h: how many entries hb_starts has; a test compares.
const hbStarts = 1024

// unmap has the program give back an area and all that its agent mapped.
func (t *Target) unmap(rec *record, a *segment.Area) error {
	at := t.thunks + recordAt + uint64(unsafe.Offsetof(segment.Record{}.Now))
	for i := range rec.old {
		if a == &rec.old[i] {
			at = t.thunks + recordAt + segment.RecordBytes + uint64(i)*segment.AreaBytes
		}
	}
	var ops []op
	if a.Leave != 0 {
		ops = append(ops, op{kind: opFunc, nr: a.Leave, args: [6]uint64{leaveMemory}})
	}
	ops = append(ops,
		op{kind: opCall, nr: sysMunmap, args: [6]uint64{a.At, a.Bytes}},
		op{kind: opStore, nr: at, args: [6]uint64{0}})
	if err := t.run(ops, t.doneAt()); err != nil {
		return err
	}
	*a = segment.Area{}
	if err := t.putRecord(rec); err != nil {
		return err
	}
	return t.readMaps()
}

// putAside notes the area in force as one that could not be taken back.
func (t *Target) putAside(rec *record, why *Asleep) error {
	for i := range rec.old {
		if rec.old[i].At == 0 {
			rec.old[i], rec.Now = rec.Now, segment.Area{}
			if err := t.putRecord(rec); err != nil {
				return err
			}
			return why
		}
	}
	return fmt.Errorf("process %d has been attached to %d times while its threads slept: let them wake up before the next time", t.pid, len(rec.old)+1)
}

// undo takes back what a failed Join has done so far.
func (t *Target) undo() error {
	if t.thunks == 0 || !t.alive() {
		return nil
	}
	if err := t.end(); err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("and what was mapped could not be taken back: %w", err)
	}
	return nil
}

// end ends whatever session the record names.
func (t *Target) end() error {
	rec, err := t.record()
	if err != nil || rec.Now.At == 0 {
		return err
	}
	if rec.Now.Leave == 0 || rec.Recorder == 0 { // the agent was never written
		var ops []op
		for _, fd := range []int32{rec.Socket, rec.Peer} {
			if fd > 2 && t.socketInode(fd) != 0 {
				ops = append(ops, op{kind: opCall, nr: sysClose, args: [6]uint64{uint64(fd)}})
			}
		}
		if len(ops) > 0 {
			if err := t.run(ops, t.doneAt()); err != nil {
				return err
			}
		}
		return t.unmap(rec, &rec.Now)
	}
	if err := t.Unhook(); err != nil {
		return err
	}
	return t.Leave()
}

// endEarlier takes back what an earlier recorder left in the program, if that one is dead.
func (t *Target) endEarlier() error {
	if err := t.findThunks(); err != nil || t.thunks == 0 {
		return err
	}
	if err := t.readModules(); err != nil {
		return err
	}
	rec, err := t.record()
	if err != nil {
		return err
	}
	if rec.Now.At != 0 {
		if start, err := startTicks(int(rec.Recorder)); rec.Recorder != 0 && err == nil && start == rec.RecorderStart && int(rec.Recorder) != os.Getpid() {
			return fmt.Errorf("process %d is being recorded by hbtrace already (process %d)", t.pid, rec.Recorder)
		}
		var asleep *Asleep
		if err := t.end(); err != nil && !errors.As(err, &asleep) {
			return err
		}
		if rec, err = t.record(); err != nil {
			return err
		}
	}
	for i := range rec.old {
		a := &rec.old[i]
		if a.At == 0 || len(t.outside(a.Text, a.Text+a.TextBytes, 0)) > 0 || t.startsPending(*a) {
			continue
		}
		if err := t.unmap(rec, a); err != nil {
			return err
		}
	}
	return nil
}

// Detach ends what a recorder that is dead has left in a process. found: there was something.
func Detach(pid int) (found bool, err error) {
	if err := Check(pid); err != nil {
		return false, err
	}
	t, err := open(pid)
	if err != nil {
		return false, err
	}
	defer t.Close()
	if err := t.own(0); err != nil {
		return false, err
	}
	rung, err := t.silent()
	if err != nil {
		return false, err
	}
	if err := t.findThunks(); err != nil || t.thunks == 0 {
		return rung, err
	}
	rec, err := t.record()
	if err != nil {
		return false, err
	}
	found = rec.Now.At != 0 || rung
	for i := range rec.old {
		found = found || rec.old[i].At != 0
	}
	if !found {
		return false, nil
	}
	if err := t.checkSeccomp(); err != nil {
		return found, err
	}
	if err := t.endEarlier(); err != nil {
		return found, err
	}
	if rec, err = t.record(); err != nil {
		return found, err
	}
	left := 0
	for i := range rec.old {
		if rec.old[i].At != 0 {
			left++
		}
	}
	if left > 0 {
		return true, &Asleep{PID: pid, Threads: left}
	}
	return found, nil
}
