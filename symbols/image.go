package symbols

// This file owns one opened ELF file: its sections, read or mapped within limits.

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReaderAtCloser is an opened file.
type ReaderAtCloser interface {
	io.ReaderAt
	io.Closer
}

const (
	mapFrom      = 1 << 20 // bytes; uncompressed sections from this size on are mapped, not read
	maxExpand    = 1100    // zlib and zstd debug sections do not shrink more than about 1032:1
	maxHeapBytes = 2 << 30 // bytes of section contents held on the heap, per file
)

// image is an opened ELF file. Not safe for concurrent use.
type image struct {
	path    string // as it was opened
	f       ReaderAtCloser
	size    int64 // bytes; -1 unknown (not an *os.File)
	elf     *elf.File
	loads   LoadInfo
	buildID string // "" none
	heap    int64  // bytes of sections on the heap
	maps    [][]byte
	cache   map[string][]byte
	read    map[*elf.Section][]byte
}

func openRegular(path string) (ReaderAtCloser, error) {
	f, err := OpenRegular(path)
	if err != nil {
		return nil, err // and no interface that holds a nil file
	}
	return f, nil
}

// OpenRegular opens a regular file for reading. Anything else is refused before it is opened: paths of modules come from the
// program, and to open a device may do something.
func OpenRegular(path string) (*os.File, error) {
	refused := func(err error) (*os.File, error) { return nil, &os.PathError{Op: "open", Path: path, Err: err} }
	at, err := openFD(path, unix.O_PATH)
	if err != nil {
		return refused(err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return refused(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return refused(errors.New("not a regular file"))
	}
	fd, err := openFD(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDONLY)
	if err != nil {
		return refused(err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openFD(path string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0); err != unix.EINTR {
			return fd, err
		}
	}
}

// newImage takes over f, and closes it when it returns an error.
func newImage(path string, f ReaderAtCloser) (im *image, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("corrupt ELF file: %v", p)
		}
		if err != nil {
			f.Close()
			im = nil
		}
	}()
	im = &image{path: path, f: f, size: -1, cache: map[string][]byte{}, read: map[*elf.Section][]byte{}}
	if of, ok := f.(*os.File); ok {
		st, err := of.Stat()
		if err != nil {
			return nil, err
		}
		im.size = st.Size()
	}
	h, err := readHeader(f)
	if err != nil {
		return nil, err
	}
	// elf.NewFile decompresses the section name table if it is said to be compressed, without limit.
	_, first, _ := h.sectionHeader(f, 0)
	_, names, _ := h.sectionHeader(f, h.shstrndx)
	if (first|names)&elf.SHF_COMPRESSED != 0 || h.shstrndx == int(elf.SHN_XINDEX) {
		return nil, errors.New("section name table makes no sense")
	}
	im.loads = h.info
	if im.buildID, err = BuildID(f); err != nil && !errors.Is(err, ErrNoBuildID) {
		return nil, err
	}
	if im.elf, err = elf.NewFile(f); err != nil {
		return nil, fmt.Errorf("reading section headers: %w", err)
	}
	return im, nil
}

func (im *image) close() error {
	var errs []error
	for _, m := range im.maps {
		errs = append(errs, unix.Munmap(m))
	}
	im.maps, im.cache, im.read, im.elf = nil, nil, nil, nil
	return errors.Join(append(errs, im.f.Close())...)
}

// debugSection returns the contents of .name or of its old compressed form .zname; nil when there is neither.
// The bytes are valid until close and must not be written.
func (im *image) debugSection(name string) ([]byte, error) {
	if b, ok := im.cache[name]; ok {
		return b, nil
	}
	b, err := im.contents(im.elf.Section("." + name))
	if err == nil && b == nil {
		if s := im.elf.Section(".z" + name); s != nil {
			b, err = im.contents(s)
			if err == nil {
				b, err = im.inflateGNU(b)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("section .%s: %w", name, err)
	}
	im.cache[name] = b
	return b, nil
}

// contents returns a section's uncompressed bytes, nil for sections that have none in this file. They are valid until
// close and must not be written.
func (im *image) contents(s *elf.Section) ([]byte, error) {
	if b, ok := im.read[s]; ok {
		return b, nil
	}
	b, err := im.readSection(s)
	if err == nil {
		im.read[s] = b
	}
	return b, err
}

func (im *image) readSection(s *elf.Section) ([]byte, error) {
	if s == nil || s.Type == elf.SHT_NOBITS || s.Size == 0 {
		return nil, nil
	}
	if im.size >= 0 && (s.Offset > uint64(im.size) || s.FileSize > uint64(im.size)-s.Offset) {
		return nil, errors.New("lies outside of the file")
	}
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		if s.Size/maxExpand > s.FileSize+64 {
			return nil, fmt.Errorf("claims to expand from %d to %d bytes", s.FileSize, s.Size)
		}
	} else if b := im.mapped(s); b != nil {
		return b, nil
	}
	if err := im.reserve(s.Size); err != nil {
		return nil, err
	}
	if strings.HasPrefix(s.Name, ".zdebug") {
		// Section.Data would inflate it, to any size that it claims.
		return io.ReadAll(io.NewSectionReader(im.f, int64(s.Offset), int64(s.FileSize)))
	}
	return s.Data()
}

func (im *image) reserve(n uint64) error {
	if n > uint64(maxHeapBytes-im.heap) {
		return fmt.Errorf("%d bytes more would take over %d MiB of memory for one file", n, maxHeapBytes>>20)
	}
	im.heap += int64(n)
	return nil
}

// mapped maps a large uncompressed section, so that only what is looked at takes memory. If the file shrinks
// afterwards a read faults: Resolve turns that into a panic that it recovers (debug.SetPanicOnFault).
func (im *image) mapped(s *elf.Section) []byte {
	of, ok := im.f.(*os.File)
	if !ok || s.Size < mapFrom || s.Size > 1<<40 {
		return nil
	}
	shift := s.Offset % uint64(os.Getpagesize())
	m, err := unix.Mmap(int(of.Fd()), int64(s.Offset-shift), int(s.Size+shift), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil // read it instead
	}
	im.maps = append(im.maps, m)
	return m[shift:]
}

// inflateGNU undoes the compression of .zdebug sections: "ZLIB", the size in 8 bytes big-endian, a zlib stream.
func (im *image) inflateGNU(b []byte) ([]byte, error) {
	if len(b) < 12 || string(b[:4]) != "ZLIB" {
		return nil, errors.New("not in .zdebug form")
	}
	size := binary.BigEndian.Uint64(b[4:])
	if size/maxExpand > uint64(len(b)) {
		return nil, fmt.Errorf("claims to expand from %d to %d bytes", len(b), size)
	}
	if err := im.reserve(size); err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(bytes.NewReader(b[12:]))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, int64(size)))
	if err == nil && uint64(len(out)) != size {
		err = io.ErrUnexpectedEOF
	}
	return out, err
}

