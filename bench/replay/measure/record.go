// Package measure says how good a tracer's snapshot is. record.go: the record that is replayed, which carries
// its own proof; history.go: what a snapshot keeps and whether it is sound; latency.go: how long writing took.
package measure

import (
	"encoding/binary"
	"fmt"
)

// Head is the least size of a record: stamp 8, producer 4, sequence 4 bytes.
const Head = 16

// Encode fills p, of at least Head bytes and a multiple of 8, with the record of a producer: the logic stamp
// (global, one more for each record of any producer), who wrote it, the how manieth of his it is, and a filling
// that follows from the stamp, so that a torn record shows.
func Encode(p []byte, stamp uint64, producer, seq uint32) {
	binary.LittleEndian.PutUint64(p, stamp)
	binary.LittleEndian.PutUint32(p[8:], producer)
	binary.LittleEndian.PutUint32(p[12:], seq)
	for i := Head; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], fill(stamp, i))
	}
}

// Stamp is the logic stamp of a record.
func Stamp(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }

func fill(stamp uint64, at int) uint64 { return (stamp ^ uint64(at)<<48) * 0x9e3779b97f4a7c15 }

// decode takes a record apart and holds it against its own filling.
func decode(p []byte) (stamp uint64, producer, seq uint32, err error) {
	if len(p) < Head || len(p)%8 != 0 {
		return 0, 0, 0, fmt.Errorf("record of %d bytes", len(p))
	}
	stamp = binary.LittleEndian.Uint64(p)
	producer = binary.LittleEndian.Uint32(p[8:])
	seq = binary.LittleEndian.Uint32(p[12:])
	for i := Head; i < len(p); i += 8 {
		if binary.LittleEndian.Uint64(p[i:]) != fill(stamp, i) {
			return stamp, producer, seq, fmt.Errorf("record with stamp %d, producer %d, number %d is torn at byte %d of %d", stamp, producer, seq, i, len(p))
		}
	}
	return stamp, producer, seq, nil
}
