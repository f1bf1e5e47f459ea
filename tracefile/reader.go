// Reading a recording: what Open loads, and the methods of trace.Source.

package tracefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hbtrace/hbtrace/trace"
)

// Reader reads a recording. It implements [trace.Source]: everything but events is in memory, events are read
// section by section.
//
// A file that simply ends, because its recorder died, is read up to its last whole section; Stats then says so
// (Complete is false, and a note gives the offset). A file that is damaged is read up to the damage: Damage
// and, after the events in front of it, Events return a [*CorruptError].
type Reader struct {
	path string
	f    io.Closer // nil: none to close
	sections
	workers workers

	meta      trace.Meta
	stats     trace.Stats
	processes []trace.Process
	threads   []trace.Thread
	modules   []trace.Module
	nodes     nodeStore
	renamings []renaming // in the order of the file; empty: the file's ids are the nodes' numbers

	mu         sync.RWMutex
	symbols    map[trace.Addr][]trace.SymFrame
	symbolizer Symbolizer
	asked      map[trace.ModuleID]bool // modules that the symbolizer has been asked for
}

var _ trace.Source = (*Reader)(nil)

// CorruptError says where a recording is damaged, or cannot be read by this version. What lies in front of Offset
// was read.
type CorruptError struct {
	Path    string
	Section string // kind of the section, "header" for the file's own
	Offset  int64  // of the section
	Reason  error
}

func (e *CorruptError) Error() string {
	what := "is damaged"
	if errors.Is(e.Reason, errNewer) || errors.Is(e.Reason, errOlder) {
		what = "cannot be read to its end"
	}
	return fmt.Sprintf("recording %s %s: %s section at offset %d: %v", e.Path, what, e.Section, e.Offset, e.Reason)
}

func (e *CorruptError) Unwrap() error { return e.Reason }

// Open opens the recording at path. It fails where there is nothing to be read: the file is not a recording,
// or is of a newer version, or has no whole metadata.
func Open(path string) (*Reader, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening recording: %w", err)
	}
	if !st.Mode().IsRegular() { // opening a FIFO would wait for a writer
		what := "not a regular file"
		if st.IsDir() {
			what = "a directory"
		}
		return nil, fmt.Errorf("opening recording %s: it is %s: give an .hbt file", path, what)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening recording: %w", err)
	}
	r, err := open(path, f, st.Size())
	if err != nil {
		f.Close()
		return nil, err
	}
	r.f = f
	return r, nil
}

func open(path string, f io.ReaderAt, size int64) (*Reader, error) {
	if err := checkFileHeader(path, f, size); err != nil {
		return nil, err
	}
	r := &Reader{path: path, symbols: map[trace.Addr][]trace.SymFrame{}, asked: map[trace.ModuleID]bool{}}
	r.sections.sectionReader = sectionReader{f: f, size: size}
	r.find(path)
	l := loader{r: r}
	l.load()
	if !l.hasMeta {
		if r.damage != nil {
			return nil, r.damage
		}
		return nil, fmt.Errorf(
			"opening recording %s: it ends after %d bytes, before any whole section: nothing can be read",
			path,
			size,
		)
	}
	l.finish()
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error {
	r.sections.close()
	r.workers.close()
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}

// Meta implements [trace.Source]. EndNs of a recording that was not closed is the time of its last event.
func (r *Reader) Meta() *trace.Meta { return &r.meta }

// Stats implements [trace.Source]. Complete says that the recording was closed and is undamaged; for one that
// was not, Events and Nodes are counted, the rest is 0, and Notes says what is missing.
func (r *Reader) Stats() *trace.Stats { return &r.stats }

// Processes implements [trace.Source], in order of ids.
func (r *Reader) Processes() []trace.Process { return r.processes }

// Threads implements [trace.Source], in order of ids.
func (r *Reader) Threads() []trace.Thread { return r.threads }

// Modules implements [trace.Source], in order of ids.
func (r *Reader) Modules() []trace.Module { return r.modules }

// Node implements [trace.Source].
func (r *Reader) Node(id trace.StackID) trace.Node { return r.nodes.at(id) }

// Nodes implements [trace.Source].
func (r *Reader) Nodes() int { return len(r.nodes) }

// Damage is where the file is damaged, nil where it is not or only ends too early. Damage to events shows only
// when they are read.
func (r *Reader) Damage() error {
	if r.damage == nil {
		return nil // not a nil *CorruptError in an error
	}
	return r.damage
}
