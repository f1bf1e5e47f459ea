// Packets on their way out: deflated and written beside the making of the next ones.

package perfetto

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
)

// packer deflates batches of packets and writes them, in the order in which they come, in a goroutine of its own.
type packer struct {
	w    io.Writer
	raw  bool
	in   chan []byte
	free chan []byte // batches that were written, to be filled again
	done chan struct{}
	err  error // once done is closed, or a batch came back

	// of the goroutine
	zbuf buffer
	z    *zlib.Writer
}

func newPacker(w io.Writer, raw bool) *packer {
	const ahead = 2 // batches that are made while one is written
	p := &packer{w: w, raw: raw, in: make(chan []byte, ahead), free: make(chan []byte, ahead+1), done: make(chan struct{})}
	for range ahead + 1 {
		p.free <- make([]byte, 0, batchBytes+batchBytes/4)
	}
	go p.run(p.in)
	return p
}

// put hands over a batch and returns an empty one. The error may be that of an earlier batch.
func (p *packer) put(b []byte) ([]byte, error) {
	select {
	case <-p.done:
		return b, p.err
	case p.in <- b:
	}
	select {
	case <-p.done:
		return b, p.err
	case next := <-p.free:
		return next[:0], nil
	}
}

// close waits until everything is written. It may be called again.
func (p *packer) close() error {
	if p.in != nil {
		close(p.in)
		p.in = nil
	}
	<-p.done
	return p.err
}

func (p *packer) run(in <-chan []byte) {
	defer close(p.done)
	for b := range in {
		data := b
		if !p.raw {
			if p.err = p.deflate(b); p.err != nil {
				return
			}
			data = p.zbuf.b
		}
		if _, err := p.w.Write(data); err != nil {
			p.err = fmt.Errorf("writing the trace: %w", err)
			return
		}
		p.free <- b
	}
}

// Write appends to the packet that deflate is making.
func (p *buffer) Write(b []byte) (int, error) {
	p.b = append(p.b, b...)
	return len(b), nil
}

func (p *packer) deflate(b []byte) error {
	p.zbuf.b = p.zbuf.b[:0]
	if p.z == nil {
		z, err := zlib.NewWriterLevel(&p.zbuf, zlib.BestSpeed+1)
		if err != nil {
			return err
		}
		p.z = z
	}
	pkt := p.zbuf.open(tracePacket)
	field := p.zbuf.open(packetCompressed)
	p.z.Reset(&p.zbuf)
	if _, err := p.z.Write(b); err != nil {
		return err
	}
	if err := p.z.Close(); err != nil {
		return err
	}
	p.zbuf.close(field)
	p.zbuf.close(pkt)
	return nil
}
