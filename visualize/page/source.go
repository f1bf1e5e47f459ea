// Source lines: what the page shows next to the lines of a function. A served page asks for them, an exported one has
// those around the heaviest lines inside.
//
// The paths come from the recording, which may be somebody else's, and an exported page may be sent to others. So
// nothing is read but regular files that are called like source code, by absolute path, and an exported page gets only
// lines near to those that the recording names. HideSource keeps all of them out.

package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/hbtrace/hbtrace/analysis/frames"
)

const (
	sourceAround  = 4         // lines shown before and after a line that has weight
	sourceBytes   = 8 << 20   // longer files are not read
	sourceColumns = 300       // runes; the rest of a line is cut
	sourceRange   = 2000      // lines in one answer
	sourceFiles   = 64        // files kept in memory
	exportLines   = 400       // lines with weight that an exported file has the surroundings of
	exportBytes   = 256 << 10 // text of them
)

// sourceTypes are the names' ends of source code. Other files are not opened, whatever a recording says.
var sourceTypes = map[string]bool{}

func init() {
	for t := range strings.FieldsSeq(`.c .h .cc .cpp .cxx .c++ .hh .hpp .hxx .h++ .inl .ipp .tcc .ixx .cppm .cu .cuh .m .mm .S .s .asm .inc
		.def .go .rs .zig .d .nim .cr .v .swift .f .for .f90 .f95 .f03 .f08 .adb .ads .pas .pp .ml .mli .hs .y .yy .l .ll .py .pyx .pxd .pyi
		.java .kt .scala .js .mjs .cjs .ts .rb .php .lua .jl .cs .fs .vala`) {
		sourceTypes[t] = true
	}
}

// source is part of a source file; the page's side is Source in web/store.ts.
type source struct {
	Path    string `json:"path"`
	Changed bool   `json:"changed"` // since the recording began: lines may have moved
	Missing string `json:"missing"` // why there is none
	Lines   []line `json:"lines"`
}

// line is a number and a text, as JSON has pairs.
type line [2]any

// sourceFile is a file that was read, or why it was not.
type sourceFile struct {
	lines   []string
	changed bool
	missing string
}

// HideSource keeps source code out of the page. It is to be called before anything is asked.
func (m *Model) HideSource() { m.hideSource = true }

// sourceOf gives lines first to last of the file of a function (an index into names).
func (m *Model) sourceOf(frame, first, last int) source {
	m.naming.Lock()
	path := ""
	if frame < len(m.tree.names) {
		path = m.tree.names[frame].File
	}
	m.naming.Unlock()
	out := source{Path: path, Lines: []line{}}
	f := m.readSource(path)
	out.Changed, out.Missing = f.changed, f.missing
	last = min(last, len(f.lines), first+sourceRange-1)
	for n := max(1, first); n <= last; n++ {
		out.Lines = append(out.Lines, line{n, f.lines[n-1]})
	}
	return out
}

// readSource reads a file once.
func (m *Model) readSource(path string) *sourceFile {
	m.reading.Lock()
	defer m.reading.Unlock()
	if f, ok := m.files[path]; ok {
		return f
	}
	if len(m.files) >= sourceFiles {
		clear(m.files)
	}
	f := &sourceFile{}
	text, changed, err := m.openSource(path)
	if err != nil {
		f.missing = frames.Valid(err.Error())
	} else {
		f.changed, f.lines = changed, splitLines(text)
	}
	m.files[path] = f
	return f
}

func (m *Model) openSource(path string) (text []byte, changed bool, err error) {
	switch {
	case m.hideSource:
		return nil, false, errors.New("source lines were left out (--no-source)")
	case path == "":
		return nil, false, errors.New("the recording does not say in which file")
	case !filepath.IsAbs(path):
		return nil, false, errors.New("the recording has no absolute path of the file")
	case !sourceTypes[filepath.Ext(path)]:
		return nil, false, errors.New("its name is not one of a source file")
	}
	// A pipe must not block, a terminal not become ours, and what a link leads to must be source as well.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, errors.New("the file is not on this machine")
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil || !sourceTypes[filepath.Ext(real)] {
		return nil, false, errors.New("its name is not one of a source file")
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, false, err
	case !st.Mode().IsRegular():
		return nil, false, errors.New("it is not a regular file")
	case st.Size() > sourceBytes:
		return nil, false, fmt.Errorf("the file is larger than %d MB", sourceBytes>>20)
	}
	text, err = io.ReadAll(io.LimitReader(f, sourceBytes))
	if err == nil && bytes.IndexByte(text, 0) >= 0 {
		err = errors.New("the file is not text")
	}
	started := m.src.Meta().Started
	return text, !started.IsZero() && st.ModTime().After(started), err
}

