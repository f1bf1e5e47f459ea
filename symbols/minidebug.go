package symbols

// This file owns .gnu_debugdata: an ELF file with nothing but a symbol table, compressed by xz, that Fedora and its kin put
// into stripped programs ("mini debug info"). The container is read here, so that every block's dictionary and size are
// known before memory is taken, and its checksum is compared: https://tukaani.org/xz/xz-file-format.txt.

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

const (
	maxMiniBytes = 64 << 20 // uncompressed: a symbol table of a million functions
	maxMiniDict  = 64 << 20 // xz -9
	xzMagic      = "\xfd7zXZ\x00"
)

// miniDebug opens the mini debug info of im; nil, nil when it has none.
func miniDebug(im *image) (*image, error) {
	s := im.elf.Section(".gnu_debugdata")
	if s == nil {
		return nil, nil
	}
	b, err := im.contents(s)
	if err != nil || b == nil {
		return nil, err
	}
	b, err = unxz(b, maxMiniBytes)
	if err != nil {
		return nil, err
	}
	return newImage(im.path+" (.gnu_debugdata)", nopCloser{bytes.NewReader(b)})
}

// unxz returns the contents of an xz stream of LZMA2 blocks, if they are not more than limit bytes.
func unxz(b []byte, limit int) ([]byte, error) {
	if len(b) < 12 || string(b[:6]) != xzMagic || b[6] != 0 || crc32.ChecksumIEEE(b[6:8]) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, errors.New("no xz stream")
	}
	check := b[7]
	out := growing{limit: limit + 1}
	for at := 12; ; {
		if at >= len(b) {
			return nil, io.ErrUnexpectedEOF
		}
		if b[at] == 0 { // the index: no more blocks
			return out.b, nil
		}
		size := (int(b[at]) + 1) * 4
		if size > len(b)-at {
			return nil, io.ErrUnexpectedEOF
		}
		dict, err := xzDictionary(b[at : at+size])
		if err != nil {
			return nil, err
		}
		at += size
		var h hash.Hash
		switch check {
		case 0:
		case 1:
			h = crc32.NewIEEE()
		case 4:
			h = crc64.New(crc64.MakeTable(crc64.ECMA))
		case 10:
			h = sha256.New()
		default:
			return nil, fmt.Errorf("xz check %d is unknown", check)
		}
		src := bytes.NewReader(b[at:])
		r, err := lzma.Reader2Config{DictCap: dict}.NewReader2(src)
		if err != nil {
			return nil, err
		}
		to := io.Writer(&out)
		if h != nil {
			to = io.MultiWriter(&out, h)
		}
		_, err = io.Copy(to, io.LimitReader(r, int64(limit-len(out.b))+1))
		if err != nil {
			return nil, err
		}
		if len(out.b) > limit {
			return nil, fmt.Errorf("expands to more than %d MiB", limit>>20)
		}
		at = (len(b) - src.Len() + 3) &^ 3
		if h == nil {
			continue
		}
		sum := h.Sum(nil)
		if len(sum) < 32 { // those of CRCs are stored with the low byte first
			for i, k := 0, len(sum)-1; i < k; i, k = i+1, k-1 {
				sum[i], sum[k] = sum[k], sum[i]
			}
		}
		if at > len(b) || !bytes.HasPrefix(b[at:], sum) {
			return nil, errors.New("xz checksum does not match")
		}
		at += len(sum)
	}
}

// growing is a buffer that grows by a quarter, where bytes.Buffer doubles: an xz bomb takes little more than the limit.
type growing struct {
	b     []byte
	limit int
}

func (g *growing) Write(p []byte) (int, error) {
	if need := len(g.b) + len(p); need > cap(g.b) {
		b := make([]byte, len(g.b), min(max(need, len(g.b)+len(g.b)/4, 64<<10), max(need, g.limit)))
		copy(b, g.b)
		g.b = b
	}
	g.b = append(g.b, p...)
	return len(p), nil
}

// xzDictionary returns the size of the dictionary that a block header asks for. The block has to be LZMA2 alone.
func xzDictionary(h []byte) (int, error) {
	end := len(h) - 4
	if crc32.ChecksumIEEE(h[:end]) != binary.LittleEndian.Uint32(h[end:]) {
		return 0, errors.New("xz block header is damaged")
	}
	c := cursor{b: h[:end], at: 2}
	flags := h[1]
	if flags&0x40 != 0 {
		c.uleb() // compressed size
	}
	if flags&0x80 != 0 {
		c.uleb()
	}
	id, n := c.uleb(), c.uleb()
	bits := c.u8()
	if c.bad || flags&0x3f != 0 || id != 0x21 || n != 1 || bits > 40 {
		return 0, errors.New("xz filters other than LZMA2")
	}
	dict := uint64(2|bits&1) << (bits/2 + 11)
	if dict > maxMiniDict {
		return 0, fmt.Errorf("xz dictionary of %d MiB", dict>>20)
	}
	return int(max(dict, lzma.MinDictCap)), nil
}
