// Reading a recording whose recorder gave ids of its stack table out again. Readers number the distinct nodes of the
// whole file, so that a number means one stack from the first event to the last, and equal stacks have one
// number however often they were forgotten and made again. What the file calls a node changes on the way through it.
//
// A file without node sections of version 2 needs none of this: its ids are the reader's numbers.

package tracefile

import (
	"math"

	"github.com/hbtrace/hbtrace/trace"
)

// unknownStack is no node's number: what an event gets whose stack the file has not defined.
const unknownStack = trace.StackID(math.MaxUint32)

// names says which node each of the file's ids means at one place of the file; 0: none.
type names []uint32

func (n names) of(id trace.StackID) trace.StackID {
	if id == 0 {
		return 0
	}
	if uint64(id) < uint64(len(n)) && n[id] != 0 {
		return trace.StackID(n[id])
	}
	return unknownStack
}

// set makes id mean a node; ids are at most one above those that there are.
func (n *names) set(id, node uint32) {
	if int(id) == len(*n) {
		*n = append(*n, node)
		return
	}
	(*n)[id] = node
}

func identity(nodes int) names {
	n := make(names, nodes+1, nodes+nodes/4+1)
	for i := range n {
		n[i] = uint32(i)
	}
	return n
}

// renaming is how a node section changes names.
type renaming struct {
	off   int64
	first uint32 // number of the first node that was new in it
	// Which of its nodes were not, in order: the k-th is node number.
	known []knownNode
}

type knownNode struct{ k, number uint32 }

// namer builds a reader's nodes from the first section of version 2 on.
type namer struct {
	names names
	index []uint32 // numbers of nodes by hash, 0 free; less than half full
}

func newNamer(s nodeStore) *namer {
	n := &namer{names: identity(len(s))}
	n.grow(s)
	return n
}

func (n *namer) grow(s nodeStore) {
	size := 1024
	for size < 4*len(s) {
		size *= 2
	}
	n.index = make([]uint32, size)
	for i := range s {
		*n.find(s, s[i]) = uint32(i + 1)
	}
}

// find is the place of a node's number in the index.
func (n *namer) find(s nodeStore, p packedNode) *uint32 {
	h := (p.off ^ uint64(p.parent)<<32 ^ uint64(p.modHow)) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	for i := h >> 32; ; i++ {
		at := &n.index[i&uint64(len(n.index)-1)]
		if *at == 0 || s[*at-1] == p {
			return at
		}
	}
}

// section adds the nodes of a section that are new. On an error it adds none, and nothing behind it can be named.
func (n *namer) section(s *nodeStore, payload []byte, version uint8, count uint32, off int64) (renaming, error) {
	out := *s
	r := renaming{off: off, first: uint32(len(out)) + 1}
	k := uint32(0)
	err := decodeNodes(payload, version, count, uint32(len(n.names)-1), func(id, parent, modHow uint32, off uint64) error {
		p := packedNode{off: off, modHow: modHow}
		if parent != 0 {
			if p.parent = n.names[parent]; p.parent == 0 {
				return errMalformed
			}
		}
		at := n.find(out, p)
		if *at == 0 {
			if len(out) == math.MaxUint32-1 {
				return errMalformed // a recording of so many stacks cannot be numbered
			}
			out = append(out, p)
			*at = uint32(len(out))
		} else {
			r.known = append(r.known, knownNode{k, *at})
		}
		n.names.set(id, *at)
		if k++; 2*len(out) > len(n.index) {
			n.grow(out)
		}
		return nil
	})
	if err != nil {
		return renaming{}, err
	}
	*s = out
	return r, nil
}

// apply does what a section did to names when it was loaded.
func (r *renaming) apply(n *names, payload []byte, version uint8, count uint32) error {
	known, next, k := r.known, r.first, uint32(0)
	return decodeNodes(payload, version, count, uint32(len(*n)-1), func(id, _, _ uint32, _ uint64) error {
		number := next
		if len(known) > 0 && known[0].k == k {
			number = known[0].number
			known = known[1:]
		} else {
			next++
		}
		n.set(id, number)
		k++
		return nil
	})
}
