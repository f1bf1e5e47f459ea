// The session's unwind tables: compiled once per file, published per process, read by the agents' walks.
//
// They lie in a memfd of their own that agents map read-only. A process gets its list while its agent waits for the
// word to go on, so that its first stack is already whole; after a dlopen the list is made anew. Where
// anything fails the agent walks by frame pointers, and its stacks say so.
package collector

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hbtrace/hbtrace/collector/assemble"
	"github.com/hbtrace/hbtrace/diskcache"
	"github.com/hbtrace/hbtrace/python"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/unwind"
	"golang.org/x/sys/unix"
)

const (
	// tablesBytes is address space, not memory: tables take some 100 KB per MB of text, as they come.
	tablesBytes = 64 << 20
	// maxImageBytes bounds the files that are compiled: beyond, a whole session would be spent on one.
	maxImageBytes = 1 << 30
	// firstTables is how long a process is kept waiting for its tables before it runs its first instruction.
	firstTables = 60 * time.Millisecond
)

// reload is when, after a process said that it loads or unloads objects, its mappings are looked at.
var reload = [...]time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}

// tables is a session's. Its methods may be called from several goroutines.
type tables struct {
	fd     int
	mem    []byte
	region *unwind.Region

	mu     sync.Mutex
	images map[string]*image // by what tells files apart
	notes  *notes
	lists  map[int]published // the last, by slot
	keep   keptTables

	placed *placements // of agents that no loader mapped
}

// image is a mapped file's table and how its addresses are to be taken; ready is closed when both are known.
type image struct {
	ready chan struct{}
	loads symbols.LoadInfo
	table uint64 // offset in the region; 0: none

	python *python.Interpreter // nil: it holds none whose frames are known
}

// newTables makes the region for so many process slots.
func newTables(slots int, n *notes) (t *tables, err error) {
	fd, err := unix.MemfdCreate("hbtrace-tables", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory for unwind tables: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.Ftruncate(fd, tablesBytes); err != nil {
		return nil, fmt.Errorf("size memory for unwind tables: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, tablesBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map memory for unwind tables: %w", err)
	}
	// From here on nobody can map it writable: what an agent has checked once stays as it was.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("seal memory of unwind tables (needs Linux 5.1): %w", err)
	}
	region, err := unwind.NewRegion(mem, slots, machine)
	if err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	return &tables{fd: fd, mem: mem, region: region, images: map[string]*image{}, notes: n, lists: map[int]published{},
		keep: keptTables{store: tableStore(diskcache.Dir("HBTRACE_UNWIND_CACHE", "unwind"))}}, nil
}

// close keeps on disk what was compiled, and gives the memory back; no method may be running or called afterwards.
func (t *tables) close() {
	if t == nil {
		return
	}
	t.keep.save(t.mem)
	unix.Munmap(t.mem)
	unix.Close(t.fd)
}

// mapped is a part of a file that a process has mapped to execute.
type mapped struct {
	e   assemble.MapsEntry
	img *image
}

// publish makes the list of what process pid has mapped now, compiles what is new, and publishes it for its slot.
func (t *tables) publish(pid, slot int, uid uint32) { t.show(slot, uid, t.mapped(pid)) }

// mapped lists what process pid has mapped now, and begins to compile what is new of it; nothing if it is gone.
func (t *tables) mapped(pid int) []mapped {
	entries, err := assemble.ReadMaps(pid)
	if err != nil {
		return nil
	}
	parts := make([]mapped, 0, len(entries))
	for _, e := range entries {
		var img *image
		if object := t.placed.find(&e); object != nil {
			img = t.make("attached agent", func(img *image) error { return t.compile(img, "attached agent", bytes.NewReader(object)) })
		} else {
			img = t.image(pid, e.Path)
		}
		if img != nil {
			parts = append(parts, mapped{e, img})
		}
	}
	return parts
}

// compiled says that nothing of it is being compiled any more.
func compiled(parts []mapped) bool {
	for _, p := range parts {
		select {
		case <-p.img.ready:
		default:
			return false
		}
	}
	return true
}

