// modules.go says which module an address of a process lies in.
package assemble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// MapsEntry is one line of /proc/PID/maps.
type MapsEntry struct {
	Lo, Hi, Offset uint64 // [Lo, Hi) shows the file from Offset on
	Exec           bool
	Path           string // "" = no file
}

// File is what an object file says of itself.
type File struct {
	BuildID string // lower-case hex; "" none
	Loads   []Load
	Code    trace.Code
}

// Load is a PT_LOAD program header.
type Load struct{ Offset, Vaddr, FileBytes uint64 }

const (
	maxModules  = 1 << 18 // in a recording; stacktable holds half a million
	maxMappings = 4096    // in a process
	maxIDMisses = 4096    // files looked into for one process
	// A process's maps are read for an unknown address at most this often, in recorded time; guessed frames
	// give many addresses that lie nowhere. It doubles while reading brings nothing new.
	mapsPause    = trace.Ns(100e6)
	maxMapsPause = trace.Ns(10e9)
)

// registry gives modules their ids. Processes that map the same file share one.
type registry struct {
	ids map[moduleKey]trace.ModuleID
	on  func(trace.Module)
}

type moduleKey struct {
	path, buildID string
	kind          trace.ModuleKind
	proc          uint32 // anonymous memory is a module of its process alone
	function      string // of Python
	line          int
}

// id returns a module's number, 0 when there are too many.
func (r *registry) id(k moduleKey, lo, hi, bias uint64, code trace.Code) trace.ModuleID {
	if id, ok := r.ids[k]; ok {
		return id
	}
	if len(r.ids) >= maxModules {
		return 0
	}
	if r.ids == nil {
		r.ids = map[moduleKey]trace.ModuleID{}
	}
	id := trace.ModuleID(len(r.ids) + 1)
	r.ids[k] = id
	if r.on != nil {
		r.on(trace.Module{ID: id, Path: k.path, BuildID: k.buildID, Kind: k.kind, Proc: trace.ProcID(k.proc), Lo: lo, Hi: hi, Bias: bias, Code: code, Func: k.function, Line: k.line})
	}
	return id
}

// mapping is a module at its place in one process.
type mapping struct {
	lo, hi, bias uint64
	time         trace.Ns // when it was announced
	id           trace.ModuleID
}

// space is one process's address space.
type space struct {
	all   []mapping      // ascending by time
	flat  []mapping      // disjoint, ascending by address; nil when all has changed
	last  int            // index in flat that was found last
	anon  trace.ModuleID // of the process's executable memory without a file; 0 none was seen
	blind bool           // the address that was looked up last was found nowhere, without a look at maps
	files map[string]File

	// asked is when maps were read last; pause is how long to leave them alone then.
	asked, pause trace.Ns
	// heir: a fork child that has not yet taken over what its parent had mapped.
	heir bool
}

// add announces a mapping. Where mappings overlap, the newest is right.
func (s *space) add(m mapping) {
	if len(s.all) >= maxMappings {
		// Keep what can still be seen: whatever newer mappings cover is history.
		s.all = s.flatten()
		slices.SortStableFunc(s.all, func(x, y mapping) int { return compareNs(x.time, y.time) })
		if len(s.all) >= maxMappings {
			s.all = slices.Delete(s.all, 0, maxMappings/4)
		}
	}
	i := len(s.all)
	for i > 0 && s.all[i-1].time > m.time {
		i--
	}
	s.all = slices.Insert(s.all, i, m)
	s.flat = nil
}

func compareNs(x, y trace.Ns) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// flatten paints the mappings over each other in the order of their announcement.
func (s *space) flatten() []mapping {
	var flat []mapping
	for _, m := range s.all {
		// from..to are the old mappings that m touches; what sticks out of it on either side stays.
		from, _ := slices.BinarySearchFunc(flat, m.lo, func(x mapping, lo uint64) int {
			if x.hi <= lo {
				return -1
			}
			return 1
		})
		to := from
		with := make([]mapping, 0, 3)
		after := make([]mapping, 0, 1)
		for ; to < len(flat) && flat[to].lo < m.hi; to++ {
			old := flat[to]
			if old.lo < m.lo {
				left := old
				left.hi = m.lo
				with = append(with, left)
			}
			if old.hi > m.hi {
				right := old
				right.lo = m.hi
				after = append(after, right)
			}
		}
		with = append(append(with, m), after...)
		flat = slices.Replace(flat, from, to, with...)
	}
	return flat
}

// lookup finds the mapping of addr; nil when there is none. The result is valid until add.
func (s *space) lookup(addr uint64) *mapping {
	if s.flat == nil {
		if len(s.all) == 0 {
			return nil
		}
		s.flat, s.last = s.flatten(), 0
	}
	if m := &s.flat[s.last]; addr >= m.lo && addr < m.hi {
		return m
	}
	lo, hi := 0, len(s.flat)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.flat[mid].hi <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(s.flat) || addr < s.flat[lo].lo {
		return nil
	}
	s.last = lo
	return &s.flat[lo]
}

