package symbols

// This file owns split DWARF: a unit whose entries lie in a .dwo file, or among those of a whole program in a .dwp package. The program itself has
// the skeletons: where each unit's code is, its lines, its part of .debug_addr, and the id by which the rest is found and proved (DWARF 5 sections
// 7.3.2 and 7.3.5; before it, GNU's extension, https://gcc.gnu.org/wiki/DebugFission and DebugFissionDWP).

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

const (
	maxSplitFile    = 256 << 20 // bytes of one .dwo file, which is read whole
	maxPackageUnits = 1 << 20
)

// splitSections are those of a .dwo file or of a package, without ".debug_" and ".dwo". What else there is in them is not looked at.
var splitSections = []string{"info", "abbrev", "str", "str_offsets", "rnglists"}

// splitFiles finds what was split off from a file. It may be used from several goroutines.
type splitFiles struct {
	pack *splitPackage // nil: there is none
	// open returns a .dwo file, read whole; the file need not exist.
	open func(name, compDir string) (*image, error)
}

// splitPackage is a .dwp file.
type splitPackage struct {
	path  string
	order binary.ByteOrder
	sec   map[string][]byte
	units map[uint64]packedUnit
}

// packedUnit says which parts of a package's sections are one unit's: offset and size.
type packedUnit map[string][2]uint64

// hasSkeletons says whether a part of the debug information lies elsewhere.
func (d *dwarfInfo) hasSkeletons() bool {
	for i := range d.units {
		if d.units[i].split {
			return true
		}
	}
	return false
}

// attach gives u, the decoded unit of a skeleton, the functions of the unit that it stands for.
func (d *dwarfInfo) attach(skeleton *unitRef, u *unit, work *meter) error {
	e := &entry{}
	if err := d.readEntry(skeleton, u.abbrevs, skeleton.die, e); err != nil || e.abbrev == nil {
		return err
	}
	id := skeleton.id
	if v, ok := e.get(attrDwoID); ok {
		id = v.v
	}
	name, compDir := d.str(skeleton, e, attrDwoName), d.str(skeleton, e, attrCompDir)
	if d.splits == nil {
		return fmt.Errorf("split debug information %s: not looked for", name)
	}
	sd, i, err := d.splits.find(d, skeleton, id, name, compDir)
	if err != nil {
		return fmt.Errorf("split debug information: %w: no inlined functions there", err)
	}
	su := sd.decode(i, work)
	u.funcs, u.at, u.split = su.funcs, su.at, sd
	return nil
}

// find returns the unit with an id, and the debug information that it is of.
func (s *splitFiles) find(d *dwarfInfo, skeleton *unitRef, id uint64, name, compDir string) (*dwarfInfo, int32, error) {
	if s.pack != nil {
		if p, ok := s.pack.units[id]; ok {
			sec := map[string][]byte{"str": s.pack.sec["str"]}
			for n, part := range p {
				b := s.pack.sec[n]
				if part[0] > uint64(len(b)) || part[1] > uint64(len(b))-part[0] {
					return nil, 0, fmt.Errorf("%s: unit %016x lies outside of .debug_%s.dwo", s.pack.path, id, n)
				}
				sec[n] = b[part[0]:][:part[1]]
			}
			return d.splitUnit(skeleton, id, sec, s.pack.path)
		}
	}
	if name == "" {
		return nil, 0, errors.New("no file is named")
	}
	im, err := s.open(name, compDir)
	if err != nil && s.pack != nil {
		err = fmt.Errorf("not in %s, and %w", s.pack.path, err)
	}
	if err != nil {
		return nil, 0, err
	}
	defer im.close() // what was read of it stays in memory
	sec, err := readSplitSections(im)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", im.path, err)
	}
	sd, i, err := d.splitUnit(skeleton, id, sec, im.path)
	if err == nil {
		sd.held = int(im.f.(inMemory).Size())
	}
	return sd, i, err
}

func readSplitSections(im *image) (map[string][]byte, error) {
	sec := map[string][]byte{}
	for _, n := range splitSections {
		b, err := im.debugSection("debug_" + n + ".dwo")
		if err != nil {
			return nil, err
		}
		sec[n] = b
	}
	if len(sec["info"]) == 0 {
		return nil, errors.New("no .debug_info.dwo in it")
	}
	return sec, nil
}

// splitUnit makes debug information of split sections, and finds the unit with an id in it. Addresses, and before DWARF 5 ranges, are the program's.
func (d *dwarfInfo) splitUnit(skeleton *unitRef, id uint64, sec map[string][]byte, path string) (*dwarfInfo, int32, error) {
	sd := &dwarfInfo{
		im: d.im, order: d.order, info: sec["info"], abbrev: sec["abbrev"], strOffsets: sec["str_offsets"], addr: d.addr,
		rangesSec: d.rangesSec, rnglists: sec["rnglists"], abbrevs: map[abbrevKey]*abbrevTable{}, problem: d.problem, apart: true,
	}
	sd.secs.str = sec["str"]
	var err error
	if sd.units, err = scanUnits(sd.info, sd.order); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	var e entry
	for i := range sd.units {
		u := &sd.units[i]
		if err := sd.readRoot(u, &e); err != nil || e.abbrev == nil || e.tag != tagCompileUnit {
			continue
		}
		if v, ok := e.get(attrDwoID); ok {
			u.id = v.v
		}
		if u.id != id || u.version >= 5 != (skeleton.version >= 5) {
			continue
		}
		u.low, u.addrBase = skeleton.low, skeleton.addrBase
		if u.version < 5 {
			u.rangeBase = skeleton.rangeBase
		}
		return sd, int32(i), nil
	}
	return nil, 0, fmt.Errorf("%s is of another build: not used", path)
}