// hasDebugInfo says whether the file itself holds DWARF.
func (im *image) hasDebugInfo() bool {
	for _, n := range []string{".debug_info", ".zdebug_info"} {
		if s := im.elf.Section(n); s != nil && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			return true
		}
	}
	return false
}

func (im *image) hasSymtab() bool {
	for _, s := range im.elf.Sections {
		if s.Type == elf.SHT_SYMTAB && s.Size > 0 {
			return true
		}
	}
	return false
}

// isGo says whether the Go linker made the file: dots are then part of names.
func (im *image) isGo() bool {
	return im.elf.Section(".gopclntab") != nil || im.elf.Section(".note.go.buildid") != nil ||
		im.elf.Section(".data.rel.ro.gopclntab") != nil
}

// executable says whether code can lie at addr.
func (im *image) executable(addr uint64) bool { return im.loads.executable(addr) }

// cstring returns the NUL-terminated string at off of b, cut to limit bytes; "" when off is outside.
func cstring(b []byte, off uint64, limit int) string { return valid(cbytes(b, off, limit)) }

func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// cbytes is cstring without the copy.
func cbytes(b []byte, off uint64, limit int) []byte {
	if off >= uint64(len(b)) {
		return nil
	}
	b = b[off:min(uint64(len(b)), off+uint64(limit))]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}
