// frames.go remembers the nodes of frames that came up lately: programs come by the same ones again and again, and one
// look here saves looking for the frame's module and then for its node.
package assemble

import (
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

const (
	frameCacheBits = 12
	frameCacheSize = 1 << frameCacheBits
)

// frameCache holds nodes by what they were made from. It is forgotten whenever one of them could be made differently
// now: when modules come, and when the table takes nodes back.
type frameCache struct {
	list   [frameCacheSize]cachedFrame
	filled bool
}

type cachedFrame struct {
	pc     uint64 // as the agent sent it, with how it was found; 0: none
	parent trace.StackID
	id     trace.StackID
	proc   uint32
}

// frame is the node of a frame of p (nil: not known) under parent; pc is as the agent sent it. It is parent where the table has no
// room; not ok for a pc that makes no sense.
func (a *Assembler) frame(p *process, parent trace.StackID, pc uint64) (id trace.StackID, ok bool) {
	proc := uint32(0)
	if p != nil {
		proc = p.uid
	}
	h := (pc ^ uint64(parent)<<32 ^ uint64(proc)<<20) * 0x9e3779b97f4a7c15
	c := &a.frames.list[h>>(64-frameCacheBits)]
	if c.pc == pc && c.parent == parent && c.proc == proc && pc != 0 {
		return c.id, true
	}
	how, addr := trace.How(pc>>segment.PCShift), pc&(1<<segment.PCShift-1)
	if how < trace.HowExact || how > trace.HowMark {
		return 0, false
	}
	in, settled := a.within(p, addr, how)
	id = a.cfg.Stacks.Push(parent, in, how)
	if settled && id != parent {
		*c = cachedFrame{pc: pc, parent: parent, id: id, proc: proc}
		a.frames.filled = true
	}
	return id, true
}

func (c *frameCache) forget() {
	if c.filled {
		c.list = [frameCacheSize]cachedFrame{}
		c.filled = false
	}
}
