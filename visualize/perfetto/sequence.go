// A packet sequence per thread: its delta clock, its interned strings and the packets on its track.

package perfetto

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
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
	annOutcome
	annClipped
	annDebt
	annHeld
	annCount
	annSpent
	annSpentBy
	annTaken
	annThread
	annSelf
	annCPU
	annBlocked
)

var annotations = [...]string{
	"stacks", "began", "ended", "object", "object_name", "mutex", "fd", "owner", "releaser", "releaser_certain", "woken_by", "candidates", "chance_percent", "waiter",
	"duration_ns", "released_ns_before_end", "result", "outcome", "clipped", "delay_caused_ns", "held_ns", "count",
	"spent_on", "spent_by", "owner_took_it_in", "thread", "self_us", "cpu_us", "blocked_us",
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

var otherNames = [...]string{"release", "records lost", "wait", "recording", "creates thread", "hbtrace attached", "hbtrace detached", "budget"}

const (
	otherRelease name = nameOther | iota
	otherLost
	otherWait
	otherAbout
	otherCreates
	otherAttached
	otherDetached
	otherKnob
)

// maxNames bounds what a sequence interns before it starts afresh: memory per live thread, and two-byte ids.
const maxNames = 4000 // and below 1<<16

// maxTexts bounds annotations' strings that a sequence interns: what comes after them is written out.
const maxTexts = 1000

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

// known is a function's number, 0 where it has none.
func (t *iids) known(n name) uint32 {
	if page := int(n / framesPerPage); n&^0xffffffff == nameFrame && page < len(t.pages) && t.pages[page] != nil {
		return uint32(t.pages[page][n%framesPerPage])
	}
	return 0
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
	texts    map[string]uint32
	pending  struct {
		name  name // to intern; valid where iid != 0
		iid   uint32
		cats  uint32
		anns  uint32
		texts []string // with the last ones of texts' numbers
	}
}

// start writes what the sequence's packets rely on, at first and whenever its interned strings are dropped.
func (w *writer) start(s *sequence, at trace.Ns) {
	s.cats, s.anns = 0, 0
	s.names.clear()
	clear(s.texts)
	s.pending.texts = s.pending.texts[:0]
	w.clocked(s, at, func(p *buffer) {
		e := p.open(defaultsTrackEvent)
		p.uint(trackEventDefaultsTrack, s.track)
		p.close(e)
	})
}

// clocked begins a sequence with a clock of its own; more writes more defaults of its packets.
func (w *writer) clocked(s *sequence, at trace.Ns, more func(*buffer)) {
	s.begun, s.clock = true, at
	p := &w.out
	pkt := p.open(tracePacket)
	p.uint(packetSequenceID, uint64(s.id))
	p.uint(packetSequenceFlags, sequenceStateCleared)
	d := p.open(packetDefaults)
	more(p)
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
	pkt = w.packet(s, at)
	ev = p.open(packetTrackEvent)
	p.uint(eventType, typ)
	return pkt, ev
}

// packet begins a packet of a sequence, to be ended with close.
func (w *writer) packet(s *sequence, at trace.Ns) (pkt int) {
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
	return pkt
}

// finish ends the packet of event, with the strings that it is the first to use.
func (w *writer) finish(s *sequence, pkt, ev int) error {
	p := &w.out
	p.close(ev)
	if q := &s.pending; q.iid != 0 || q.cats != 0 || q.anns != 0 || len(q.texts) > 0 {
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
		for i, text := range q.texts {
			w.interned(internedTexts, uint64(len(s.texts)-len(q.texts)+i+1), text)
		}
		p.close(in)
		q.iid, q.cats, q.anns, q.texts = 0, 0, 0, q.texts[:0]
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

// note is an annotation of a brief packet: a number, or a string that is interned.
type note struct {
	ann  annotation
	text bool
	v    uint64
}

// mostNotes is how many a brief packet may have: it stays shorter than 128 bytes, so that lengths take a byte.
const mostNotes = 5

// Tags as they are in a packet, where all fields are known.
const (
	tagPacket     = tracePacket<<3 | 2
	tagTimestamp  = packetTimestamp << 3
	tagSequenceID = packetSequenceID << 3
	tagTrackEvent = packetTrackEvent<<3 | 2
	tagType       = eventType << 3
	tagName       = eventNameIID << 3
	tagAnnotation = eventAnnotation<<3 | 2
	tagNoteName   = annotationNameIID << 3
	tagNoteUint   = annotationUint << 3
	tagNoteText   = annotationStringIID<<3&0x7f | 0x80 // and a byte more
	tagNoteText2  = annotationStringIID << 3 >> 7
)

// brief writes an event that most are like: at a time of its sequence's own clock, all its strings interned. What says
// more, or is the first to say it, goes through event and finish, with the same bytes for the same things. It returns
// false when this is such a one; nothing is written then.
func (w *writer) brief(s *sequence, at trace.Ns, typ uint8, iid uint32, notes []note) bool {
	if s.absolute || !s.begun || s.names.used >= maxNames || at < s.clock || s.pending.iid != 0 || len(s.pending.texts) > 0 {
		return false
	}
	for i := range notes {
		if n := &notes[i]; s.anns&(1<<n.ann) == 0 || n.text && n.v == 0 {
			return false
		}
	}
	b := w.out.room(128)
	b[0], b[2] = tagPacket, tagTimestamp
	i := putUvarint(b, 3, uint64(at-s.clock))
	s.clock = at
	b[i] = tagSequenceID
	i = putUvarint(b, i+1, uint64(s.id))
	b[i] = tagTrackEvent
	event := i + 2
	b[event], b[event+1] = tagType, typ
	i = event + 2
	for j := range notes {
		n := &notes[j]
		b[i] = tagAnnotation
		from := i + 2
		b[from], b[from+1] = tagNoteName, byte(n.ann)+1
		i = from + 2
		if n.text {
			b[i], b[i+1] = tagNoteText, tagNoteText2
			i++
		} else {
			b[i] = tagNoteUint
		}
		i = putUvarint(b, i+1, n.v)
		b[from-1] = byte(i - from)
	}
	if iid != 0 {
		b[i] = tagName
		i = putUvarint(b, i+1, uint64(iid))
	}
	b[event-1], b[1] = byte(i-event), byte(i-2)
	w.out.took(i)
	return true
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

// annString interns what is said often: names of threads and functions, outcomes.
func (w *writer) annString(s *sequence, a annotation, v string) {
	at := w.annotate(s, a)
	if iid := s.interns(v); iid != 0 {
		w.out.uint(annotationStringIID, uint64(iid))
	} else {
		w.out.string(annotationString, v)
	}
	w.out.close(at)
}

// interns is the number of an annotation's string, from 1; 0: there are too many.
func (s *sequence) interns(text string) uint32 {
	iid, ok := s.texts[text]
	if ok || len(s.texts) >= maxTexts {
		return iid
	}
	if s.texts == nil {
		s.texts = map[string]uint32{}
	}
	iid = uint32(len(s.texts) + 1)
	s.texts[text] = iid
	s.pending.texts = append(s.pending.texts, text)
	return iid
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
