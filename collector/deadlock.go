// Deadlocks while they last: threads that wait for each other are told of at once, not when somebody has stopped the
// program.
package collector

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
	"golang.org/x/sys/unix"
)

// stuck is a thread that waits for a lock, as its slot says.
type stuck struct {
	proc, tid, owner uint32
	object, tick     uint64
	name             string
}

// maxDeadlocks are told of in a session.
const maxDeadlocks = 16

// lookForDeadlocks looks for threads that wait for each other. A cycle counts when it was there at the last look with
// the very same waits, and when every mutex says itself that its owner has it: the slots are written one by one, and a
// cycle that lasts for a moment is no deadlock.
func (s *session) lookForDeadlocks() {
	waiting := map[[2]uint32]stuck{} // by process and thread id
	for i := range s.seg.HighThreads() {
		t := s.seg.Thread(i)
		uid, hook := t.UID.Load(), t.InHook.Load()
		if uid == 0 || uid == segment.UIDClaiming || hook == 0 || hook > 1<<16-1 {
			continue
		}
		info, ok := hooks.ByID(trace.HookID(hook))
		x := stuck{t.ProcUID.Load(), t.TID.Load(), t.InOwnerTID.Load(), t.InObject.Load(), t.InTick.Load(), ""}
		if !ok || info.Class != hooks.ClassLock || x.owner == 0 || t.UID.Load() != uid {
			continue
		}
		x.name = s.asm.ThreadName(uid)
		waiting[[2]uint32{x.proc, x.tid}] = x
	}
	was := s.stuck
	s.stuck = waiting
	var starts [][2]uint32
	for k := range waiting {
		starts = append(starts, k)
	}
	slices.SortFunc(starts, func(a, b [2]uint32) int { return slices.Compare(a[:], b[:]) })
	done := map[[2]uint32]bool{}
	for _, k := range starts {
		var path [][2]uint32
		at := map[[2]uint32]int{} // in path
		for x, ok := waiting[k]; ok && !done[k]; x, ok = waiting[k] {
			if i, ok := at[k]; ok {
				s.deadlock(path[i:], was)
				break
			}
			at[k] = len(path)
			path = append(path, k)
			k = [2]uint32{x.proc, x.owner}
		}
		for _, p := range path {
			done[p] = true
		}
	}
}

// deadlock tells of a cycle that lasts.
func (s *session) deadlock(cycle [][2]uint32, was map[[2]uint32]stuck) {
	var text []string
	for _, k := range cycle {
		x := s.stuck[k]
		if old, ok := was[k]; !ok || old.object != x.object || old.tick != x.tick || old.owner != x.owner || s.told[x.object] {
			return
		}
		if !s.owns(x) {
			return
		}
		next := s.stuck[[2]uint32{x.proc, x.owner}]
		text = append(text, fmt.Sprintf("%s (%d) waits for %#x, which %s (%d) has", x.name, x.tid, x.object, next.name, x.owner))
	}
	if len(s.told) >= maxDeadlocks {
		return
	}
	if s.told == nil {
		s.told = map[uint64]bool{}
	}
	s.told[s.stuck[cycle[0]].object] = true
	if s.keep != nil {
		s.keep.fire.deadlock(text)
	}
	if s.opt.Alert != nil {
		s.opt.Alert("deadlock: " + strings.Join(text, "; "))
	}
}

// owns asks the mutex itself, in the process's memory: glibc keeps its owner in the third word. Other locks cannot be
// asked, and are not told of.
func (s *session) owns(x stuck) bool {
	pid, ok := s.hostPID(x.proc)
	if !ok {
		return false
	}
	var word [4]byte
	n, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &word[0], Len: 4}}, []unix.RemoteIovec{{Base: uintptr(x.object) + 8, Len: 4}}, 0)
	if err != nil || n != 4 {
		return false
	}
	return binary.LittleEndian.Uint32(word[:]) == x.owner
}