// show publishes a process's list for its slot, when all that is in it is compiled.
func (t *tables) show(slot int, uid uint32, parts []mapped) {
	if parts == nil {
		return
	}
	var list []unwind.Module
	var py *segment.Python
	for _, p := range parts {
		<-p.img.ready
		if p.img.table == 0 {
			continue
		}
		if bias, ok := p.img.loads.Bias(p.e.Lo, p.e.Offset); ok {
			if p.img.python != nil && py == nil {
				at := p.img.python.Place(bias)
				py = &at
			}
			list = append(list, unwind.Module{Lo: p.e.Lo, Hi: p.e.Hi, Bias: bias, Table: p.img.table})
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if equal(t.lists[slot].modules, list) && same(t.lists[slot].python, py) {
		return // nothing of interest has moved: lists are never given back, so none is made in vain
	}
	if _, err := t.region.Publish(slot, uid, list, py); err != nil {
		t.notes.addf("stacks of later processes go by frame pointers: %v", err)
		return
	}
	t.lists[slot] = published{list, py}
}

// withdraw forgets a slot's list, since another process will have the slot.
func (t *tables) withdraw(slot int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.region.Withdraw(slot)
	delete(t.lists, slot)
}

// published is a process's list, and where its Python is.
type published struct {
	modules []unwind.Module
	python  *segment.Python
}

func same(a, b *segment.Python) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func equal(a, b []unwind.Module) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// image is the table of the file that process pid has at path, being compiled if it is new; nil for what is no file.
func (t *tables) image(pid int, path string) *image {
	if path == "[vdso]" {
		return t.make("vdso", func(img *image) error { return t.compile(img, "vdso", vdso()) })
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, " (deleted)") {
		return nil
	}
	f, err := symbols.OpenRegular(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), path))
	if errors.Is(err, fs.ErrPermission) {
		f, err = symbols.OpenRegular(path)
	}
	if errors.Is(err, fs.ErrPermission) {
		t.notes.addf("stacks in %s go by frame pointers, and may be cut there: this user may not read it", path)
	}
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Size > maxImageBytes {
		f.Close()
		return nil
	}
	key := fmt.Sprintf("%x:%x:%x:%x.%x", st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
	made := false
	img := t.make(key, func(img *image) error {
		defer f.Close()
		return t.compile(img, key, f)
	}, &made)
	if !made {
		f.Close()
	}
	return img
}

// compiling bounds how many files are compiled at once.
var compiling = make(chan struct{}, runtime.NumCPU())

func (t *tables) make(key string, compile func(*image) error, made ...*bool) *image {
	t.mu.Lock()
	defer t.mu.Unlock()
	if img := t.images[key]; img != nil {
		return img
	}
	img := &image{ready: make(chan struct{})}
	t.images[key] = img
	for _, m := range made {
		*m = true
	}
	go func() {
		defer close(img.ready)
		compiling <- struct{}{}
		defer func() { <-compiling }()
		if err := compile(img); errors.Is(err, unwind.ErrRegionFull) {
			t.notes.addf("stacks in some modules go by frame pointers: %v", err)
		}
	}()
	return img
}

func (t *tables) compile(img *image, key string, f io.ReaderAt) error {
	loads, err := symbols.ReadLoads(f)
	if err != nil {
		return err
	}
	t.findPython(img, f)
	table, name, err := t.keep.table(f)
	if err != nil {
		return err
	}
	at, err := t.region.AddTable(key, table)
	if err != nil {
		return err
	}
	t.keep.later(name, at)
	img.loads, img.table = loads, at
	return nil
}

// findPython looks for an interpreter of Python in a file that is mapped to execute.
func (t *tables) findPython(img *image, f io.ReaderAt) {
	e, err := elf.NewFile(f)
	if err != nil {
		return
	}
	in, err := python.Find(e)
	if err == nil {
		img.python = in
	} else if !errors.Is(err, python.ErrNone) {
		t.notes.addf("functions of Python are not in stacks, which hold the interpreter's own instead: %v", err)
	}
}

// vdso is the kernel's image as this process has it mapped: the same as every other's of this word size.
func vdso() io.ReaderAt {
	entries, err := assemble.ReadMaps(os.Getpid())
	if err != nil {
		return bytes.NewReader(nil)
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return bytes.NewReader(nil)
	}
	defer mem.Close()
	for _, e := range entries {
		if e.Path == "[vdso]" {
			b := make([]byte, e.Hi-e.Lo)
			if _, err := mem.ReadAt(b, int64(e.Lo)); err == nil {
				return bytes.NewReader(b)
			}
		}
	}
	return bytes.NewReader(nil)
}
