// Opening a recording, for all commands that read one.

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/exectrace"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// recording is an open .hbt file. Damage that shows only when events are read ends them early instead of
// spoiling what was read: it is kept, and told by done.
type recording struct {
	*tracefile.Reader
	path    string
	damage  error
	symbols *symbols.Resolver // nil: the file has all symbols

	line  *progress     // where to show how far a reading of the events is; nil: nowhere
	doing string        // what it is read for
	after time.Duration // how long it may take before that is shown
	stays bool          // what is made of the events when they have been read takes long, too: the caller that set this clears the line
}

var _ trace.Source = (*recording)(nil)

// readMemory is what a process that reads a recording is to need at most: near it garbage is collected rather than left lying, which
// may otherwise be as much again as is in use.
const readMemory = 700 << 20

// limitMemory sets that, where GOMEMLIMIT says nothing.
func limitMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}

// openRecording opens a .hbt file. The error is one line that names the file.
func openRecording(path string) (*recording, error) {
	limitMemory(readMemory)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s: no such file: record one with hbtrace run ./app", path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	case st.Mode().IsRegular() && st.Size() == 0:
		return nil, fmt.Errorf("%s: the file is empty: nothing was recorded into it", path)
	case exectrace.Is(path):
		return nil, fmt.Errorf("%s is a Go execution trace: make a recording of it with hbtrace import %s", path, shellWord(path))
	}
	reader, err := tracefile.Open(path)
	if err != nil {
		return nil, about(path, err)
	}
	r := &recording{Reader: reader, path: path}
	r.lookUpSymbols()
	return r, nil
}

// withRecordings calls f with several recordings, and closes them. Damage that was met in one is told.
func withRecordings(paths []string, f func([]trace.Source) error) error {
	var open []*recording
	var srcs []trace.Source
	var err error
	for _, p := range paths {
		r, e := openRecording(p)
		if err = e; err != nil {
			break
		}
		open, srcs = append(open, r), append(srcs, r)
	}
	if err == nil {
		err = f(srcs)
	}
	for _, r := range open {
		err = errors.Join(err, r.done())
	}
	return err
}

// lookUpSymbols finds on this machine the symbols that a recorder which died could not write.
func (r *recording) lookUpSymbols() {
	if len(r.AddressesWithoutSymbols()) == 0 {
		return
	}
	r.symbols = symbols.NewResolver(symbols.Options{Cache: symbols.CacheDir()})
	for _, m := range r.Modules() {
		if m.BuildID == "" && m.Kind == trace.ModuleELF {
			continue // whether the file is still the one that was recorded cannot be known
		}
		if err := r.symbols.Add(m); err != nil {
			continue // its frames appear as module+offset
		}
	}
	r.SetSymbolizer(r.symbols.Resolve)
}

// EventBatches implements [trace.Source]. A reading that takes longer than showAfter shows how far it is.
func (r *recording) EventBatches(f func([]trace.Event, func()) error) error {
	if r.line == nil || r.line.w == nil {
		return r.unharmed(r.Reader.EventBatches(f))
	}
	begun, shown := time.Now(), false
	all, read := max(r.Stats().Events, 1), uint64(0)
	err := r.Reader.EventBatches(func(events []trace.Event, done func()) error {
		if read += uint64(len(events)); time.Since(begun) > r.after {
			shown = true
			r.line.show("%s: %d %% of %d events", r.doing, min(100, 100*read/all), all)
		}
		return f(events, done)
	})
	switch {
	case shown && r.stays:
		r.line.stage("%s: adding up", r.doing)
	case shown:
		r.line.clear()
	}
	return r.unharmed(err)
}

// Summary is the recording's; all of the file is held against its checksums for that, and told when it takes long.
func (r *recording) Summary() []byte {
	if r.line == nil || r.line.w == nil {
		return r.Reader.Summary()
	}
	read := make(chan []byte, 1)
	go func() { read <- r.Reader.Summary() }()
	select {
	case s := <-read:
		return s
	case <-time.After(r.after):
	}
	r.line.show("checking %s", filepath.Base(r.path))
	s := <-read
	r.line.clear()
	return s
}

// showAfter is how long things may take unexplained.
const showAfter = time.Second

// shows makes readings of the events from here on tell on a line how far they are.
func (r *recording) shows(line *progress, doing string) {
	r.line, r.doing, r.after = line, doing, showAfter
}

// unharmed keeps damage for later.
func (r *recording) unharmed(err error) error {
	var corrupt *tracefile.CorruptError
	if errors.As(err, &corrupt) {
		r.damage = corrupt
		return nil
	}
	return err
}

// done closes the file. Its error is that of damage met while reading.
func (r *recording) done() error {
	if r.symbols != nil {
		r.symbols.Close() // files that were only read
	}
	r.Close() // as above
	if r.damage == nil {
		r.damage = r.Damage()
	}
	if r.damage != nil {
		return fmt.Errorf("%w: what comes before it was used", about(r.path, r.damage))
	}
	return nil
}

// about puts the path before an error that does not name it.
func about(path string, err error) error {
	if strings.Contains(err.Error(), path) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
