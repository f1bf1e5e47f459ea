package sampler

import (
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

func TestDue(t *testing.T) {
	seg, err := segment.Create(segment.Config{Threads: 8, Procs: 4, Rings: 2, RingBytes: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	ctl, fd, err := createControl(4, 8, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer ctl.close()
	l, err := newLoop(seg, ctl)
	if err != nil {
		t.Fatal(err)
	}
	l.now = 1e9
	full := seg.Subbuf(1)
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"nothing has happened", func() {}, false},
		{"an eighth of a ring", func() { full.Head.Store(1 << 13) }, false},
		{"more than an eighth", func() { full.Head.Store(1<<13 + 8) }, true},
		{"still not collected", func() {}, true},
		{"collected", func() { full.Tail.Store(1<<13 + 8) }, false},
		{"a process", func() { seg.Header().NextProcUID.Add(1); seg.Header().ProcsHigh.Store(1) }, true},
		{"it was told of", func() {}, false},
		{"a module", func() { seg.Proc(0).ModulesGen.Add(1) }, true},
		{"it was told of, too", func() {}, false},
		{"a thread has gone", func() { l.lose(3, &l.threads[3]) }, true},
		{"another, at once", func() { l.lose(4, &l.threads[4]) }, false},
		{"some time later", func() { l.now += threadsWait }, true},
	} {
		c.do()
		if got := l.due(); got != c.want {
			t.Errorf("%s: due is %v", c.what, got)
		}
	}
}

func TestWakes(t *testing.T) {
	seg, err := segment.Create(segment.Config{Threads: 8, Procs: 4, Rings: 2, RingBytes: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	s, err := Start(seg, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 5 {
		s.Sleep()
		seg.Header().NextProcUID.Add(1)
		select {
		case <-s.Wakes():
		case <-time.After(3 * time.Minute):
			t.Fatalf("not woken for process %d", i)
		}
		if s.ctl.head.asleep.Load() != 0 {
			t.Error("woken, and taken to be asleep")
		}
	}
}
