// osfiles.go reads what Linux says of a process's mappings and what ELF files say of themselves: what launchers
// pass as Config.Maps and Config.File.
package assemble

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/symbols"
)

// maxMapsBytes bounds what is read of a /proc/PID/maps: 65530 mappings is the kernel's default limit for a process.
const maxMapsBytes = 64 << 20

// ReadMaps reads the executable mappings of a process (proc_pid_maps(5)). pid is as the caller sees it.
func ReadMaps(pid int) ([]MapsEntry, error) {
	name := fmt.Sprintf("/proc/%d/maps", pid)
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMapsBytes))
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	return parseMaps(b), nil
}

// parseMaps takes the executable lines; others, and what is no line of maps, are left out.
func parseMaps(b []byte) []MapsEntry {
	var out []MapsEntry
	for line := range bytes.Lines(b) {
		// 7f12…-7f13… r-xp 00028000 08:01 1835  /usr/lib/libc.so.6
		s := strings.TrimSuffix(string(line), "\n")
		var field [5]string
		for i := range field {
			field[i], s, _ = strings.Cut(strings.TrimLeft(s, " "), " ")
		}
		lo, hi, _ := strings.Cut(field[0], "-")
		e := MapsEntry{Path: unescape(strings.TrimLeft(s, " "))}
		var err [3]error
		e.Lo, err[0] = strconv.ParseUint(lo, 16, 64)
		e.Hi, err[1] = strconv.ParseUint(hi, 16, 64)
		e.Offset, err[2] = strconv.ParseUint(field[2], 16, 64)
		e.Exec = len(field[1]) == 4 && field[1][2] == 'x'
		if err == [3]error{} && e.Exec {
			out = append(out, e)
		}
	}
	return out
}

// unescape undoes what the kernel does to newlines in paths.
func unescape(path string) string { return strings.ReplaceAll(path, `\012`, "\n") }

// FileCache looks into mapped files, each once, whichever processes map it. It keeps objects open: what was mapped is then
// still there when its name stands for another file, or for none.
type FileCache struct {
	Keep int // objects that are kept open at most

	known map[fileKey]File
	kept  map[keptKey]*os.File
}

type keptKey struct{ path, buildID string }

// Kept returns the object that a module is of, from its beginning, nil when it is not kept. The caller closes it.
func (c *FileCache) Kept(path, buildID string) *os.File {
	f := c.kept[keptKey{path, buildID}]
	if f == nil {
		return nil
	}
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil
	}
	return again
}

// Close lets go of all files.
func (c *FileCache) Close() {
	for _, f := range c.kept {
		f.Close()
	}
	c.kept = nil
}

type fileKey struct {
	dev, ino    uint64
	size        int64
	sec, nsec   int64
	ctime, cnse int64
}

// maxFiles bounds the cache; it begins anew when it is full.
const maxFiles = 1 << 16

// Look looks into the file that process pid, as the caller sees it, has at path; where that view is closed to
// us, at the same path of our own. A File without content is the answer for what cannot be read or is no ELF
// object; nothing but regular files is opened, since the path comes from the target.
func (c *FileCache) Look(pid int, path string) File {
	if !strings.HasPrefix(path, "/") {
		return File{}
	}
	if strings.HasSuffix(path, deleted) {
		// At that name there may be another file now.
		if pid > 0 {
			for _, name := range mappedNames(pid, path) {
				if f, ok := c.open(name, path); ok {
					return f
				}
			}
		}
		return File{}
	}
	if pid > 0 {
		if f, ok := c.open(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), path), path); ok {
			return f
		}
	}
	f, _ := c.open(path, path)
	return f
}

const deleted = " (deleted)" // what the kernel appends to names of files that have none any more

// mappedNames are names under /proc of a deleted file that a process has mapped.
func mappedNames(pid int, path string) (names []string) {
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	if to, err := os.Readlink(exe); err == nil && to == path {
		names = append(names, exe)
	}
	entries, err := ReadMaps(pid)
	if err != nil {
		return names
	}
	for _, e := range entries {
		if e.Path == path {
			return append(names, fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, e.Lo, e.Hi)) // needs CAP_SYS_ADMIN
		}
	}
	return names
}

func (c *FileCache) open(name, path string) (File, bool) {
	// O_NONBLOCK: a FIFO under that name must not stop us.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return File{}, false
	}
	keep := false
	defer func() {
		if !keep {
			f.Close()
		}
	}()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return File{}, false
	}
	key := fileKey{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec}
	got, ok := c.known[key]
	if !ok {
		if c.known == nil || len(c.known) >= maxFiles {
			c.known = map[fileKey]File{}
		}
		got = readELF(f)
		c.known[key] = got
	}
	k := keptKey{path, got.BuildID}
	if keep = got.Loads != nil && len(c.kept) < c.Keep && c.kept[k] == nil; keep {
		if c.kept == nil {
			c.kept = map[keptKey]*os.File{}
		}
		c.kept[k] = f
	}
	return got, true
}

// maxNoteBytes bounds what is read in search of a build id.
const maxNoteBytes = 1 << 16

func readELF(f *os.File) (out File) {
	e, err := elf.NewFile(f)
	if err != nil {
		return File{}
	}
	out.Code = symbols.CodeSegment(e)
	for _, p := range e.Progs {
		switch {
		case p.Type == elf.PT_LOAD:
			out.Loads = append(out.Loads, Load{Offset: p.Off, Vaddr: p.Vaddr, FileBytes: p.Filesz})
		case p.Type == elf.PT_NOTE && p.Filesz <= maxNoteBytes && out.BuildID == "":
			notes := make([]byte, p.Filesz)
			if _, err := p.ReadAt(notes, 0); err == nil {
				out.BuildID = buildID(notes, e, p.Align)
			}
		}
	}
	return out
}

// buildID finds NT_GNU_BUILD_ID among ELF notes (elf(5), "Notes").
func buildID(notes []byte, e *elf.File, align uint64) string {
	if align != 8 {
		align = 4
	}
	up := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(notes) >= 12 {
		nameBytes, descBytes := uint64(e.ByteOrder.Uint32(notes)), uint64(e.ByteOrder.Uint32(notes[4:]))
		kind := e.ByteOrder.Uint32(notes[8:])
		desc := up(12 + nameBytes)
		if desc+descBytes > uint64(len(notes)) {
			return ""
		}
		if kind == 3 && string(notes[12:12+nameBytes]) == "GNU\x00" {
			return hex.EncodeToString(notes[desc : desc+descBytes])
		}
		notes = notes[min(up(desc+descBytes), uint64(len(notes))):]
	}
	return ""
}
