// What the terminal is and what may be written on it.

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// asFile is the file behind a command's output, nil when a test put something else there.
func asFile(w io.Writer) *os.File {
	f, _ := w.(*os.File)
	return f
}

// terminalOf says whether w is a terminal and how wide it is.
func terminalOf(w io.Writer) (is bool, columns int) {
	f := asFile(w)
	if f == nil || !isTerminal(f) {
		return false, 0
	}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		columns = int(size.Col)
	}
	return true, columns
}

// coloured follows no-color.org.
func coloured(terminal bool) bool {
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// progress is one line on a terminal that is written over and goes away.
type progress struct {
	mu   sync.Mutex
	w    io.Writer // nil: silent
	last time.Time
	on   bool // something is on the line
	// Nothing is to be shown any more: the result is being written.
	ended bool
}

// progressEvery keeps a fast producer from flooding a slow terminal.
const progressEvery = 200 * time.Millisecond

func newProgress(w io.Writer, quiet bool) *progress {
	if is, _ := terminalOf(w); quiet || !is {
		return &progress{}
	}
	return &progress{w: w}
}

func (p *progress) show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil || p.ended || p.on && time.Since(p.last) < progressEvery {
		return
	}
	p.last, p.on = time.Now(), true
	fmt.Fprintf(p.w, "\r\x1b[Khbtrace: "+format, args...)
}

// stage shows what begins now, whenever the last line was.
func (p *progress) stage(format string, args ...any) {
	p.mu.Lock()
	p.last = time.Time{}
	p.mu.Unlock()
	p.show(format, args...)
}

func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil && p.on {
		p.on = false
		io.WriteString(p.w, "\r\x1b[K")
	}
}

// late shows what is being done once it has taken longer than showAfter, where nothing else is on the line; the function that it
// returns ends that.
func (p *progress) late(after time.Duration, format string, args ...any) (end func()) {
	if p.w == nil {
		return func() {}
	}
	timer := time.AfterFunc(after, func() { p.show(format, args...) })
	return func() {
		timer.Stop()
		p.clear()
	}
}

// before is w, but that the line is cleared, and stays so, when something is written: both may be one terminal.
func (p *progress) before(w io.Writer) io.Writer {
	if p.w == nil {
		return w
	}
	return &cleared{w, p}
}

type cleared struct {
	io.Writer
	line *progress
}

func (c *cleared) Write(b []byte) (int, error) {
	c.line.end()
	return c.Writer.Write(b)
}

// end clears the line for good.
func (p *progress) end() {
	p.clear()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
}
