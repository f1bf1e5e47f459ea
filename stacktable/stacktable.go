// Package stacktable gives every stack of a recording one 32-bit id.
//
// A stack is a path in a tree: a node is one frame together with its callers, (parent, address, how it was
// found), and its number is the [trace.StackID]. Equal frames under equal callers are one node, whichever
// process, thread or restart they came from, so a sample is stored as one id and two stacks share the storage
// of their common callers.
//
// # Layout
//
// Nodes are 16 bytes each, in chunks that never move. They are found through an index of 32-bit words, cut
// into shards by hash: open addressing with linear probing, filled to 7/8 and then grown by half. A word is
// the id and, in the bits that ids up to MaxNodes leave free, a tag from the hash, so that a probe rarely
// looks at a node in vain. Index included, a node costs 21 to 24 bytes.
//
// # Bounded memory
//
// A program that runs for weeks makes new stacks for ever; what is kept of it is the newest history. So a table
// has a cap, and [Table.Collect] takes back the nodes that nothing refers to any more: the caller names the stacks
// that are alive (roots), everything on their way to the outermost frame stays with its id, and the other ids are
// given out again. Nodes never move. The time between two collections is a lap: within one, ids are claimed in
// ascending order, so that [Table.AppendMade] can list what is new by one number.
//
// # Concurrency
//
// Everything but Collect may be called from any number of goroutines. Look-ups take no lock: they load the shard's
// index, probe it, and compare nodes. An insertion holds its shard's mutex. Its order is: claim the id, write the
// node's fields, store node.meta (which is never 0 in a written node), store the index word. Whoever loads
// the index word or a non-zero meta therefore sees the whole node. Ids are claimed in order and may be
// written out of order; AppendMade stops in front of the first that is not written.
//
// Collect must not run next to Push: who pushes a stack holds the id of its upper half, which is no root yet. Node and
// Depth of ids that are alive may run next to it, and stay wait-free.
package stacktable

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	chunkBits  = 12
	chunkNodes = 1 << chunkBits
	nodeBytes  = 16

	shardBits  = 6
	shardCount = 1 << shardBits
	// An index starts this small: a short recording has few nodes.
	firstIndexWords = 64

	// DefaultMaxNodes bounds a table to about 90 MB.
	DefaultMaxNodes = 1<<22 - 1
	// The largest cap: what 27 bits hold, so that at least 5 are left for the tag (3 GB of table).
	maxMaxNodes = 1<<27 - 1
)

// Options configure a table. The zero value takes the defaults.
type Options struct {
	// MaxNodes caps the table. Past it Push returns the parent and counts, until Collect. 0: DefaultMaxNodes.
	MaxNodes int
}

// Table holds the nodes of one recording.
type Table struct {
	// immutable
	maxNodes   uint32
	idMask     uint32 // bits of an index word that hold the id; the others are the tag
	indexWords int    // of a shard that holds its share of maxNodes

	chunks []atomic.Pointer[chunk] // set once each, under chunkMu
	shards [shardCount]shard

	// Ids up to recycled are given out again where free has their bit; both are written by Collect alone.
	free     []uint64
	recycled uint32

	cursor    atomic.Uint32 // the last id claimed in this lap; maxNodes when there are no more
	top       atomic.Uint32 // highest id ever claimed: nodes up to here have their chunk
	made      atomic.Uint64
	collected atomic.Uint64
	overflow  atomic.Uint64
	refused   atomic.Uint64

	chunkMu sync.Mutex
}

type chunk [chunkNodes]node

// node is one frame. off and parent are written before meta and never again.
type node struct {
	off    uint64
	parent uint32
	meta   atomic.Uint32 // depth, how and module; 0: not written yet
}

// meta packs module:19 | how:3 | depth:10. A depth of depthMax or more is stored as depthMax.
const (
	depthBits = 10
	depthMax  = 1<<depthBits - 1
	howBits   = 3
	howShift  = depthBits
	modShift  = depthBits + howBits
	maxModule = 1<<(32-modShift) - 1
	maxHow    = 1<<howBits - 1
	keyMask   = ^uint32(depthMax) // what identifies a node: depth follows from the parent
)

type shard struct {
	index atomic.Pointer[index] // replaced when it grows, under mu
	mu    sync.Mutex
	used  int // under mu
	_     [40]byte
}

// index words are 0 (free) or tag | id. They are set once.
type index struct {
	words []atomic.Uint32
}

// New returns an empty table.
func New(o Options) *Table {
	n := o.MaxNodes
	if n <= 0 {
		n = DefaultMaxNodes
	}
	n = min(n, maxMaxNodes)
	t := &Table{
		maxNodes: uint32(n),
		idMask:   1<<bits.Len32(uint32(n)) - 1,
		chunks:   make([]atomic.Pointer[chunk], n/chunkNodes+1),
		// A shard's share varies by its square root: one in a hundred more, and some, is enough for most.
		indexWords: n/shardCount*8/7*101/100 + firstIndexWords,
	}
	for i := range t.shards {
		t.shards[i].index.Store(&index{words: make([]atomic.Uint32, firstIndexWords)})
	}
	return t
}

