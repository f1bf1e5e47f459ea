// A packet sequence per thread: its delta clock, its interned strings and the packets on its track.

package perfetto

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/frames"
	"github.com/hbtrace/hbtrace/visualize/weigh"
)

// Interned categories and annotation names: iid = index + 1.
type category uint8

const (
	catLock category = iota
	catCall
	catRelease
	catLost
	catAbout
	catLife
	catState
)

var categories = [...]string{"lock", "call", "release", "lost", "about", "life", "state"}

type annotation uint8

const (
	annStacks annotation = iota
	annBegan
	annEnded
	annObject
	annVariable
	annMutex
	annFD
	annOwner
	annReleaser
	annReleaserSure
	annWaker
	annCandidates
	annChance
	annWaiter
	annDuration
	annReleased
	annResult
	annHook
	annOutcome
	annClipped
	annDebt
	annHeld
	annCount
	annSpent
	annSpentBy
	annTaken
	annThread
)

var annotations = [...]string{
	"stacks", "began", "ended", "object", "object_name", "mutex", "fd", "owner", "releaser", "releaser_certain", "woken_by", "candidates", "chance_percent", "waiter",
	"duration_ns", "released_ns_before_end", "result", "hook", "outcome", "clipped", "delay_caused_ns", "held_ns", "count",
	"spent_on", "spent_by", "owner_took_it_in", "thread",
}

// A name is what a slice is called, as a number until it is interned.
type name uint64

const (
	nameFrame     name = iota << 32 // | frames.ID
	nameHook                        // | trace.HookID
	nameWokenBy                     // | trace.ThreadID
	nameCreatedBy                   // | trace.ThreadID
	nameState                       // | weigh.State
	nameOther                       // | index of otherNames
)

var otherNames = [...]string{"release", "records lost", "wait", "recording", "creates thread"}

const (
	otherRelease name = nameOther | iota
	otherLost
	otherWait
	otherAbout
	otherCreates
)

// maxNames bounds what a sequence interns before it starts afresh: memory per live thread, and two-byte ids.
const maxNames = 4000 // and below 1<<16

// iids are the names that a sequence has interned. The zero value is empty. Functions, which are nearly all of them, are
// found in pages by their number: hundreds of threads with thousands of functions each are to fit a cache.
type iids struct {
	pages []*[framesPerPage]uint16 // nil: none of these functions
	rest  map[name]uint16
	used  int
}

const framesPerPage = 64

// of is a name's number, from 1, and whether it has just been given.
func (t *iids) of(n name) (uint32, bool) {
	if n&^0xffffffff != nameFrame {
		return t.other(n)
	}
	page, at := int(n/framesPerPage), n%framesPerPage
	if page >= len(t.pages) {
		t.pages = append(t.pages, make([]*[framesPerPage]uint16, page+1-len(t.pages))...)
	}
	if t.pages[page] == nil {
		t.pages[page] = new([framesPerPage]uint16)
	}
	p := &t.pages[page][at]
	if *p != 0 {
		return uint32(*p), false
	}
	t.used++
	*p = uint16(t.used)
	return uint32(t.used), true
}

func (t *iids) other(n name) (uint32, bool) {
	if iid, ok := t.rest[n]; ok {
		return uint32(iid), false
	}
	if t.rest == nil {
		t.rest = map[name]uint16{}
	}
	t.used++
	t.rest[n] = uint16(t.used)
	return uint32(t.used), true
}

func (t *iids) clear() {
	for _, p := range t.pages {
		if p != nil {
			*p = [framesPerPage]uint16{}
		}
	}
	clear(t.rest)
	t.used = 0
}

// sequence is one thread's packets. They carry no track and only the time since the packet before: both are
// defaults of the sequence.
type sequence struct {
	id       uint32
	track    uint64
	begun    bool
	absolute bool     // no delta clock, no track of its own: for what is out of a thread's order
	clock    trace.Ns // of its latest packet
	names    iids
	cats     uint32 // bit per category that is interned
	anns     uint32 // bit per annotation name that is interned
	pending  struct {
		name name // to intern; valid where iid != 0
		iid  uint32
		cats uint32
		anns uint32
	}
}

// start writes what the sequence's packets rely on, at first and whenever its interned strings are dropped.
func (w *writer) start(s *sequence, at trace.Ns) {
	s.begun, s.clock, s.cats, s.anns = true, at, 0, 0
	s.names.clear()
	p := &w.out
	pkt := p.open(tracePacket)
	p.uint(packetSequenceID, uint64(s.id))
	p.uint(packetSequenceFlags, sequenceStateCleared)
	d := p.open(packetDefaults)
	e := p.open(defaultsTrackEvent)
	p.uint(trackEventDefaultsTrack, s.track)
	p.close(e)
	p.uint(defaultsTimestampClock, clockDelta)
	p.close(d)
	c := p.open(packetClockSnapshot)
	w.clockValue(clockDelta, 0, true)
	w.clockValue(clockMonotonic, uint64(at), false)
	w.clockValue(clockBoottime, uint64(int64(at)+w.meta.BoottimeOffset), false)
	p.close(c)
	p.close(pkt)
}