// find looks an address up in a process: in what it announced, in what it inherited, in its maps. nil: nowhere.
func (a *Assembler) find(p *process, addr uint64) *mapping {
	s := &p.space
	if s.heir {
		a.inherit(p)
	}
	if m := s.lookup(addr); m != nil {
		return m
	}
	s.blind = true
	if a.cfg.Maps == nil || p.isGone || (s.asked != 0 && a.latest-s.asked < s.pause) {
		return nil
	}
	s.blind = false
	s.asked = max(a.latest, 1)
	a.stats.MapsReads++
	if a.addMaps(p, a.cfg.Maps(p.uid)) {
		s.pause = mapsPause
	} else {
		s.pause = min(max(2*s.pause, mapsPause), maxMapsPause)
	}
	return s.lookup(addr)
}

// inherit gives a fork child what its parent had mapped before it was born.
func (a *Assembler) inherit(p *process) {
	p.space.heir = false
	parent := a.procs[p.parentUID]
	if parent == nil || parent == p {
		return
	}
	if parent.space.heir {
		a.inherit(parent) // ends: heir was cleared on the way here
	}
	a.frames.forget()
	p.space.anon = cmp.Or(p.space.anon, parent.space.anon)
	for _, m := range parent.space.all {
		if p.meta.Start == 0 || m.time <= p.meta.Start {
			p.space.add(m)
		}
	}
}

// moduleRecord takes in a MODULE record.
func (a *Assembler) moduleRecord(h *segment.Rec, rec []byte) bool {
	var r segment.RecModule
	if !r.Decode(rec) || uint64(r.PathBytes) > uint64(len(rec)-segment.RecModuleBytes) || r.Hi <= r.Lo || r.Hi>>segment.PCShift != 0 {
		return false
	}
	p := a.proc(r.ProcUID)
	if p == nil {
		return false
	}
	path := clean(rec[segment.RecModuleBytes:][:r.PathBytes])
	if path == "" {
		if path = p.meta.Exe; path == "" {
			path = fmt.Sprintf("[program of process %d]", p.meta.PID)
		}
	}
	a.addMapping(p, path, r.Lo, r.Hi, r.Bias, trace.Ns(h.TimeNs))
	return true
}

func (a *Assembler) addMapping(p *process, path string, lo, hi, bias uint64, time trace.Ns) {
	key := moduleKey{path: path}
	var code trace.Code
	switch path {
	case "linux-vdso.so.1", "linux-gate.so.1", "[vdso]":
		key.path, key.kind = "[vdso]", trace.ModuleVDSO
	case "":
		key.path, key.kind, key.proc = "[anon]", trace.ModuleAnon, p.uid
		bias = 0 // addresses are absolute
	default:
		f := a.file(p, path)
		key.buildID, code = f.BuildID, f.Code
	}
	if id := a.mods.id(key, lo, hi, bias, code); id != 0 {
		if key.kind == trace.ModuleAnon {
			p.space.anon = id
		}
		a.frames.forget()
		p.space.add(mapping{lo: lo, hi: hi, bias: bias, time: time, id: id})
	}
}

// file looks into a file once per process: other processes may see another one under that name.
func (a *Assembler) file(p *process, path string) File {
	if f, ok := p.space.files[path]; ok || a.cfg.File == nil || len(p.space.files) >= maxIDMisses {
		return f
	}
	f := a.cfg.File(p.uid, path)
	if p.space.files == nil {
		p.space.files = map[string]File{}
	}
	p.space.files[path] = f
	return f
}

// addMaps takes the executable mappings that no module covers yet; whether there were any.
func (a *Assembler) addMaps(p *process, entries []MapsEntry) (found bool) {
	for _, e := range entries {
		if !e.Exec || e.Hi <= e.Lo || e.Hi>>segment.PCShift != 0 || p.space.lookup(e.Lo) != nil {
			continue
		}
		bias := uint64(0)
		if e.Path != "" && e.Path[0] == '/' && !(memory(e.Path) && a.file(p, e.Path).Loads == nil) {
			bias = e.Lo - vaddr(a.file(p, e.Path).Loads, e.Offset)
		} else if e.Path == "[vdso]" {
			bias = e.Lo
		} else {
			e.Path = "" // [heap], [stack], //anon: code that no file holds
		}
		a.addMapping(p, e.Path, e.Lo, e.Hi, bias, a.latest)
		found = true
	}
	return found
}

// memory says that a path is no name in a file system: a memfd, as .NET makes for its code, or shared memory.
func memory(path string) bool {
	return strings.HasPrefix(path, "/memfd:") || strings.HasPrefix(path, "/dev/zero") || strings.HasPrefix(path, "/SYSV")
}

// vaddr is the ELF virtual address of a file offset. Without program headers it is taken to be equal, as it is
// in most objects.
func vaddr(loads []Load, offset uint64) uint64 {
	const page = 4096 // mappings begin at whole pages, so a little before the segment
	for _, l := range loads {
		if l.Offset&^(page-1) <= offset && offset < l.Offset+l.FileBytes {
			return l.Vaddr - l.Offset + offset
		}
	}
	return offset
}