// Push returns the node of a frame at addr whose callers are parent (0: none, the outermost frame), making it
// when it is new. The table being full, or the frame being one that it cannot hold (a module above 524287),
// it returns parent and counts: the stack is then known up to its caller. parent must come from this table.
func (t *Table) Push(parent trace.StackID, addr trace.Addr, how trace.How) trace.StackID {
	if addr.Module > maxModule || how > maxHow || uint32(parent) > t.top.Load() {
		t.refused.Add(1)
		return parent
	}
	key := uint32(addr.Module)<<modShift | uint32(how)<<howShift
	h := hash(uint32(parent), addr.Off, key)
	s := &t.shards[h>>(64-shardBits)]
	if id := t.find(s.index.Load(), h, uint32(parent), addr.Off, key); id != 0 {
		return trace.StackID(id)
	}
	if t.cursor.Load() >= t.maxNodes { // without this, a full table would pass every new frame through a lock
		t.overflow.Add(1)
		return parent
	}
	return t.insert(s, h, parent, addr.Off, key)
}

// hash spreads a key over 64 bits: the top ones choose the shard, the next 32 the place, the low ones the tag.
func hash(parent uint32, off uint64, key uint32) uint64 {
	hi, lo := bits.Mul64(off^0x9e3779b97f4a7c15, (uint64(parent)<<32|uint64(key))^0xd6e8feb86659fd93)
	h := (hi ^ lo) * 0xff51afd7ed558ccd
	return h ^ h>>32
}

func place(h uint64, words int) int {
	return int(h << shardBits >> 32 * uint64(words) >> 32)
}

func (t *Table) tag(h uint64) uint32 { return uint32(h) &^ t.idMask }

// find probes x for a node; 0 means that it was not there.
func (t *Table) find(x *index, h uint64, parent uint32, off uint64, key uint32) uint32 {
	tag := t.tag(h)
	for i := place(h, len(x.words)); ; {
		w := x.words[i].Load() // pairs with the store in insert
		if w == 0 {
			return 0
		}
		if w&^t.idMask == tag {
			id := w & t.idMask
			n := t.at(id)
			if n.off == off && n.parent == parent && n.meta.Load()&keyMask == key {
				return id
			}
		}
		if i++; i == len(x.words) {
			i = 0
		}
	}
}

func (t *Table) at(id uint32) *node {
	return &t.chunks[id>>chunkBits].Load()[id&(chunkNodes-1)]
}

func (t *Table) insert(s *shard, h uint64, parent trace.StackID, off uint64, key uint32) trace.StackID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := t.find(s.index.Load(), h, uint32(parent), off, key); id != 0 {
		return trace.StackID(id) // somebody else was faster
	}
	if parent != 0 && t.at(uint32(parent)).meta.Load() == 0 {
		t.refused.Add(1) // it was taken back
		return parent
	}
	id := t.claim()
	if id == 0 {
		t.overflow.Add(1)
		return parent
	}
	depth := min(t.Depth(parent)+1, depthMax)
	n := t.at(id)
	n.off = off
	n.parent = uint32(parent)
	n.meta.Store(key | uint32(depth))
	t.made.Add(1)
	t.publish(s, h, id)
	return trace.StackID(id)
}

// claim gives out the next id, with its chunk in place; 0 when the table is full.
func (t *Table) claim() uint32 {
	for {
		last := t.cursor.Load()
		id := t.nextFree(last)
		if id > t.maxNodes {
			if last < t.maxNodes && !t.cursor.CompareAndSwap(last, t.maxNodes) {
				continue
			}
			return 0
		}
		// The chunk first: whoever sees the id claimed may look at its node.
		if p := &t.chunks[id>>chunkBits]; p.Load() == nil {
			t.chunkMu.Lock()
			if p.Load() == nil {
				p.Store(new(chunk))
			}
			t.chunkMu.Unlock()
		}
		if !t.cursor.CompareAndSwap(last, id) {
			continue
		}
		for top := t.top.Load(); id > top && !t.top.CompareAndSwap(top, id); top = t.top.Load() {
		}
		return id
	}
}

// nextFree is the first id behind id that this lap may give out.
func (t *Table) nextFree(id uint32) uint32 {
	id++
	if id > t.recycled {
		return id
	}
	for w := id / 64; w < uint32(len(t.free)); w++ {
		word := t.free[w]
		if w == id/64 {
			word &= ^uint64(0) << (id % 64)
		}
		if word != 0 {
			return w*64 + uint32(bits.TrailingZeros64(word))
		}
	}
	return t.recycled + 1
}

