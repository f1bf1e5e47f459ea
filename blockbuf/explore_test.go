//go:build blockbufmodel

// A model checker over the code itself: it runs a few short threads under a scheduler of its own, which lets one
// access to shared memory happen at a time, and tries every order of them.
//
// A state is the shared memory and, for each thread, a hash of everything that it has seen there: what a thread
// does next is determined by that, so states that agree have the same futures, and are explored once. To try
// another order, everything is run again from the start up to where the orders part. Go's atomics are sequentially
// consistent, so interleavings are all that can happen to the words; record bytes are accessed in one step each.

package blockbuf

import (
	"fmt"
	"iter"
	"testing"
)

// thread is one thread of a scenario, as a coroutine that stops before each access.
type thread struct {
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	seen   uint64 // hash of what it has seen
	done   bool
	killed bool
}

type aborted struct{}

var current *thread // whose step it is; nil: nobody looks

func init() {
	stepBefore = func() {
		if current != nil && !current.yield(struct{}{}) {
			panic(aborted{})
		}
	}
	stepAfter = func(v uint64) {
		if current != nil {
			current.seen = mix(current.seen, v)
		}
	}
	hashForModel = func(p []byte) uint64 {
		h := uint64(len(p))
		for _, c := range p {
			h = mix(h, uint64(c))
		}
		return h
	}
}

func mix(h, v uint64) uint64 {
	h ^= v + 0x9e3779b97f4a7c15 + h<<6 + h>>2
	h *= 0xff51afd7ed558ccd
	return h ^ h>>32
}

func newThread(body func()) *thread {
	t := &thread{}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(aborted); !ok {
					panic(r)
				}
			}
		}()
		body()
	})
	t.run() // up to its first access
	return t
}

// run lets the thread make one access and go on to before the next.
func (t *thread) run() {
	current = t
	_, more := t.next()
	current = nil
	t.done = !more
}

// scenario is what the explorer explores.
type scenario struct {
	name    string
	options Options
	setup   func(e *env)   // before the threads, not explored
	threads []func(e *env) // calls that take effect on the buffer in steps
	kill    bool           // the first thread may be killed at any point
	final   func(e *env)   // when all have ended; not explored
	steps   int            // no run may take more than that
	resizes bool           // threads change the size
	bound   int            // explore only orders that leave a thread that could go on so many times; 0: all
}

// env is one run of a scenario.
type env struct {
	buf     *Buffer
	failed  string
	killed  bool
	logs    [4][]logged // by writer
	read    [4][]uint32 // what a reader has had, by writer
	readAt  []uint64
	reader  *Reader
	started map[[2]uint32]bool // commits that have begun
	busy    map[uint64]string  // bytes of blocks that are reserved, and by whom
	held    int
}

// logged is a record that was written, and at which position.
type logged struct {
	seq       uint32
	pos       uint64
	committed bool
}

func (e *env) failf(format string, args ...any) {
	if e.failed == "" {
		e.failed = fmt.Sprintf(format, args...)
	}
}