func (w *writer) clockValue(id, v uint64, incremental bool) {
	at := w.out.open(snapshotClocks)
	w.out.uint(clockID, id)
	w.out.uint(clockTimestamp, v)
	if incremental {
		w.out.bool(clockIncremental, true)
	}
	w.out.close(at)
}

// event begins a packet with a track event; finish ends it. A time before the sequence's latest is written in full,
// which leaves its delta clock alone.
func (w *writer) event(s *sequence, at trace.Ns, typ uint64) (pkt, ev int) {
	at = max(at, 0)
	if !s.absolute && (!s.begun || s.names.used >= maxNames) {
		w.start(s, at)
	}
	p := &w.out
	pkt = p.open(tracePacket)
	switch {
	case s.absolute:
		p.uint(packetTimestamp, uint64(at))
	case at >= s.clock:
		p.uint(packetTimestamp, uint64(at-s.clock))
		s.clock = at
	default:
		p.uint(packetTimestamp, uint64(at))
		p.uint(packetTimestampClock, clockMonotonic)
	}
	p.uint(packetSequenceID, uint64(s.id))
	ev = p.open(packetTrackEvent)
	p.uint(eventType, typ)
	return pkt, ev
}

// finish ends the packet of event, with the strings that it is the first to use.
func (w *writer) finish(s *sequence, pkt, ev int) error {
	p := &w.out
	p.close(ev)
	if q := &s.pending; q.iid != 0 || q.cats != 0 || q.anns != 0 {
		in := p.open(packetInternedData)
		for i := range categories {
			if q.cats&(1<<i) != 0 {
				w.interned(internedCategories, uint64(i+1), categories[i])
			}
		}
		if q.iid != 0 {
			w.interned(internedNames, uint64(q.iid), w.text(q.name))
		}
		for i := range annotations {
			if q.anns&(1<<i) != 0 {
				w.interned(internedAnnotations, uint64(i+1), annotations[i])
			}
		}
		p.close(in)
		q.iid, q.cats, q.anns = 0, 0, 0
	}
	p.close(pkt)
	return w.flush(false)
}

func (w *writer) interned(field protowire.Number, iid uint64, s string) {
	p := &w.out
	at := p.open(field)
	p.uint(internedIID, iid)
	p.string(internedString, s)
	p.close(at)
}

// name writes the event's name. There is one per event.
func (w *writer) name(s *sequence, n name) {
	iid, first := s.names.of(n)
	if first {
		s.pending.name, s.pending.iid = n, iid
	}
	w.out.uint(eventNameIID, uint64(iid))
}

func (w *writer) category(s *sequence, c category) {
	if s.cats&(1<<c) == 0 {
		s.cats |= 1 << c
		s.pending.cats |= 1 << c
	}
	w.out.uint(eventCategoryIID, uint64(c)+1)
}

// annotate begins a debug annotation, to be ended with close.
func (w *writer) annotate(s *sequence, a annotation) int {
	if s.anns&(1<<a) == 0 {
		s.anns |= 1 << a
		s.pending.anns |= 1 << a
	}
	at := w.out.open(eventAnnotation)
	w.out.uint(annotationNameIID, uint64(a)+1)
	return at
}

func (w *writer) annUint(s *sequence, a annotation, v uint64) {
	at := w.annotate(s, a)
	w.out.uint(annotationUint, v)
	w.out.close(at)
}

func (w *writer) annInt(s *sequence, a annotation, v int64) {
	at := w.annotate(s, a)
	w.out.int(annotationInt, v)
	w.out.close(at)
}

func (w *writer) annBool(s *sequence, a annotation, v bool) {
	at := w.annotate(s, a)
	w.out.bool(annotationBool, v)
	w.out.close(at)
}

func (w *writer) annString(s *sequence, a annotation, v string) {
	at := w.annotate(s, a)
	w.out.string(annotationString, v)
	w.out.close(at)
}

func (w *writer) annPointer(s *sequence, a annotation, v uint64) {
	at := w.annotate(s, a)
	w.out.uint(annotationPointer, v)
	w.out.close(at)
}

// text is the string of a name.
func (w *writer) text(n name) string {
	id := uint32(n)
	switch n &^ 0xffffffff {
	case nameFrame:
		return w.tab.Frame(frames.ID(id)).Name
	case nameHook:
		return w.hook(trace.HookID(id)).name
	case nameState:
		return weigh.State(id).String()
	case nameCreatedBy:
		return "created by " + w.who(trace.ThreadID(id))
	case nameWokenBy:
		return "woken by " + w.who(trace.ThreadID(id))
	}
	return otherNames[id]
}
