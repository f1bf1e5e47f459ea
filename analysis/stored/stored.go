// Package stored is the form of what a run finds out at its end and leaves in the recording, so that later readers need
// not go through all events for it: several parts, each of one consumer, which gives it a version of its own. A part
// that is not there, or has another version, is worth nothing: what is in it is found anew.
//
// All parts together are what [tracefile.AppendSummary] stores:
//
//	format varint | per part: number varint, version varint, bytes
package stored

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/trace"
)

// format of what is around the parts. 1 and 2 were a report's facts without anything around them.
const format = 3

// Number says whose a part is. Numbers are never given again.
type Number uint64

// The parts.
const (
	Facts   Number = 1 // package report: what tables are made of
	Chains  Number = 2 // package report: what waits were spent on
	Profile Number = 3 // package pprof: a whole profile
)

// Part is what one consumer stores.
type Part struct {
	Number  Number
	Version uint64
	Bytes   []byte
}

// Encode puts parts together.
func Encode(parts ...Part) []byte {
	p := binary.AppendUvarint(nil, format)
	for _, x := range parts {
		p = binary.AppendUvarint(p, uint64(x.Number))
		p = binary.AppendUvarint(p, x.Version)
		p = binary.AppendUvarint(p, uint64(len(x.Bytes)))
		p = append(p, x.Bytes...)
	}
	return p
}

// Of finds the parts of a version in src, in the order of numbers; nil stands for those that are not there.
func Of(src trace.Source, version uint64, numbers ...Number) [][]byte {
	out := make([][]byte, len(numbers))
	c := Coding{P: src.Summary(), Reading: true}
	var f uint64
	if c.Uint(&f); f != format {
		return out
	}
	for len(c.P) > 0 && c.Err == nil {
		var number, have, size uint64
		for _, v := range []*uint64{&number, &have, &size} {
			c.Uint(v)
		}
		if size > uint64(len(c.P)) {
			break
		}
		for i, n := range numbers {
			if uint64(n) == number && have == version {
				out[i] = c.P[:size:size]
			}
		}
		c.P = c.P[size:]
	}
	return out
}
