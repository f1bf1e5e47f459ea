package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// A program that has preloaded the dormant agent (agent/dormant.h) is made to work without a stop: the work is written into its bell, its
// calls are led to its ring, and the first one that arrives does the work. Nothing of the ring is ever taken away, so it needs no proof
// that no thread is in it.

// bell is the dormant agent of a program.
type bell struct {
	segment.Dormant
	reals *reals // by which the ring's table was filled; nil: not yet
}

// Limits of the wait for a call.
const (
	ringFirst = time.Second      // where a thread can be stopped instead
	ringLong  = 30 * time.Second // where none can
)

// errSilent: no call came.
var errSilent = errors.New("it has made no call that the dormant agent would notice")

// findDormant looks for a dormant agent among the modules. One of another version is noted and not used.
func (t *Target) findDormant() {
	t.bell, t.otherBell = nil, 0
	const few = 64 // symbols: it has one
	for i := range t.modules {
		m := &t.modules[i]
		if len(m.symbols) > few*symBytes {
			continue
		}
		m.each(func(_ uint64, s symbol) {
			b := make([]byte, segment.DormantBytes)
			if s.name != "hb_dormant" || s.index == 0 || t.read(m.bias+s.value, b) != nil {
				return
			}
			var d segment.Dormant
			if d.Decode(b); d.Magic != segment.DormantMagic {
				return
			}
			if d.Version != segment.DormantVersion || d.Bytes != segment.DormantBytes {
				t.otherBell = d.Version
				return
			}
			if d.Bell != 0 && d.Ring != 0 && d.Table != 0 {
				t.bell = &bell{Dormant: d}
			}
		})
	}
}

// OtherVersion says so where the program has a dormant agent that this hbtrace does not wake; "" where it has none or ours.
func (t *Target) OtherVersion() string {
	if t.otherBell == 0 {
		return ""
	}
	return fmt.Sprintf("process %d has a dormant agent of version %d, and this hbtrace wakes version %d: restart it with the one that hbtrace preload names, or attach with the hbtrace that it came from",
		t.pid, t.otherBell, segment.DormantVersion)
}

// Dormant says what dormant agent a process has: ours, which attach wakes without a stop; or of another version, in words. It changes
// nothing in the process.
func Dormant(pid int) (ours bool, other string) {
	t, err := open(pid)
	if err != nil {
		return false, ""
	}
	defer t.Close()
	if t.readModules() != nil {
		return false, ""
	}
	t.findDormant()
	return t.bell != nil, t.OtherVersion()
}

// ringEntry is the hook whose entry of the ring lies at the address.
func (t *Target) ringEntry(at uint64) (id int, ok bool) {
	if t.bell == nil || at-t.bell.Ring >= segment.RingEntries*segment.RingBytes || (at-t.bell.Ring)%segment.RingBytes != 0 {
		return 0, false
	}
	return int(at-t.bell.Ring) / segment.RingBytes, true
}

// run has one thread of the program do the work: a call of its own where a dormant agent waits for one, else a thread that is stopped.
func (t *Target) run(ops []op, done uint64) error {
	if t.bell == nil {
		return t.runStub(ops, done)
	}
	err := t.ring(ops, ringFirst)
	if !errors.Is(err, errSilent) {
		return err
	}
	if stub := t.runStub(ops, done); !mayNotStop(stub) {
		return stub
	}
	return t.ring(ops, ringLong)
}

// ring has the first call of the program that arrives do the work.
func (t *Target) ring(ops []op, limit time.Duration) error {
	if err := t.fillRing(); err != nil {
		return err
	}
	if err := t.withdraw(); err != nil {
		return err
	}
	n, err := t.ask(ops)
	if err != nil {
		return err
	}
	plan := t.plan(t.bell.reals)
	defer t.silence(plan)
	for i, s := range plan {
		if now, ok := t.read64(s.at); ok && now == s.old {
			_ = t.write64(s.at, t.bell.Ring+uint64(s.id)*segment.RingBytes)
		}
		if i == len(plan)/2 {
			reached(StepRung)
		}
	}
	reached(StepPlaced)
	for begun := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		b, err := t.readBell()
		if err != nil {
			return err
		}
		if b.Done == n {
			return t.answered(&b, ops)
		}
		if time.Since(begun) > limit {
			break
		}
	}
	if err := t.withdraw(); err != nil {
		return err
	}
	if b, err := t.readBell(); err != nil || b.Done == n {
		return errors.Join(err, t.answered(&b, ops)) // it came at the last moment
	}
	return fmt.Errorf("process %d: %w for %v", t.pid, errSilent, limit)
}

