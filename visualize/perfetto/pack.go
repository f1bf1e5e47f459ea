// Packets on their way out: deflated and written next to the making of the next ones.

package perfetto

import (
	"fmt"
	"io"
	"runtime"

	"github.com/klauspost/compress/zlib"
)

// packer deflates batches of packets, several at a time, and writes them in the order in which they come, all next to the
// making of the next ones.
type packer struct {
	w     io.Writer
	raw   bool
	level int
	work  chan *packing
	order chan *packing // as put
	free  chan []byte   // batches that were written, to be filled again
	done  chan struct{}
	err   error // once done is closed, or a batch came back
}

// packing is a batch on its way.
type packing struct {
	batch  []byte
	out    buffer // deflated
	err    error
	packed chan struct{}
}

// mostPackers bounds memory: some 2 MB each.
const mostPackers = 4

// Levels of deflating. The quick one is for recordings that take seconds; others are a sixth smaller for a time that nobody notices.
const (
	quickly    = zlib.BestSpeed
	thoroughly = 6
)

func newPacker(w io.Writer, raw bool, level int) *packer {
	n := min(runtime.GOMAXPROCS(0), mostPackers)
	ahead := n + 1 // batches that are made or deflated while one is written
	p := &packer{
		w: w, raw: raw, level: level, work: make(chan *packing, ahead), order: make(chan *packing, ahead),
		free: make(chan []byte, ahead+1), done: make(chan struct{}),
	}
	for range ahead + 1 {
		p.free <- make([]byte, 0, batchBytes+batchBytes/4)
	}
	if !raw {
		for range n {
			go p.pack()
		}
	}
	go p.run(p.order)
	return p
}

// put hands over a batch and returns an empty one. The error may be that of an earlier batch.
func (p *packer) put(b []byte) ([]byte, error) {
	x := &packing{batch: b, packed: make(chan struct{})}
	if p.raw {
		close(x.packed)
	} else {
		p.work <- x // there are fewer batches than room
	}
	p.order <- x
	select {
	case <-p.done:
		return b, p.err
	case next := <-p.free:
		return next[:0], nil
	}
}

// close waits until everything is written. It may be called again.
func (p *packer) close() error {
	if p.order != nil {
		close(p.work)
		close(p.order)
		p.order = nil
	}
	<-p.done
	return p.err
}

// run writes until there is nothing more, or it fails. Then it takes what still comes, so that nobody waits for it for ever.
func (p *packer) run(order <-chan *packing) {
	for x := range order {
		<-x.packed
		if p.err != nil {
			continue
		}
		if p.err = p.write(x); p.err != nil {
			close(p.done)
			continue
		}
		p.free <- x.batch
	}
	if p.err == nil {
		close(p.done)
	}
}

func (p *packer) write(x *packing) error {
	data := x.batch
	if !p.raw {
		data = x.out.b
	}
	if x.err != nil {
		return x.err
	}
	if _, err := p.w.Write(data); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}

// pack deflates what comes.
func (p *packer) pack() {
	var z *zlib.Writer
	for x := range p.work {
		z, x.err = x.deflate(z, p.level)
		close(x.packed)
	}
}

// Write appends to the packet that deflate is making.
func (p *buffer) Write(b []byte) (int, error) {
	p.b = append(p.b, b...)
	return len(b), nil
}

// deflate makes out of batch, with z where there is one already; it returns one for the next.
func (x *packing) deflate(z *zlib.Writer, level int) (*zlib.Writer, error) {
	if z == nil {
		var err error
		if z, err = zlib.NewWriterLevel(&x.out, level); err != nil {
			return nil, err
		}
	}
	x.out.b = make([]byte, 0, len(x.batch)/2)
	pkt := x.out.open(tracePacket)
	field := x.out.open(packetCompressed)
	z.Reset(&x.out)
	if _, err := z.Write(x.batch); err != nil {
		return z, err
	}
	if err := z.Close(); err != nil {
		return z, err
	}
	x.out.close(field)
	x.out.close(pkt)
	return z, nil
}
