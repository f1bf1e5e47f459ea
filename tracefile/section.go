// Framing: the file's header and sections, checksums and compression. What is inside a section is in
// fields.go, batch.go, event.go, node.go and symbol.go.

package tracefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// The file starts with fileMagic, its version and a checksum of both. The magic has a byte above 127, both
// line ends and a ^Z in it, so that a transfer in text mode damages it visibly.
const (
	fileMagic       = "\x89HBT\r\n\x1a\n"
	fileVersion     = 1
	fileHeaderBytes = 16 // magic, version uint32, CRC-32C of the 12 bytes before
)

// sectionKind says what a section holds. Numbers are part of the format.
type sectionKind uint8

const (
	sectionMeta sectionKind = iota + 1
	sectionProcesses
	sectionThreads
	sectionModules
	sectionNodes
	sectionEvents
	sectionSymbols
	sectionStats
	sectionFooter
	sectionSummary
)

var sectionNames = [...]string{
	sectionMeta: "meta", sectionProcesses: "processes", sectionThreads: "threads", sectionModules: "modules",
	sectionNodes: "nodes", sectionEvents: "events", sectionSymbols: "symbols", sectionStats: "stats",
	sectionFooter: "footer", sectionSummary: "summary",
}

func (k sectionKind) known() bool { return k >= sectionMeta && k <= sectionSummary }

func (k sectionKind) String() string {
	if k.known() {
		return sectionNames[k]
	}
	return fmt.Sprintf("unknown (%d)", uint8(k))
}

// newest is the newest version of a kind of section, and oldest the oldest one that this package reads.
func (k sectionKind) newest() uint8 {
	switch k {
	case sectionEvents:
		return 3
	case sectionNodes:
		return 2
	}
	return 1
}

func (k sectionKind) oldest() uint8 {
	if k == sectionEvents {
		return 3
	}
	return 1
}

const flagZstd = 1 // the payload is one zstd frame

// A section header, little endian:
//
//	0  kind uint8, version uint8, flags uint8, zero uint8
//	4  stored uint32   bytes of payload that follow
//	8  raw    uint32   bytes of it when decompressed
//	12 count  uint32   things in it
//	16 CRC-32C of the stored payload
//	20 CRC-32C of the 20 bytes before
const sectionHeaderBytes = 24

const (
	// No section but the footer is larger than this, stored or decompressed.
	maxSectionBytes = 4 << 20
	// A payload that compresses better than this is stored raw, so that a reader can refuse a header that
	// asks for more memory than the file warrants.
	maxRatio = 250
	// Writers end a section once it is this large: readers hold one in memory.
	targetSectionBytes = 256 << 10
	// Smaller payloads are not worth a compressor's time.
	minCompressBytes = 256
)

type sectionHeader struct {
	kind    sectionKind
	version uint8
	flags   uint8
	stored  uint32
	raw     uint32
	count   uint32
	crc     uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

func appendFileHeader(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, fileMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, fileVersion)
	return binary.LittleEndian.AppendUint32(dst, crc(dst[at:]))
}

// appendSection appends a section, compressed with z where that pays.
func appendSection(dst []byte, kind sectionKind, version uint8, count int, payload []byte, z *zstd.Encoder) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, sectionHeaderBytes)...)
	var flags uint8
	body := len(dst)
	if len(payload) >= minCompressBytes {
		dst = z.EncodeAll(payload, dst)
		stored := len(dst) - body
		if stored < len(payload)-len(payload)/16 && len(payload) <= stored*maxRatio {
			flags = flagZstd
		} else {
			dst = dst[:body]
		}
	}
	if flags == 0 {
		dst = append(dst, payload...)
	}
	sealHeader(dst[at:body], kind, version, flags, count, len(payload), dst[body:])
	return dst
}

// sealHeader fills in a section's header.
func sealHeader(h []byte, kind sectionKind, version, flags uint8, count, raw int, stored []byte) {
	h[0], h[1], h[2] = byte(kind), version, flags
	binary.LittleEndian.PutUint32(h[4:], uint32(len(stored)))
	binary.LittleEndian.PutUint32(h[8:], uint32(raw))
	binary.LittleEndian.PutUint32(h[12:], uint32(count))
	binary.LittleEndian.PutUint32(h[16:], crc(stored))
	binary.LittleEndian.PutUint32(h[20:], crc(h[:20]))
}

// Reasons for which a section cannot be read. errCut means that the file ends inside the section.
var (
	errCut      = errors.New("the file ends inside it")
	errHeader   = errors.New("its header is damaged")
	errChecksum = errors.New("its checksum does not match")
	errNewer    = errors.New("it was written by a newer version")
	errOlder    = errors.New("it was written by an older version")
)

