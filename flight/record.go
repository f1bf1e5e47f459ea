// The records of the window: batches of events and keyframes.
//
//	batch     'e', first uint64, lost uint64, begin int64, end int64, batch of events
//	keyframe  'k', first uint64, lost uint64, time int64, part uint16, parts uint16, then in each part either
//	          't', counters of threads, or 'o', batch of open intervals
//
// first is the number of the record's first event since the recording began; of a keyframe, that of the next event
// behind it. lost is the number of lost records so far. begin and end are the earliest and the latest time
// of a batch's events. Open
// intervals are what threads are in at the time of the keyframe: [trace.FlagOpen], with object, owner and stack. Counters
// are what each living thread had used by then (counters.go). A keyframe is in parts, one behind the other.
//
// Numbers are little endian. Batches are those of package tracefile.

package flight

import (
	"encoding/binary"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	recordEvents   = 'e'
	recordKeyframe = 'k'

	partThreads = 't'
	partOpen    = 'o'

	eventsHeader   = 1 + 4*8
	keyframeHeader = 1 + 3*8 + 2*2
)

// head is a record's header.
type head struct {
	kind        byte
	first, lost uint64
	begin, end  trace.Ns // of a keyframe: both its time
	part, parts int
}

func (h *head) append(dst []byte) []byte {
	dst = append(dst, h.kind)
	dst = binary.LittleEndian.AppendUint64(dst, h.first)
	dst = binary.LittleEndian.AppendUint64(dst, h.lost)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.begin))
	if h.kind == recordEvents {
		return binary.LittleEndian.AppendUint64(dst, uint64(h.end))
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.part))
	return binary.LittleEndian.AppendUint16(dst, uint16(h.parts))
}

// parseHead splits a record, which may hold anything.
func parseHead(p []byte) (h head, batch []byte, ok bool) {
	if len(p) == 0 {
		return h, nil, false
	}
	h.kind = p[0]
	n := eventsHeader
	switch h.kind {
	case recordEvents:
	case recordKeyframe:
		n = keyframeHeader
	default:
		return h, nil, false
	}
	if len(p) < n {
		return h, nil, false
	}
	h.first = binary.LittleEndian.Uint64(p[1:])
	h.lost = binary.LittleEndian.Uint64(p[9:])
	h.begin = trace.Ns(binary.LittleEndian.Uint64(p[17:]))
	h.end = h.begin
	if h.kind == recordEvents {
		h.end = trace.Ns(binary.LittleEndian.Uint64(p[25:]))
	} else {
		h.part, h.parts = int(binary.LittleEndian.Uint16(p[25:])), int(binary.LittleEndian.Uint16(p[27:]))
		if h.part >= h.parts {
			return h, nil, false
		}
	}
	return h, p[n:], true
}