// openSplitFiles looks for the package next to a module's files. What is wrong with it is a problem; units are then looked for in .dwo files.
func (r *Resolver) openSplitFiles(m *module, main, im *image, problem func(error)) *splitFiles {
	s := &splitFiles{}
	var dirs []string
	var packages []string
	for _, x := range []*image{main, im} {
		if x != nil && (len(packages) == 0 || x != main) {
			dirs = append(dirs, filepath.Dir(x.path))
			packages = append(packages, x.path+".dwp", strings.TrimSuffix(x.path, ".debug")+".dwp")
		}
	}
	for _, path := range packages {
		pack, err := r.openImage(path)
		if err != nil {
			r.noteUnlessMissing(path, err)
			continue
		}
		m.images = append(m.images, pack) // its sections are mapped while the module is open
		if s.pack, err = readPackage(pack); err == nil {
			break
		}
		problem(fmt.Errorf("%s: %w", path, err))
	}
	s.open = func(name, compDir string) (*image, error) {
		paths := []string{name}
		if !filepath.IsAbs(name) {
			paths[0] = filepath.Join(compDir, name)
		}
		paths[0] = r.rooted(paths[0])
		for _, dir := range dirs {
			paths = append(paths, filepath.Join(dir, filepath.Base(name)))
		}
		var first error
		for _, path := range paths {
			im, err := r.readWhole(path)
			if err == nil {
				return im, nil
			}
			if first == nil {
				first = err
			}
		}
		return nil, first
	}
	return s
}

// readWhole opens a file of which nothing is needed on disk afterwards: a program may have thousands of .dwo files.
func (r *Resolver) readWhole(path string) (*image, error) {
	f, err := r.open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxSplitFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(b) > maxSplitFile {
		return nil, fmt.Errorf("%s: larger than %d MiB", path, maxSplitFile>>20)
	}
	im, err := newImage(path, inMemory{bytes.NewReader(b)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return im, nil
}

// inMemory is a file that was read.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// readPackage reads a package's index of units.
func readPackage(im *image) (*splitPackage, error) {
	sec, err := readSplitSections(im)
	if err != nil {
		return nil, err
	}
	index, err := im.debugSection("debug_cu_index")
	if err != nil {
		return nil, err
	}
	p := &splitPackage{path: im.path, order: im.elf.ByteOrder, sec: sec}
	p.units, err = readUnitIndex(index, p.order)
	return p, err
}

// readUnitIndex reads .debug_cu_index (DWARF 5 section 7.3.5.3; version 2 is GNU's): a hash table from ids to rows of offsets and sizes.
func readUnitIndex(b []byte, order binary.ByteOrder) (map[uint64]packedUnit, error) {
	bad := errors.New(".debug_cu_index makes no sense")
	c := cursor{b: b, order: order}
	version := c.u32() // of version 5 two bytes, and two of padding, behind which a reader of the other byte order finds them
	if order.Uint16([]byte{1, 0}) != 1 && version == 5<<16 {
		version = 5
	}
	columns, units, slots := uint64(c.u32()), uint64(c.u32()), uint64(c.u32())
	if c.bad || version != 2 && version != 5 {
		return nil, fmt.Errorf(".debug_cu_index: version %d is unknown", version)
	}
	if columns > 16 || units > maxPackageUnits || slots > 4*maxPackageUnits || units > slots {
		return nil, bad
	}
	names := map[uint32]string{1: "info", 3: "abbrev", 6: "str_offsets"}
	if version == 5 {
		names[8] = "rnglists"
	}
	ids, rows := cursor{b: c.take(8 * slots), order: order}, cursor{b: c.take(4 * slots), order: order}
	column := make([]string, columns)
	for i := range column {
		column[i] = names[c.u32()]
	}
	offsets, sizes := c.take(4*columns*units), c.take(4*columns*units)
	if c.bad {
		return nil, bad
	}
	out := make(map[uint64]packedUnit, units)
	for range slots {
		id, row := ids.u64(), uint64(rows.u32())
		if row == 0 { // an empty slot
			continue
		}
		if row > units {
			return nil, bad
		}
		u := packedUnit{}
		for i, name := range column {
			if at := 4 * ((row-1)*columns + uint64(i)); name != "" {
				u[name] = [2]uint64{uint64(order.Uint32(offsets[at:])), uint64(order.Uint32(sizes[at:]))}
			}
		}
		out[id] = u
	}
	return out, nil
}
