// Encoding of protobuf messages by hand: fields are appended to one buffer, the length of a nested message is
// written when it ends.

package perfetto

import (
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// buffer holds encoded packets.
type buffer struct{ b []byte }

// uint is most of a trace: two loops are quicker than calls that switch over all lengths.
func (p *buffer) uint(f protowire.Number, v uint64) {
	b := p.b
	tag := protowire.EncodeTag(f, protowire.VarintType)
	for ; tag >= 0x80; tag >>= 7 {
		b = append(b, byte(tag)|0x80)
	}
	b = append(b, byte(tag))
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	p.b = append(b, byte(v))
}

func (p *buffer) int(f protowire.Number, v int64) { p.uint(f, uint64(v)) }

func (p *buffer) bool(f protowire.Number, v bool) { p.uint(f, protowire.EncodeBool(v)) }

func (p *buffer) fixed64(f protowire.Number, v uint64) {
	p.b = protowire.AppendTag(p.b, f, protowire.Fixed64Type)
	p.b = protowire.AppendFixed64(p.b, v)
}

func (p *buffer) double(f protowire.Number, v float64) { p.fixed64(f, math.Float64bits(v)) }

func (p *buffer) string(f protowire.Number, s string) {
	p.b = protowire.AppendTag(p.b, f, protowire.BytesType)
	p.b = protowire.AppendString(p.b, s)
}

// room is space for n bytes behind the buffer's end, to be filled from its front; took says how much was.
func (p *buffer) room(n int) []byte {
	p.b = slices.Grow(p.b, n)
	return p.b[len(p.b) : len(p.b)+n]
}

func (p *buffer) took(n int) { p.b = p.b[:len(p.b)+n] }

// putUvarint writes v at b[i] and returns the index behind it.
func putUvarint(b []byte, i int, v uint64) int {
	for ; v >= 0x80; v >>= 7 {
		b[i] = byte(v) | 0x80
		i++
	}
	b[i] = byte(v)
	return i + 1
}

// open begins a nested message; close ends it with what open returned.
func (p *buffer) open(f protowire.Number) int {
	b := p.b
	tag := protowire.EncodeTag(f, protowire.BytesType)
	for ; tag >= 0x80; tag >>= 7 {
		b = append(b, byte(tag)|0x80)
	}
	p.b = append(b, byte(tag), 0)
	return len(p.b)
}

// close writes the length. One byte was left for it; a longer message is moved.
func (p *buffer) close(at int) {
	n := len(p.b) - at
	if n < 1<<7 {
		p.b[at-1] = byte(n)
		return
	}
	extra := protowire.SizeVarint(uint64(n)) - 1
	for range extra {
		p.b = append(p.b, 0)
	}
	copy(p.b[at+extra:], p.b[at:at+n])
	protowire.AppendVarint(p.b[:at-1], uint64(n))
}

// Field numbers of protos/perfetto/trace/*.proto of the Perfetto project, under their names there.
const (
	tracePacket = 1 // Trace.packet

	packetClockSnapshot     = 6
	packetTimestamp         = 8
	packetSequenceID        = 10
	packetTrackEvent        = 11
	packetInternedData      = 12
	packetSequenceFlags     = 13
	packetPerfSample        = 66
	packetCompressed        = 50
	packetTimestampClock    = 58
	packetDefaults          = 59
	packetTrackDescriptor   = 60
	defaultsTrackEvent      = 11
	defaultsPerfSample      = 12
	defaultsTimestampClock  = 58
	trackEventDefaultsTrack = 11

	sequenceStateCleared = 1 // TracePacket.SequenceFlags

	snapshotClocks   = 1
	clockID          = 1
	clockTimestamp   = 2
	clockIncremental = 3

	clockRealtime  = 1
	clockMonotonic = 3
	clockBoottime  = 6
	clockDelta     = 64 // the first id that a sequence may define for itself

	trackUUID       = 1
	trackName       = 2
	trackProcess    = 3
	trackThread     = 4
	trackParent     = 5
	trackCounter    = 8
	trackOrderRank  = 12
	processPID      = 1
	processCmdline  = 2
	processSortRank = 3
	processName     = 6
	threadPID       = 1
	threadTID       = 2
	threadSortRank  = 3
	threadName      = 5
	counterUnitName = 6

	eventCategoryIID    = 3
	eventAnnotation     = 4
	eventType           = 9
	eventNameIID        = 10
	eventTrack          = 11
	eventCounter        = 30
	eventCounterDouble  = 44
	eventFlow           = 47
	eventFlowTerminate  = 48
	typeSliceBegin      = 1
	typeSliceEnd        = 2
	typeInstant         = 3
	typeCounter         = 4
	annotationNameIID   = 1
	annotationBool      = 2
	annotationUint      = 3
	annotationInt       = 4
	annotationString    = 6
	annotationPointer   = 7
	annotationName      = 10
	annotationStringIID = 17
	internedCategories  = 1
	internedNames       = 2
	internedAnnotations = 3
	internedFunctions   = 5
	internedFrames      = 6
	internedCallstacks  = 7
	internedBuildIDs    = 16
	internedPaths       = 17
	internedMappings    = 19
	internedTexts       = 29 // debug_annotation_string_values
	internedIID         = 1
	internedString      = 2

	mappingBuildID   = 2
	mappingStart     = 4
	mappingEnd       = 5
	mappingLoadBias  = 6
	mappingPath      = 7
	frameFunction    = 2
	frameMapping     = 3
	frameRelPC       = 4
	frameLine        = 6
	callstackFrame   = 2
	samplePID        = 2
	sampleTID        = 3
	sampleCallstack  = 4
	sampleCPUMode    = 5
	sampleCount      = 6
	cpuModeUser      = 2
	sampleTimebase   = 1 // of PerfSampleDefaults
	timebaseFreq     = 2
	timebaseCounter  = 4
	timebaseName     = 10
	counterTaskClock = 3 // PerfEvents.Counter.SW_TASK_CLOCK
)
