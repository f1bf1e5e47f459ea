// Nodes of the stack table, in increments: a section holds the ids from some first one on.
//
//	payload  first, then for each node: up, module<<3|how, off
//
// up is the distance from the node's id to its parent's, 0 for an outermost frame; off is the difference to the
// node before.

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

// checkNode refuses what the format cannot hold or what would make a stack endless.
func checkNode(id trace.StackID, n trace.Node) error {
	switch {
	case n.Parent >= id:
		return fmt.Errorf("storing node %d: its parent is %d: parents come first", id, n.Parent)
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

// decode adds the nodes of a section, which must be the next ones. On an error it adds none.
func (s *nodeStore) decode(payload []byte, count uint32) error {
	c := cursor{p: payload}
	have := uint64(len(*s))
	if first := c.uvarint(); first != have+1 {
		return fmt.Errorf("it starts at node %d where %d is next", first, have+1)
	}
	if uint64(count) > uint64(len(c.p))/3 || have+uint64(count) > math.MaxUint32 {
		return errMalformed
	}
	out := *s
	var off uint64
	for id := have + 1; id <= have+uint64(count); id++ {
		up := c.uvarint()
		modHow := c.uint32()
		off += uint64(c.varint())
		if up >= id {
			return errMalformed
		}
		n := packedNode{off: off, modHow: modHow}
		if up != 0 {
			n.parent = uint32(id - up)
		}
		out = append(out, n)
	}
	if c.bad || len(c.p) > 0 {
		return errMalformed
	}
	*s = out
	return nil
}