func splitLines(text []byte) []string {
	var out []string
	for l := range bytes.Lines(text) {
		s := frames.Valid(strings.TrimRight(string(l), "\r\n"))
		if utf8.RuneCountInString(s) > sourceColumns {
			s = string([]rune(s)[:sourceColumns]) + "…"
		}
		out = append(out, s)
	}
	return out
}

// codeLine is a line of a file.
type codeLine struct {
	file string
	line uint32
}

// heaviestLines gives the lines by their largest share of the CPU time, of the time waited, or of the bytes allocated.
func (m *Model) heaviestLines(ctx context.Context) ([]codeLine, error) {
	rows, err := m.sums(ctx, selection{from: 0, to: math.MaxInt64}, false, false)
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	m.naming.Lock()
	m.place()
	m.naming.Unlock()
	m.mu.RUnlock()
	const kinds = 3
	kind := func(s state) int {
		switch s {
		case running:
			return 0
		case allocated:
			return 1
		case off, ready, freed:
			return -1
		}
		return 2
	}
	var totals [kinds]float64
	by := map[codeLine]*[kinds]float64{}
	for i, site := range rows.site {
		k := kind(state(rows.state[i]))
		if k < 0 {
			continue
		}
		totals[k] += rows.value[i]
		seen := map[codeLine]bool{}
		for node := m.tree.sites[site]; node != 0; node = m.tree.parents[node] {
			at := codeLine{m.tree.names[m.tree.frames[node]].File, m.tree.lines[node]}
			if at.file == "" || at.line == 0 || seen[at] {
				continue
			}
			seen[at] = true
			if by[at] == nil {
				by[at] = new([kinds]float64)
			}
			by[at][k] += rows.value[i]
		}
	}
	share := func(at codeLine) (most float64) {
		for k, v := range by[at] {
			if totals[k] > 0 {
				most = max(most, v/totals[k])
			}
		}
		return most
	}
	out := make([]codeLine, 0, len(by))
	for at := range by {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b codeLine) int {
		return cmp.Or(cmp.Compare(share(b), share(a)), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return out, nil
}

// sourceTable is what an exported page has of source files: the surroundings of the heaviest lines.
func (m *Model) sourceTable(ctx context.Context) (*table, error) {
	out := []source{}
	if m.hideSource {
		return newTable(out), nil
	}
	list, err := m.heaviestLines(ctx)
	if err != nil {
		return nil, err
	}
	index := map[string]int{}
	have := map[codeLine]bool{}
	room := exportBytes
	for _, at := range list[:min(len(list), exportLines)] {
		f := m.readSource(at.file)
		if f.missing != "" {
			continue
		}
		i, ok := index[at.file]
		if !ok {
			i = len(out)
			index[at.file] = i
			out = append(out, source{Path: at.file, Changed: f.changed, Lines: []line{}})
		}
		for n := max(1, int(at.line)-sourceAround); n <= min(len(f.lines), int(at.line)+sourceAround); n++ {
			k := codeLine{at.file, uint32(n)}
			if have[k] {
				continue
			}
			if room -= len(f.lines[n-1]); room < 0 {
				return sorted(out), nil
			}
			have[k] = true
			out[i].Lines = append(out[i].Lines, line{n, f.lines[n-1]})
		}
	}
	return sorted(out), nil
}

// sorted puts the lines of each file in order.
func sorted(list []source) *table {
	for _, s := range list {
		slices.SortFunc(s.Lines, func(a, b line) int { return a[0].(int) - b[0].(int) })
	}
	return newTable(list)
}