// publish enters id into the shard's index; the caller holds s.mu.
func (t *Table) publish(s *shard, h uint64, id uint32) {
	x := s.index.Load()
	if s.used++; s.used > len(x.words)/8*7 {
		words := len(x.words) + len(x.words)/2
		if words > t.indexWords && len(x.words) < t.indexWords {
			words = t.indexWords // it will hardly ever need more
		}
		grown := &index{words: make([]atomic.Uint32, words)}
		for i := range x.words {
			old := x.words[i].Load() & t.idMask
			if old == 0 {
				continue
			}
			n := t.at(old)
			grown.put(hash(n.parent, n.off, n.meta.Load()&keyMask), old, t)
		}
		grown.put(h, id, t)
		s.index.Store(grown)
		return
	}
	x.put(h, id, t)
}

func (x *index) put(h uint64, id uint32, t *Table) {
	i := place(h, len(x.words))
	for x.words[i].Load() != 0 {
		if i++; i == len(x.words) {
			i = 0
		}
	}
	x.words[i].Store(t.tag(h) | id)
}

// Node returns a stack's leaf frame; the zero Node for 0 and for an id that was never given out or that was
// collected. It is wait-free.
func (t *Table) Node(id trace.StackID) trace.Node {
	if id == 0 || uint32(id) > t.top.Load() {
		return trace.Node{}
	}
	n := t.at(uint32(id))
	meta := n.meta.Load() // pairs with the store in insert: the other fields are read after it
	if meta == 0 {
		return trace.Node{}
	}
	return trace.Node{
		Parent: trace.StackID(n.parent),
		Addr:   trace.Addr{Module: trace.ModuleID(meta >> modShift), Off: n.off},
		How:    trace.How(meta >> howShift & maxHow),
	}
}

// Depth is the number of frames of a stack: 0 for the empty one and for an id that was never given out.
func (t *Table) Depth(id trace.StackID) int {
	above := 0 // frames walked because their depth did not fit
	for id != 0 && uint32(id) <= t.top.Load() {
		n := t.at(uint32(id))
		d := int(n.meta.Load() & depthMax)
		if d != depthMax {
			return above + d
		}
		above++
		id = trace.StackID(n.parent)
	}
	return above
}

// Len is the number of nodes in the table.
func (t *Table) Len() int { return int(t.made.Load() - t.collected.Load()) }

// Cap is how many nodes the table can hold.
func (t *Table) Cap() int { return int(t.maxNodes) }

// Room is how many nodes can still be added before the table is full.
func (t *Table) Room() int { return int(t.maxNodes) - t.Len() }

// Made is a node that was made in this lap.
type Made struct {
	ID trace.StackID
	trace.Node
}

// AppendMade appends the nodes that were made in this lap and whose ids are above since, in ascending order, as far
// as they are whole, and returns the last of these ids. So nodes can be stored in increments:
//
//	made, stored = t.AppendMade(made[:0], stored)
//
// since is 0 at the beginning of a lap, that is at first and after Collect. What a lap made must be taken before the
// next one begins. A node's parent is of an earlier lap or was made before it, but may have a higher id.
func (t *Table) AppendMade(dst []Made, since trace.StackID) ([]Made, trace.StackID) {
	last := min(t.cursor.Load(), t.top.Load())
	for id := t.nextFree(uint32(since)); id <= last; id = t.nextFree(id) {
		if t.at(id).meta.Load() == 0 { // before the node is read: it may be written in between
			break // claimed, and not written yet
		}
		dst = append(dst, Made{trace.StackID(id), t.Node(trace.StackID(id))})
		since = trace.StackID(id)
	}
	return dst, since
}

// Stats is what a table holds and what it could not.
type Stats struct {
	Nodes     int
	Bytes     int    // memory of nodes and index
	Made      uint64 // nodes ever made
	Collected uint64 // of them, taken back
	Overflow  uint64 // frames that were not added because MaxNodes had been reached
	Refused   uint64 // frames that cannot be represented, or whose parent does not exist
}

// Stats counts the table.
func (t *Table) Stats() Stats {
	s := Stats{Made: t.made.Load(), Collected: t.collected.Load(), Overflow: t.overflow.Load(), Refused: t.refused.Load()}
	s.Nodes = int(s.Made - s.Collected)
	s.Bytes = len(t.chunks)*8 + cap(t.free)*8
	for i := range t.chunks {
		if t.chunks[i].Load() != nil {
			s.Bytes += chunkNodes * nodeBytes
		}
	}
	for i := range t.shards {
		s.Bytes += len(t.shards[i].index.Load().words) * 4
	}
	return s
}

// All calls f for every node, in ascending order of ids. A parent may come after its child. It must not run next to
// Push or Collect.
func (t *Table) All(f func(trace.StackID, trace.Node)) {
	for id := trace.StackID(1); uint32(id) <= t.top.Load(); id++ {
		if n := t.Node(id); n != (trace.Node{}) {
			f(id, n)
		}
	}
}
