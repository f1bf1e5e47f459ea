// Processes below the command that are not recorded: which programs they run, why, and their CPU time. They are found
// by looks at /proc, a few times a second, so that short ones may be missed: counts and times are lower bounds.
package collector

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

// How often and at how much is looked.
const (
	firstUnrecorded = 20 * time.Millisecond
	unrecordedEvery = 250 * time.Millisecond
	mostDescendants = 4096
	mostUnrecorded  = 256 // programs that are told apart
	forgetStrangers = 5 * time.Second
)

// Reasons why nothing is recorded.
const (
	whyStatic      = "statically linked"
	whyMachine     = "for another processor or word size"
	whyEnvironment = "started with an environment without hbtrace's"
	whyPreload     = "started with another LD_PRELOAD"
	whyPrivileged  = "runs with privileges that the recorder lacks"
	whyUnknown     = "the agent did not start in it"
)

// descendant is a process below the command.
type descendant struct {
	start    uint64
	exe      string // as /proc says: another image, another judgement
	looks    int    // since exe was first seen
	why      string // "": recorded, or not known yet
	base     int64  // ticks that it had used when it was first seen unrecorded
	used     int64  // since then
	counted  bool
	recorded bool // maps the session's memory
}

// unrecorded finds them. It belongs to the goroutine that drains.
type unrecorded struct {
	s         *session
	root      int
	ours      map[int]*descendant
	strangers map[int]struct{} // pids of other processes
	fresh     time.Time        // when strangers was made
	next      time.Time
	pause     time.Duration
	sums      map[[2]string]*trace.Unrecorded // by program and reason
}

func newUnrecorded(s *session, root int) *unrecorded {
	return &unrecorded{
		s: s, root: root, ours: map[int]*descendant{}, strangers: map[int]struct{}{}, pause: firstUnrecorded,
		sums: map[[2]string]*trace.Unrecorded{},
	}
}

// look finds processes that began, ended or became another program.
func (u *unrecorded) look(now time.Time) {
	if u == nil || now.Before(u.next) {
		return
	}
	u.next = now.Add(u.pause)
	u.pause = min(2*u.pause, unrecordedEvery)
	if now.Sub(u.fresh) > forgetStrangers {
		u.strangers, u.fresh = map[int]struct{}{}, now
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return
	}
	alive := make(map[int]bool, len(names))
	var pids []int
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		alive[pid] = true
		if _, ok := u.strangers[pid]; !ok {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	// A child's number may be lower than its parent's: what is nobody's is asked again when more are known.
	for range 3 {
		more := false
		rest := pids[:0]
		for _, pid := range pids {
			if u.visit(pid) {
				more = true
			} else {
				rest = append(rest, pid)
			}
		}
		if pids = rest; !more {
			break
		}
	}
	for _, pid := range pids {
		u.strangers[pid] = struct{}{}
	}
	for pid := range u.ours {
		if !alive[pid] {
			delete(u.ours, pid)
		}
	}
}

// visit looks at one process and says whether it is below the command.
func (u *unrecorded) visit(pid int) bool {
	st, ok := readStat(pid)
	if !ok {
		return true // it has ended: nothing is to be asked again
	}
	d := u.ours[pid]
	if d == nil || d.start != st.start {
		if pid != u.root && u.ours[st.parent] == nil {
			return false
		}
		if len(u.ours) >= mostDescendants {
			return true
		}
		d = &descendant{start: st.start}
		u.ours[pid] = d
	}
	if st.zombie {
		u.charge(d, st.ticks)
		return true
	}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe != d.exe {
		*d = descendant{start: d.start, exe: exe}
	}
	if u.s.isExecing(pid) {
		return true
	}
	d.looks++
	if d.recorded {
		return true
	}
	if d.why == "" {
		if d.recorded = mapsSegment(pid, u.s.inode) || u.s.goes(pid); d.recorded {
			return true
		}
		why := u.judge(pid, d.looks > 1)
		if why == whyUnknown && d.looks < 3 {
			return true // it has just been started
		}
		d.why, d.base = why, st.ticks
		if d.looks == 1 && pid != u.root {
			d.base = 0 // its own from the start, or that of the child it was before the exec: a moment
		}
	}
	u.charge(d, st.ticks)
	return true
}

func (s *session) isExecing(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.execing[pid]
}

// goes: a Go program that takes part without an agent.
func (s *session) goes(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.owner(pid)
	return p != nil && s.golang[p.uid] != nil
}

// charge adds what an unrecorded process has used since the last look.
func (u *unrecorded) charge(d *descendant, ticks int64) {
	if d.why == "" {
		return
	}
	program := strings.TrimSuffix(d.exe, " (deleted)")
	key := [2]string{program, d.why}
	sum := u.sums[key]
	if sum == nil {
		if len(u.sums) >= mostUnrecorded {
			key = [2]string{"other programs", ""}
		}
		if sum = u.sums[key]; sum == nil {
			sum = &trace.Unrecorded{Program: key[0], Reason: key[1]}
			u.sums[key] = sum
		}
	}
	if !d.counted {
		d.counted = true
		sum.Count++
	}
	if used := ticks - d.base; used > d.used {
		sum.CPU += time.Duration(used-d.used) * (time.Second / ticksPerSecond)
		d.used = used
	}
}

// ticksPerSecond is USER_HZ, the same on all machines that are supported.
const ticksPerSecond = 100

// judge says why a process that does not map the session's memory is not recorded. settled: its image was seen before.
func (u *unrecorded) judge(pid int, settled bool) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if os.IsPermission(err) {
		return whyPrivileged
	}
	if err != nil {
		return whyUnknown
	}
	defer f.Close()
	if e, err := elf.NewFile(f); err == nil {
		loads := slices.ContainsFunc(e.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		switch {
		case e.Class != elf.ELFCLASS64 || e.Machine != machine:
			return whyMachine
		case !loads && !isLoader(e):
			return whyStatic
		}
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return whyPrivileged
	}
	if len(env) == 0 && !settled {
		return whyUnknown // the kernel may still be at the exec
	}
	session, preload := false, false
	for v := range bytes.SplitSeq(env, []byte{0}) {
		session = session || bytes.HasPrefix(v, []byte("HBTRACE_SESSION=")) || bytes.HasPrefix(v, []byte("HBTRACE_ADDED="))
		preload = preload || bytes.HasPrefix(v, []byte("LD_PRELOAD=")) && bytes.Contains(v, []byte("/agent-$PLATFORM.so"))
	}
	switch {
	case !session:
		return whyEnvironment
	case !preload:
		return whyPreload
	}
	return whyUnknown
}

// result is what was found, the most CPU time first.
func (u *unrecorded) result() []trace.Unrecorded {
	if u == nil {
		return nil
	}
	out := make([]trace.Unrecorded, 0, len(u.sums))
	for _, s := range u.sums {
		s.Program = filepath.Clean(s.Program)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b trace.Unrecorded) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Program, b.Program), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// procStat is what is read of /proc/PID/stat.
type procStat struct {
	parent int
	start  uint64
	ticks  int64 // of CPU time, its threads' in all
	zombie bool
}

func readStat(pid int) (procStat, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return procStat{}, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(f[i]), 10, 64)
		return n
	}
	return procStat{
		parent: int(number(1)), start: uint64(number(19)), ticks: number(11) + number(12), zombie: f[0][0] == 'Z' || f[0][0] == 'X',
	}, true
}