// explore runs all orders. It returns how many states there are.
func explore(t *testing.T, s scenario, limit int) (states int, complete bool) {
	t.Helper()
	s.options.heap, s.options.tiny = true, true
	b, err := newBuffer(s.options)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{buf: b}
	e.reset()
	if s.setup != nil {
		s.setup(e)
		if e.failed != "" {
			t.Fatal("setup: ", e.failed)
		}
	}
	begin := append([]byte(nil), b.mem.bytes...)
	prototype := *e
	words := stateWords(b)
	constants = constantWords(b, s.resizes)
	defer func() { constants = nil }()

	type node struct {
		choices []int
		at      int
	}
	var path []node
	visited := map[uint64]struct{}{}
	for runs := 0; ; runs++ {
		copy(b.mem.bytes, begin)
		e := prototype
		e.reset()
		for i := range prototype.logs {
			e.logs[i] = append([]logged(nil), prototype.logs[i]...)
		}
		for k := range prototype.started {
			e.started[k] = true
		}
		if prototype.reader != nil {
			r := *prototype.reader
			r.list, r.data = append([]located(nil), r.list...), nil
			e.reader = &r
		}
		threads := make([]*thread, len(s.threads))
		for i, body := range s.threads {
			threads[i] = newThread(func() { body(&e) })
		}
		pruned := false
		var trace []int
		last, left := -1, 0 // the thread that ran last, and how often one was left that could go on
		for depth := 0; ; depth++ {
			if depth == len(path) {
				h := hashState(words, b, threads)
				if s.bound > 0 {
					h = mix(mix(h, uint64(last)), uint64(left))
				}
				if _, ok := visited[h]; ok {
					pruned = true
					break
				}
				visited[h] = struct{}{}
				var n node
				stay := s.bound > 0 && left == s.bound && last >= 0 && !threads[last].done
				for i, th := range threads {
					if !th.done && !th.killed && (!stay || i == last) {
						n.choices = append(n.choices, i)
					}
				}
				if s.kill && !threads[0].done && !threads[0].killed {
					n.choices = append(n.choices, -1)
				}
				if len(n.choices) == 0 || len(n.choices) == 1 && n.choices[0] == -1 {
					break
				}
				path = append(path, n)
			}
			fresh := depth == len(path)-1 // else what comes of this step has been looked at
			c := path[depth].choices[path[depth].at]
			trace = append(trace, c)
			if c < 0 {
				threads[0].killed, e.killed = true, true
				threads[0].stop()
			} else {
				if last >= 0 && last != c && !threads[last].done {
					left++
				}
				last = c
				threads[c].run()
				if fresh {
					e.check()
				}
			}
			if depth > s.steps {
				e.failf("more than %d steps", s.steps)
			}
			if e.failed != "" {
				break
			}
		}
		for _, th := range threads {
			th.stop()
		}
		if e.failed == "" && !pruned {
			s.final(&e)
		}
		if e.failed != "" {
			t.Fatalf("model: %s: %s\nafter the steps %v\nstates so far: %d", s.name, e.failed, trace, len(visited))
		}
		for len(path) > 0 && path[len(path)-1].at+1 == len(path[len(path)-1].choices) {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return len(visited), true
		}
		path[len(path)-1].at++
		if limit > 0 && len(visited) >= limit {
			return len(visited), false
		}
	}
}

func (e *env) reset() {
	e.started, e.busy = map[[2]uint32]bool{}, map[uint64]string{}
	e.read, e.readAt, e.held = [4][]uint32{}, nil, 0
}

// stateWords are the shared words, without statistics.
func stateWords(b *Buffer) []*word {
	words := []*word{&b.ctl.next, &b.ctl.cursor, &b.ctl.blocks, &b.ctl.lag, &b.ctl.made, &b.ctl.closed}
	for i := range b.slots {
		words = append(words, &b.slots[i].word, &b.slots[i].borrows)
	}
	for i := range b.active {
		words = append(words, &b.active[i])
	}
	for i := range b.metas {
		m := &b.metas[i]
		words = append(words, &m.alloc, &m.conf, &m.next, &m.tag)
	}
	return words
}

// constantWords are those that change only when the size does, or the buffer is closed, which no scenario does.
func constantWords(b *Buffer, resizes bool) map[*word]bool {
	list := []*word{&b.ctl.closed}
	if !resizes {
		list = append(list, &b.ctl.blocks, &b.ctl.lag, &b.ctl.made)
		for i := range b.metas {
			list = append(list, &b.metas[i].next)
		}
	}
	set := map[*word]bool{}
	for _, w := range list {
		set[w] = true
	}
	return set
}

func hashState(words []*word, b *Buffer, threads []*thread) uint64 {
	h := uint64(0)
	for _, w := range words {
		h = mix(h, w.v.Load())
	}
	data := b.mem.bytes[b.mem.blocks:]
	for i := 0; i+8 <= len(data); i += 8 {
		h = mix(h, uint64(data[i])|uint64(data[i+1])<<8|uint64(data[i+2])<<16|uint64(data[i+3])<<24|
			uint64(data[i+4])<<32|uint64(data[i+5])<<40|uint64(data[i+6])<<48|uint64(data[i+7])<<56)
	}
	for _, t := range threads {
		h = mix(h, t.seen)
		if t.done || t.killed {
			h = mix(h, 1)
		}
	}
	return h
}

// check looks at what must hold after every step.
func (e *env) check() {
	b := e.buf
	for i := range b.metas {
		c, a := b.metas[i].conf.v.Load(), b.metas[i].alloc.v.Load()
		if lowOf(a) > b.cap || lowOf(c) > b.cap && lowOf(c) != claimed && lowOf(c) != retired {
			e.failf("block %d: %d bytes allocated, %d confirmed, of %d", i, lowOf(a), lowOf(c), b.cap)
		}
		if posOf(a) == posOf(c) && lowOf(c) <= b.cap && lowOf(c) > lowOf(a) {
			e.failf("block %d: %d bytes confirmed of %d allocated", i, lowOf(c), lowOf(a))
		}
	}
}
