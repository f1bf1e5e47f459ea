// Reading events: sections are read, checked, decompressed and decoded by several goroutines, and what they make is
// handed on in the order of the file.
//
//	index ─► worker: section 1 ─► batches ─┐
//	       ─► worker: section 2 ─► batches ─┼─► in order: names of stacks ─► the caller
//	       ─► …                             ┘
//
// A worker has a few batches of its own and waits until one of them comes back, so that what is decoded ahead stays
// small enough for the processor's caches, whatever the recording's size: what goes on ahead next to the section
// whose turn it is, is mostly decompression, which costs about as much as decoding.

package tracefile

import (
	"encoding/binary"
	"runtime"
	"sync"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	batchEvents   = 512 // 70 KB: fits a core's own cache
	workerBatches = 6
	maxWorkers    = 8
)

// eventBatch is a batch on its way.
type eventBatch struct {
	events []trace.Event
	done   func()
}

// worker decodes sections of events, one at a time.
type worker struct {
	sectionReader
	decoder BatchDecoder
	free    chan *eventBatch
}

// workers are those that are not at work; they are kept for their buffers.
type workers struct {
	mu   sync.Mutex
	idle []*worker
}

func (ws *workers) take(r *Reader) *worker {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := len(ws.idle); n > 0 {
		w := ws.idle[n-1]
		ws.idle = ws.idle[:n-1]
		return w
	}
	w := &worker{
		sectionReader: sectionReader{f: r.sections.f, size: r.sections.size},
		free:          make(chan *eventBatch, workerBatches),
	}
	for range workerBatches {
		b := &eventBatch{}
		b.done = func() { w.free <- b }
		w.free <- b
	}
	return w
}

func (ws *workers) put(w *worker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.idle = append(ws.idle, w)
}

func (ws *workers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.idle {
		w.close()
	}
	ws.idle = nil
}

// section decodes a section; f takes the events, some at a time. An error comes after the events in front of what it is
// about.
func (w *worker) section(s indexEntry, f func([]trace.Event)) error {
	events := make([]trace.Event, batchEvents)
	return w.decode(s, func() []trace.Event { return events }, func(n int) bool { f(events[:n]); return true })
}

// decode decodes a section into the room that room gives, and tells took how much of it was taken; took says whether
// to go on.
func (w *worker) decode(s indexEntry, room func() []trace.Event, took func(n int) bool) error {
	h, payload, err := w.sectionReader.section(s)
	if err != nil {
		return err
	}
	c := cursor{p: payload}
	var have uint64
	for len(c.p) > 0 {
		p := c.bytes()
		if c.bad || len(p) < batchHeaderBytes {
			return errMalformed
		}
		if have += uint64(binary.LittleEndian.Uint16(p)); have > uint64(h.count) {
			return errMalformed
		}
		if err := w.decoder.begin(p); err != nil {
			return err
		}
		for w.decoder.left > 0 {
			n, err := w.decoder.next(room())
			if !took(n) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if err := w.decoder.end(); err != nil {
			return err
		}
	}
	if have != uint64(h.count) {
		return errMalformed
	}
	return nil
}

// job is a section that is to be decoded.
type job struct {
	indexEntry
	out chan *eventBatch
	err error // once out is closed
}

// run decodes the job's section into batches of the worker's own. It ends early when stop is closed.
func (w *worker) run(j *job, stop <-chan struct{}) {
	defer close(j.out)
	var b *eventBatch
	stopped := false
	room := func() []trace.Event {
		if b == nil {
			select {
			case b = <-w.free:
			case <-stop:
				b, stopped = &eventBatch{}, true // what is decoded now goes nowhere
			}
			if b.events == nil {
				b.events = make([]trace.Event, 0, batchEvents)
			}
			b.events = b.events[:0]
		}
		return b.events[len(b.events):cap(b.events)]
	}
	j.err = w.decode(j.indexEntry, room, func(n int) bool {
		if b.events = b.events[:len(b.events)+n]; len(b.events) == cap(b.events) && !stopped {
			j.out <- b // it has room for all that this worker has
			b = nil
		}
		return !stopped
	})
	if b != nil && !stopped {
		j.out <- b
	}
}

// decoding is sections of events being decoded ahead.
type decoding struct {
	order   chan *job // as in the file
	stop    chan struct{}
	wg      sync.WaitGroup
	workers []*worker
}

// decodeAhead begins to decode sections. finish or abort must follow.
func (r *Reader) decodeAhead(sections []indexEntry) *decoding {
	n := min(runtime.GOMAXPROCS(0), maxWorkers, len(sections))
	d := &decoding{order: make(chan *job, n), stop: make(chan struct{})}
	work := make(chan *job)
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		defer close(work)
		for _, s := range sections {
			j := &job{indexEntry: s, out: make(chan *eventBatch, workerBatches)}
			for _, to := range []chan<- *job{d.order, work} {
				select {
				case to <- j:
				case <-d.stop:
					return
				}
			}
		}
	}()
	for range n {
		w := r.workers.take(r)
		d.workers = append(d.workers, w)
		d.wg.Add(1)
		go func() {
			defer d.wg.Done()
			for j := range work {
				w.run(j, d.stop)
			}
		}()
	}
	return d
}