// readSectionHeader reads the header at an offset of a file of size bytes.
func readSectionHeader(f io.ReaderAt, off, size int64) (sectionHeader, error) {
	var p [sectionHeaderBytes]byte
	if size-off < sectionHeaderBytes {
		return sectionHeader{}, errCut
	}
	if _, err := f.ReadAt(p[:], off); err != nil {
		return sectionHeader{}, readError(err)
	}
	if binary.LittleEndian.Uint32(p[20:]) != crc(p[:20]) {
		return sectionHeader{}, errHeader
	}
	h := sectionHeader{
		kind: sectionKind(p[0]), version: p[1], flags: p[2],
		stored: binary.LittleEndian.Uint32(p[4:]), raw: binary.LittleEndian.Uint32(p[8:]),
		count: binary.LittleEndian.Uint32(p[12:]), crc: binary.LittleEndian.Uint32(p[16:]),
	}
	if int64(h.stored) > size-off-sectionHeaderBytes {
		return h, errCut
	}
	return h, nil
}

// readError is what a failed ReadAt inside the file's size means: the file shrank, or the disk failed.
func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return errCut
	}
	return err
}

// sectionReader reads payloads into buffers that it uses again.
type sectionReader struct {
	f       io.ReaderAt
	size    int64
	stored  []byte
	raw     []byte
	decoder *zstd.Decoder
}

// payload reads and checks the payload of the section at off. It is valid until the next call.
func (r *sectionReader) payload(off int64, h sectionHeader) ([]byte, error) {
	if err := r.load(off, h); err != nil {
		return nil, err
	}
	if h.flags == 0 {
		return r.stored, nil
	}
	return r.decompress(h)
}

// load reads the stored payload of the section at off and holds it against its checksum.
func (r *sectionReader) load(off int64, h sectionHeader) error {
	switch {
	case h.version > h.kind.newest():
		return fmt.Errorf(
			"%w: it has version %d, this hbtrace knows %d: use a newer hbtrace",
			errNewer,
			h.version,
			h.kind.newest(),
		)
	case h.version < h.kind.oldest():
		return fmt.Errorf("%w: it has version %d, which this hbtrace no longer reads", errOlder, h.version)
	case h.flags&^flagZstd != 0:
		return fmt.Errorf("it has unknown flags %#x", h.flags)
	case h.kind != sectionFooter && (h.raw > maxSectionBytes || h.stored > maxSectionBytes):
		return fmt.Errorf("it claims %d bytes, more than %d", max(h.raw, h.stored), maxSectionBytes)
	case h.flags == 0 && h.raw != h.stored:
		return fmt.Errorf("it claims %d bytes and stores %d", h.raw, h.stored)
	case h.flags == flagZstd && uint64(h.raw) > uint64(h.stored)*maxRatio:
		return fmt.Errorf("it claims to hold %d bytes in %d", h.raw, h.stored)
	}
	if cap(r.stored) < int(h.stored) {
		r.stored = make([]byte, h.stored)
	}
	r.stored = r.stored[:h.stored]
	if _, err := r.f.ReadAt(r.stored, off+sectionHeaderBytes); err != nil {
		return readError(err)
	}
	if crc(r.stored) != h.crc {
		return errChecksum
	}
	return nil
}

// decompress returns what the stored payload holds.
func (r *sectionReader) decompress(h sectionHeader) ([]byte, error) {
	if r.decoder == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxSectionBytes), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, fmt.Errorf("making a decompressor: %w", err)
		}
		r.decoder = d
	}
	if cap(r.raw) < int(h.raw) {
		r.raw = make([]byte, h.raw)
	}
	raw, err := r.decoder.DecodeAll(r.stored, r.raw[:0:h.raw])
	if err != nil {
		return nil, fmt.Errorf("decompressing it: %w", err)
	}
	if len(raw) != int(h.raw) {
		return nil, fmt.Errorf("it decompresses to %d bytes instead of %d", len(raw), h.raw)
	}
	return raw, nil
}

// section reads the header and the payload of a section that the index names.
func (r *sectionReader) section(s indexEntry) (sectionHeader, []byte, error) {
	h, err := r.header(s)
	if err != nil {
		return h, nil, err
	}
	p, err := r.payload(s.off, h)
	return h, p, err
}

// check is section without looking inside.
func (r *sectionReader) check(s indexEntry) error {
	h, err := r.header(s)
	if err != nil {
		return err
	}
	return r.load(s.off, h)
}

func (r *sectionReader) header(s indexEntry) (sectionHeader, error) {
	h, err := readSectionHeader(r.f, s.off, r.size)
	if err == nil && h.kind != s.kind {
		err = fmt.Errorf("the index is wrong: it is of kind %s", h.kind)
	}
	return h, err
}

func (r *sectionReader) close() {
	if r.decoder != nil {
		r.decoder.Close()
		r.decoder = nil
	}
}
