package flight

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
)

// told is an event with everything that it refers to spelt out.
type told struct {
	e      trace.Event
	frames []trace.Addr
	tid    int
	owner  int
}

// tell spells out an event of a recording.
func tell(e *trace.Event, frames []trace.Addr, tid func(trace.ThreadID) int) told {
	x := told{e: *e, frames: frames, tid: tid(e.Thread)}
	if e.Owner != 0 {
		x.owner = tid(e.Owner)
	}
	x.e.Thread, x.e.Owner, x.e.Stack = 0, 0, 0
	return x
}

func (x told) String() string {
	return fmt.Sprintf("kind %d of %d at %d (since %d), same %d, object %#x of %d, %v", x.e.Kind, x.tid, x.e.Time, x.e.Start, x.e.Same, x.e.Object, x.owner, x.frames)
}

// testWindow is smaller than people may have it: it is overwritten sooner.
const testWindow = 160 << 10

// TestSuffix: wherever a window is cut, what is left has the events, stacks, threads, owners and open waits that the whole
// recording has of that time.
func TestSuffix(t *testing.T) {
	windows := 3
	if os.Getenv("HBTRACE_STRESS") != "" {
		windows = 100
	}
	for seed := range uint64(windows) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { suffix(t, seed) })
	}
}

func suffix(t *testing.T, seed uint64) {
	p := newProducer(t, Keep{Bytes: testWindow}, seed)
	defer p.w.Close()
	var whole []told
	p.sent = func(e *trace.Event, frames []trace.Addr) {
		whole = append(whole, tell(e, frames, func(id trace.ThreadID) int { return 1000 + int(id) }))
	}
	dumps := 0
	most := 60_000 // events; the window holds a third of them
	for n := 0; n < most; n++ {
		p.step()
		if p.r.n(2000) == 0 {
			p.keyframe()
		}
		if p.r.n(most/4) != 0 && n != most-1 {
			continue
		}
		p.keyframe()
		dumps++
		check(t, p, whole, n == most-1)
	}
	if h := p.w.Held(); h.Bound != "size" || h.Overwritten == 0 {
		t.Errorf("nothing was overwritten: %+v", h)
	}
	t.Logf("%d dumps, %d events", dumps, len(whole))
}

// check makes a dump and compares it with all that was recorded; all: it is held against the invariants, too.
func check(t *testing.T, p *producer, whole []told, all bool) {
	t.Helper()
	c, err := Read(p.w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dump.hbt")
	if _, err := c.Dump(path, Options{NoNames: true}); err != nil {
		t.Fatal(err)
	}
	if all { // it makes every export, which takes longer than the rest
		if err := validate.File(path); err != nil {
			t.Error(err)
		}
	}
	r := openFile(t, path)
	begin := trace.Ns(0)
	if r.Stats().Overwritten > 0 {
		begin = r.Meta().StartNs
	}
	want := whole[slices.IndexFunc(whole, func(x told) bool { return x.e.Time > begin }):]
	threads := r.Threads()
	i, open := 0, map[int]told{}
	seen := map[int]bool{}
	if err := trace.Events(r, func(e *trace.Event) error {
		got := tell(e, stackOf(r, e.Stack), func(id trace.ThreadID) int { return threads[id-1].TID })
		if e.Flags&trace.FlagOpen != 0 {
			open[got.tid] = got
			return nil
		}
		if i >= len(want) {
			return fmt.Errorf("made up: %v", got)
		}
		x := want[i]
		if len(x.frames) > 0 && !seen[x.tid] && r.Stats().Overwritten > 0 {
			x.e.Same = 0 // what was there before the cut is not there to be the same
		}
		seen[x.tid] = seen[x.tid] || len(x.frames) > 0
		if x.e != got.e || x.tid != got.tid || x.owner != got.owner || !slices.Equal(x.frames, got.frames) {
			return fmt.Errorf("event %d:\n%v, want\n%v", i, got, x)
		}
		i++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if i != len(want) {
		t.Fatalf("%d events, want %d", i, len(want))
	}
	if n := r.Stats().Overwritten; int(n)+i != len(whole) {
		t.Errorf("%d events, %d overwritten, of %d", i, n, len(whole))
	}
	for _, s := range p.threads {
		got, is := open[s.t.TID]
		if e := p.open(s); (e != nil) != is {
			t.Errorf("thread %d: open wait %v, want %v", s.t.TID, got, e)
		} else if is && (got.e.Start != e.Start || got.e.Object != e.Object || (e.Owner != 0) != (got.owner != 0) || e.Owner != 0 && got.owner != 1000+int(e.Owner)) {
			t.Errorf("thread %d: open wait %v, want %+v", s.t.TID, got, e)
		}
		delete(open, s.t.TID)
	}
	if len(open) > 0 {
		t.Errorf("open waits of nobody: %v", open)
	}
}