// finish ends a decoding whose every batch has been taken.
func (d *decoding) finish(r *Reader) {
	d.wg.Wait()
	for _, w := range d.workers {
		r.workers.put(w)
	}
}

// abort ends a decoding wherever it is. Its workers may lack batches that nobody took: they are not used again.
func (d *decoding) abort() {
	close(d.stop)
	d.wg.Wait()
	for _, w := range d.workers {
		w.close()
	}
}

// EventBatches implements [trace.Source]. Of a damaged file it returns a [*CorruptError] after the events in front of
// the damage. It holds some MiB of events in memory.
func (r *Reader) EventBatches(f func(events []trace.Event, done func()) error) error {
	end := len(r.index)
	var sections []indexEntry
	for i, s := range r.index {
		if r.damage != nil && r.stopsEvents && s.off >= r.damage.Offset {
			end = i
			break
		}
		if s.kind == sectionEvents {
			sections = append(sections, s)
		}
	}
	if len(sections) == 0 {
		return r.Damage()
	}
	d := r.decodeAhead(sections)
	if err := r.deliver(d, r.index[:end], f); err != nil {
		d.abort()
		return err
	}
	d.finish(r)
	return r.Damage()
}

// deliver calls f for what d decodes, whose sections are those of events in index.
func (r *Reader) deliver(d *decoding, index []indexEntry, f func(events []trace.Event, done func()) error) error {
	var named names
	renamings := r.renamings
	for _, s := range index {
		switch {
		case s.kind == sectionNodes && len(renamings) > 0 && renamings[0].off == s.off:
			if named == nil {
				named = identity(int(renamings[0].first) - 1)
			}
			if err := r.rename(s, &renamings[0], &named); err != nil {
				return &CorruptError{r.path, s.kind.String(), s.off, err}
			}
			renamings = renamings[1:]
		case s.kind == sectionEvents:
			j := <-d.order
			for b := range j.out {
				if named != nil {
					for i := range b.events {
						b.events[i].Stack = named.of(b.events[i].Stack)
					}
				}
				if err := f(b.events, b.done); err != nil {
					return err
				}
			}
			if j.err != nil {
				return &CorruptError{r.path, s.kind.String(), s.off, j.err}
			}
		}
	}
	return nil
}

// rename brings names up to date with a section of nodes.
func (r *Reader) rename(s indexEntry, by *renaming, n *names) error {
	w := r.workers.take(r)
	defer r.workers.put(w)
	h, payload, err := w.sectionReader.section(s)
	if err != nil {
		return err
	}
	return by.apply(n, payload, h.version, h.count)
}
