// The footer: an index of all sections, so that a reader need not walk through the file. It is the last section
// and ends in a trailer of fixed size, by which it is found.
//
//	payload  count, then for each section: kind uint8, distance of its offset from the one before, count
//	trailer  offset of the footer's header uint64, CRC-32C of these 8 bytes, "hbtE"

package tracefile

import (
	"encoding/binary"
	"errors"
)

const (
	trailerBytes = 16
	trailerMagic = "hbtE"
)

var errNoFooter = errors.New("the file has no footer")

func appendFooter(dst []byte, index []indexEntry, off int64) []byte {
	p := binary.AppendUvarint(nil, uint64(len(index)))
	var last int64
	for _, e := range index {
		p = append(p, byte(e.kind))
		p = binary.AppendUvarint(p, uint64(e.off-last))
		p = binary.AppendUvarint(p, uint64(e.count))
		last = e.off
	}
	at := len(p)
	p = binary.LittleEndian.AppendUint64(p, uint64(off))
	p = binary.LittleEndian.AppendUint32(p, crc(p[at:]))
	p = append(p, trailerMagic...)

	h := len(dst)
	dst = append(dst, make([]byte, sectionHeaderBytes)...)
	dst = append(dst, p...)
	sealHeader(dst[h:h+sectionHeaderBytes], sectionFooter, 1, 0, len(index), len(p), p)
	return dst
}

// readFooter returns the index of a file that was closed. Every error means that there is none to be trusted.
func readFooter(r *sectionReader) (index []indexEntry, footerOff int64, err error) {
	var t [trailerBytes]byte
	if r.size < fileHeaderBytes+sectionHeaderBytes+trailerBytes {
		return nil, 0, errNoFooter
	}
	if _, err := r.f.ReadAt(t[:], r.size-trailerBytes); err != nil {
		return nil, 0, readError(err)
	}
	off := binary.LittleEndian.Uint64(t[:])
	if string(t[12:]) != trailerMagic || binary.LittleEndian.Uint32(t[8:]) != crc(t[:8]) || off > uint64(r.size) {
		return nil, 0, errNoFooter
	}
	h, err := readSectionHeader(r.f, int64(off), r.size)
	if err != nil {
		return nil, 0, err
	}
	if h.kind != sectionFooter || int64(off)+sectionHeaderBytes+int64(h.stored) != r.size {
		return nil, 0, errNoFooter
	}
	p, err := r.payload(int64(off), h)
	if err != nil {
		return nil, 0, err
	}
	index, err = decodeFooter(p, int64(off))
	return index, int64(off), err
}

// decodeFooter checks that offsets grow and lie in front of the footer.
func decodeFooter(p []byte, footerOff int64) ([]indexEntry, error) {
	if len(p) < trailerBytes {
		return nil, errMalformed
	}
	c := cursor{p: p[:len(p)-trailerBytes]}
	var (
		index []indexEntry
		last  uint64
	)
	for range c.count() {
		kind := sectionKind(c.byte())
		step := c.uvarint()
		e := indexEntry{kind: kind, count: c.uint32()}
		least := uint64(sectionHeaderBytes)
		if len(index) == 0 {
			least = fileHeaderBytes
		}
		if c.bad || step < least || step > uint64(footerOff)-last {
			return nil, errMalformed
		}
		last += step
		e.off = int64(last)
		index = append(index, e)
	}
	if c.bad || len(c.p) > 0 {
		return nil, errMalformed
	}
	return index, nil
}
