// Nodes of the stack table, in increments. A section of version 1 holds the ids from some first one on:
//
//	payload  first, then for each node: up, module<<3|how, off
//
// up is the distance from the node's id to its parent's, 0 for an outermost frame; off is the difference to the
// node before. Of version 2 are those that give an id anew, because the recorder has taken it back from a stack that
// nothing needed any more (stacktable.Collect), or whose parents are of such ids:
//
//	payload  for each node: id, up, module<<3|how, off
//
// id is the difference to the node before, up is signed, the parent is whichever node had that id last. An id means its
// newest node in front of where it is used: events in front of a section of version 2 keep their stacks. Readers
// give the nodes numbers of their own, which never change (names.go).

package tracefile

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	howBits   = 3
	maxHow    = 1<<howBits - 1
	maxModule = math.MaxUint32 >> howBits
)

func appendNode(dst []byte, id trace.StackID, n trace.Node, lastOff uint64) []byte {
	var up uint64
	if n.Parent != 0 {
		up = uint64(id - n.Parent)
	}
	dst = binary.AppendUvarint(dst, up)
	dst = binary.AppendUvarint(dst, uint64(n.Addr.Module)<<howBits|uint64(n.How))
	return binary.AppendVarint(dst, int64(n.Addr.Off-lastOff))
}

// appendNamedNode appends a node of a section of version 2; last and lastOff are those of the node before.
func appendNamedNode(dst []byte, id trace.StackID, n trace.Node, last trace.StackID, lastOff uint64) []byte {
	var up int64
	if n.Parent != 0 {
		up = int64(id) - int64(n.Parent)
	}
	dst = binary.AppendUvarint(dst, uint64(id-last))
	dst = binary.AppendVarint(dst, up)
	dst = binary.AppendUvarint(dst, uint64(n.Addr.Module)<<howBits|uint64(n.How))
	return binary.AppendVarint(dst, int64(n.Addr.Off-lastOff))
}

// checkNode refuses what the format cannot hold.
func checkNode(id trace.StackID, n trace.Node) error {
	switch {
	case n.How > maxHow:
		return fmt.Errorf("storing node %d: no room for how %d", id, n.How)
	case n.Addr.Module > maxModule:
		return fmt.Errorf("storing node %d: no room for module %d", id, n.Addr.Module)
	}
	return nil
}

// nodeStore keeps nodes in 16 bytes each.
type nodeStore []packedNode

type packedNode struct {
	off    uint64
	parent uint32
	modHow uint32
}

// at returns a node; the zero Node where there is none.
func (s nodeStore) at(id trace.StackID) trace.Node {
	if id == 0 || uint64(id) > uint64(len(s)) {
		return trace.Node{}
	}
	n := &s[id-1]
	return trace.Node{
		Parent: trace.StackID(n.parent),
		Addr:   trace.Addr{Module: trace.ModuleID(n.modHow >> howBits), Off: n.off},
		How:    trace.How(n.modHow & maxHow),
	}
}

// decode adds the nodes of a section of version 1, which must be the next ones. On an error it adds none.
func (s *nodeStore) decode(payload []byte, count uint32) error {
	out := *s
	err := decodeNodes(payload, 1, count, uint32(len(*s)), func(_, parent, modHow uint32, off uint64) error {
		out = append(out, packedNode{off: off, parent: parent, modHow: modHow})
		return nil
	})
	if err != nil {
		return err
	}
	*s = out
	return nil
}

// decodeNodes calls f for the nodes of a section. have is the highest id so far: nodes above come one after the other.
// Parents are not 0 < have+1, and in version 1 less than id; more is not known of them.
func decodeNodes(
	payload []byte,
	version uint8,
	count, have uint32,
	f func(id, parent, modHow uint32, off uint64) error,
) error {
	c := cursor{p: payload}
	id := uint64(0)
	if version == 1 {
		first := c.uvarint()
		if first != uint64(have)+1 {
			return fmt.Errorf("it starts at node %d where %d is next", first, uint64(have)+1)
		}
		id = uint64(have)
	}
	if uint64(count) > uint64(len(c.p))/3 || uint64(have)+uint64(count) > math.MaxUint32 {
		return errMalformed
	}
	top := uint64(have)
	var off uint64
	for range count {
		var up int64
		if version == 1 {
			id++
			distance := c.uvarint()
			if distance >= id {
				return errMalformed
			}
			up = int64(distance)
		} else {
			id += c.uvarint()
			up = c.varint()
		}
		modHow := c.uint32()
		off += uint64(c.varint())
		parent := int64(0)
		if up != 0 {
			parent = int64(id) - up
		}
		if c.bad || id == 0 || id > top+1 || parent < 0 || parent > int64(top) {
			return errMalformed
		}
		top = max(top, id)
		if err := f(uint32(id), uint32(parent), modHow, off); err != nil {
			return err
		}
	}
	if c.bad || len(c.p) > 0 {
		return errMalformed
	}
	return nil
}
