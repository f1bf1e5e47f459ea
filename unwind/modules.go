package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
)

// Sizes of modules.h, asserted there with the same numbers.
const (
	regionMagic  = 0x31736e6977756268
	modulesMagic = 0x3173646f6d77686b
	regionBytes  = 64 // sizeof(struct hb_region)
	slotBytes    = 16 // sizeof(struct hb_region_slot)
	modulesBytes = 32 // sizeof(struct hb_modules)
	moduleBytes  = 32 // sizeof(struct hb_module)
)

// ErrRegionFull is returned when a region has no room left: stacks go on by frame pointers where the table or the
// list would have been.
var ErrRegionFull = errors.New("region of unwind tables is full")

// Module is a stretch of a process's executable memory.
type Module struct {
	Lo, Hi uint64 // addresses, [Lo, Hi)
	Bias   uint64 // address - ELF virtual address
	Table  uint64 // what AddTable gave; 0: no table
}

// Region is the shared memory of a session that tables and module lists are published in (struct hb_region). Its
// memory is only ever added to, so that agents can read it without asking; what is not used costs nothing when
// it lies in a sparse file. A Region may be used by several goroutines.
type Region struct {
	mu         sync.Mutex
	mem        []byte
	used       uint64
	slots      int
	generation uint64
	tables     map[string]uint64
}

// NewRegion makes a region of zeroed shared memory, at least page-aligned, for a session with so many process
// slots. Agents must map it read-only: what they check once must not change.
func NewRegion(mem []byte, slots int, machine elf.Machine) (*Region, error) {
	first := uint64(regionBytes + slots*slotBytes)
	if slots < 0 || first > uint64(len(mem)) {
		return nil, fmt.Errorf("make region of unwind tables: %d bytes for %d processes: %w", len(mem), slots, ErrRegionFull)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return nil, errors.New("make region of unwind tables: memory is not aligned")
	}
	le := binary.LittleEndian
	le.PutUint32(mem[8:], tablesVersion)
	le.PutUint32(mem[12:], regionBytes)
	le.PutUint64(mem[16:], uint64(len(mem)))
	le.PutUint32(mem[24:], uint32(slots))
	le.PutUint32(mem[28:], uint32(machine))
	le.PutUint64(mem, regionMagic)
	return &Region{mem: mem, used: (first + 7) &^ 7, slots: slots, tables: map[string]uint64{}}, nil
}

// Used is how many bytes are taken.
func (r *Region) Used() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

func (r *Region) allocate(n uint64) (uint64, error) {
	n = (n + 7) &^ 7
	if n > uint64(len(r.mem))-r.used {
		return 0, ErrRegionFull
	}
	at := r.used
	r.used += n
	return at, nil
}

// Table is where the table of that name was put; ok is false when there is none yet.
func (r *Region) Table(name string) (offset uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	offset, ok = r.tables[name]
	return offset, ok
}

// AddTable puts a table into the region, once for each name: a build id, or whatever else tells files apart for
// certain (device, inode and change time), never a path.
func (r *Region) AddTable(name string, t *Table) (offset uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.tables[name]; ok {
		return at, nil
	}
	at, err := r.allocate(uint64(len(t.blob)))
	if err != nil {
		return 0, fmt.Errorf("add unwind table of %d bytes: %w", len(t.blob), err)
	}
	copy(r.mem[at:], t.blob)
	r.tables[name] = at
	return at, nil
}

// Publish makes the modules the list of the process in that slot, whole and at once; it takes effect with the next
// walk of each thread. Modules may come in any order. Of two that overlap the one that begins later keeps what
// both claim, as a later mapping does. python says where the process's Python keeps its frames; nil where it runs none.
func (r *Region) Publish(slot int, procUID uint32, modules []Module, python *segment.Python) (generation uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slot < 0 || slot >= r.slots {
		return 0, fmt.Errorf("publish modules: no slot %d of %d", slot, r.slots)
	}
	sorted := disjoint(modules)
	for _, m := range sorted {
		if m.Table >= r.used || m.Table != 0 && m.Table < regionBytes {
			return 0, fmt.Errorf("publish modules: no table at %#x", m.Table)
		}
	}
	size, extra := uint64(modulesBytes+len(sorted)*moduleBytes), uint64(0)
	if python != nil {
		extra = segment.PythonBytes
	}
	at, err := r.allocate(size + extra)
	if err != nil {
		return 0, fmt.Errorf("publish %d modules: %w", len(sorted), err)
	}
	r.generation++
	b, le := r.mem[at:], binary.LittleEndian
	le.PutUint64(b, modulesMagic)
	le.PutUint64(b[8:], r.generation)
	le.PutUint32(b[16:], procUID)
	le.PutUint32(b[20:], uint32(len(sorted)))
	if python != nil {
		le.PutUint64(b[24:], at+size)
		python.Encode(b[size:])
	}
	for i, m := range sorted {
		p := b[modulesBytes+i*moduleBytes:]
		le.PutUint64(p, m.Lo)
		le.PutUint64(p[8:], m.Hi)
		le.PutUint64(p[16:], m.Bias)
		le.PutUint64(p[24:], m.Table)
	}
	r.slot(slot).Store(at) // release; pairs with the acquire of hb_modules_adopt
	return r.generation, nil
}

// Withdraw takes a slot's list away: before the slot is used for another process.
func (r *Region) Withdraw(slot int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slot >= 0 && slot < r.slots {
		r.slot(slot).Store(0)
	}
}

func (r *Region) slot(n int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.mem[regionBytes+n*slotBytes]))
}

// disjoint sorts modules and cuts overlaps; what is empty or outside user space is left out.
func disjoint(modules []Module) []Module {
	var out []Module
	sorted := slices.Clone(modules)
	slices.SortStableFunc(sorted, func(a, b Module) int { return cmp.Compare(a.Lo, b.Lo) })
	for _, m := range sorted {
		if m.Lo >= m.Hi || m.Hi >= 1<<47 {
			continue
		}
		if n := len(out); n > 0 && m.Lo < out[n-1].Hi {
			out[n-1].Hi = m.Lo
			if out[n-1].Lo == m.Lo {
				out = out[:n-1]
			}
		}
		out = append(out, m)
	}
	return out
}
