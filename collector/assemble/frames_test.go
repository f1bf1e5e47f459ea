package assemble

import (
	"testing"

	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/trace"
)

// TestFramesAfterModules: an address that was in one module, and is in another since, is not remembered where it was;
// one that lay nowhere is found when its module comes.
func TestFramesAfterModules(t *testing.T) {
	k := newKit(t, Config{})
	g := newAgent(1, 1)
	k.put(g.thread(1), g.procRec(1, 0, 0), g.module(1, "/old", 0x1000, 0x2000, 0))
	at := trace.Ns(10)
	leaf := func(addr uint64) trace.Addr {
		at++
		g.full = true
		k.put(g.sample(segment.SampleSync, 1, at, 0, pcs(addr)))
		k.Flush()
		es := k.of(trace.KindSync)
		return k.stack(es[len(es)-1].Stack)[0]
	}
	old := leaf(0x1800)
	if again := leaf(0x1800); again != old || k.modules[old.Module].Path != "/old" {
		t.Fatalf("%v, then %v, of %v", old, again, k.modules)
	}
	if nowhere := leaf(0x5800); nowhere != (trace.Addr{Off: 0x5800}) {
		t.Fatalf("an address in no module is %v", nowhere)
	}
	k.put(g.module(at+1, "/new", 0x1700, 0x1900, 0x100), g.module(at+1, "/later", 0x5000, 0x6000, 0))
	at++
	if now := leaf(0x1800); k.modules[now.Module].Path != "/new" || now.Off != 0x1700 {
		t.Errorf("%v after the mapping had changed, of %v", now, k.modules)
	}
	if now := leaf(0x5800); k.modules[now.Module].Path != "/later" {
		t.Errorf("%v after its module had come, of %v", now, k.modules)
	}
}

// TestFramesAfterCollect: a node that the table took back is not remembered.
func TestFramesAfterCollect(t *testing.T) {
	k := newKit(t, Config{})
	g, h := newAgent(1, 1), newAgent(2, 1)
	k.put(g.thread(1), g.procRec(1, 0, 0), g.module(1, "/app", 0, 1<<40, 0), h.thread(1))
	// next has thread 1 go through a stack and leave it.
	at := trace.Ns(10)
	next := func(addrs ...uint64) trace.StackID {
		at++
		g.full = true
		k.put(g.sample(segment.SampleSync, 1, at, 0, pcs(addrs...)))
		k.Flush()
		es := k.of(trace.KindSync)
		return es[len(es)-1].Stack
	}
	first := next(0x100, 0x200, 0x300)
	next(0x900)
	if n := k.table.Collect(k.Stacks, nil); n == 0 {
		t.Fatal("nothing was taken back")
	}
	next(0x10, 0x20, 0x30) // takes their numbers
	id := next(0x100, 0x200, 0x300)
	var offs []uint64
	for _, a := range k.stack(id) {
		offs = append(offs, a.Off)
	}
	if len(offs) != 3 || offs[0] != 0x100 || offs[1] != 0x200 || offs[2] != 0x300 {
		t.Errorf("stack %d, which was %d, is %#x", id, first, offs)
	}
}