func (t *Target) answered(b *segment.Bell, ops []op) error {
	reached(StepReleased)
	switch {
	case b.Failed == segment.BellWithdrawn:
		return fmt.Errorf("process %d: %w", t.pid, errSilent)
	case b.Failed != 0:
		return fmt.Errorf("process %d could not map %d MB (a limit on address space?)", t.pid, mapped(ops)>>20)
	}
	return nil
}

// fillRing writes the real functions, which stay there: an entry of the ring may have been copied by the program.
func (t *Target) fillRing() error {
	if t.bell.reals != nil {
		return nil
	}
	_, r := t.lookUp()
	table := make([]byte, 8*segment.RingEntries)
	if err := t.read(t.bell.Table, table); err != nil {
		return err
	}
	for id := range thunkCount {
		if r[id].at != 0 {
			binary.LittleEndian.PutUint64(table[8*id:], r[id].at)
		}
	}
	if err := t.write(t.bell.Table, table); err != nil {
		return err
	}
	t.bell.reals = r
	return nil
}

func (t *Target) readBell() (b segment.Bell, err error) {
	at := make([]byte, segment.BellBytes)
	err = t.read(t.bell.Bell, at)
	b.Decode(at)
	return b, err
}

// ask writes the work, and last the number that asks for it.
func (t *Target) ask(ops []op) (n uint32, err error) {
	if len(ops) > segment.BellOps {
		return 0, fmt.Errorf("%d operations are more than a dormant agent takes", len(ops))
	}
	kinds := map[opKind]uint32{opMap: segment.BellMap, opCall: segment.BellCall, opStore: segment.BellStore, opFunc: segment.BellFunc}
	work := make([]byte, segment.BellOps*segment.BellOpBytes)
	for i, o := range ops {
		a := o.args
		x := segment.BellOp{Kind: kinds[o.kind], Nr: o.nr, A0: a[0], A1: a[1], A2: a[2], A3: a[3], A4: a[4], A5: a[5]}
		if o.undo {
			x.Undo = 1
		}
		x.Encode(work[i*segment.BellOpBytes:])
	}
	if err := t.write(t.bell.Bell+segment.BellBytes, work); err != nil {
		return 0, err
	}
	b, err := t.readBell()
	if err != nil {
		return 0, err
	}
	if n = b.Taken + 1; n == 0 {
		n = 1
	}
	b.Asked, b.Failed, b.PID, b.Count = 0, 0, uint32(t.innerPID()), uint32(len(ops))
	head := make([]byte, segment.BellBytes)
	b.Encode(head)
	if err := t.write(t.bell.Bell+12, head[12:]); err != nil { // failed, pid, count
		return 0, err
	}
	return n, t.write32(t.bell.Bell, n)
}

// withdraw takes a request back, of this attacher or of one that died. When it returns, no thread does the work or will begin to.
func (t *Target) withdraw() error {
	b, err := t.readBell()
	if err != nil || b.Asked == 0 {
		return err
	}
	if err := t.write32(t.bell.Bell, 0); err != nil {
		return err
	}
	for begun := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		now, err := t.readBell()
		if err != nil {
			return err
		}
		if now.Taken != b.Asked || now.Done == b.Asked {
			return nil
		}
		if time.Since(begun) > 20*time.Second {
			return fmt.Errorf("process %d: the thread that the dormant agent woke has not come back within 20s", t.pid)
		}
	}
}

// silence gives the slots that lead to the ring back what they held.
func (t *Target) silence(plan []slot) {
	_ = t.write32(t.bell.Bell, 0)
	for _, s := range plan {
		if now, ok := t.read64(s.at); ok {
			if _, ring := t.ringEntry(now); ring {
				_ = t.write64(s.at, s.old)
			}
		}
	}
}

// silenceEarlier does that after an attacher that died: the slots get the real functions. there were such.
func (t *Target) silenceEarlier() (were bool, err error) {
	if t.bell == nil {
		return false, nil
	}
	if err := t.withdraw(); err != nil {
		return false, err
	}
	table := make([]byte, 8*segment.RingEntries)
	if err := t.read(t.bell.Table, table); err != nil {
		return false, err
	}
	t.slotsLeadingTo(t.ringEntry, func(at uint64, id int) {
		if real := binary.LittleEndian.Uint64(table[8*id:]); real != 0 {
			were = true
			_ = t.write64(at, real)
		}
	})
	return were, nil
}

// mayNotStop: the error says that this process may not stop threads of the program.
func mayNotStop(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) || errors.Is(err, errTraced)
}
