package measure

import "fmt"

// Snapshot is what was read back of a tracer, record by record. The zero value is not usable: NewSnapshot.
type Snapshot struct {
	have  []bool
	late  map[uint64]bool
	size  func(stamp uint64) int
	last  map[uint32]uint64 // producer → its newest (number + 1) seen so far
	count int
	err   error
}

// NewSnapshot expects records with stamps below stamps, of size(stamp) bytes each.
func NewSnapshot(stamps uint64, size func(stamp uint64) int) *Snapshot {
	return &Snapshot{have: make([]bool, stamps), size: size, last: map[uint32]uint64{}}
}

// Add takes the next record in the tracer's own order. It keeps the first thing that is wrong: a record that is
// torn, was never written, comes twice, or comes after a newer one of its producer.
func (s *Snapshot) Add(p []byte) {
	if s.err != nil {
		return
	}
	stamp, producer, seq, err := decode(p)
	switch {
	case err != nil:
		s.err = err
	case stamp >= uint64(len(s.have)):
		s.err = fmt.Errorf("record with stamp %d of producer %d was never written: stamps end at %d", stamp, producer, len(s.have))
	case len(p) != s.size(stamp):
		s.err = fmt.Errorf("record with stamp %d has %d bytes, written were %d", stamp, len(p), s.size(stamp))
	case s.have[stamp]:
		s.err = fmt.Errorf("record with stamp %d of producer %d comes twice", stamp, producer)
	case uint64(seq) < s.last[producer]:
		s.err = fmt.Errorf("record %d of producer %d comes after its record %d", seq, producer, s.last[producer]-1)
	default:
		s.have[stamp] = true
		s.last[producer] = uint64(seq) + 1
		s.count++
	}
}

// Late says of records that their writer was off the processor for long after it took the stamp: where such a
// record is stored, it is among much newer ones, and says nothing of how far back the history goes.
func (s *Snapshot) Late(stamps []uint64) {
	if s.late == nil {
		s.late = map[uint64]bool{}
	}
	for _, st := range stamps {
		s.late[st] = true
	}
}

// Err is the first record that was not sound.
func (s *Snapshot) Err() error { return s.err }

// History is what a snapshot is worth. The terms are those of the BTrace paper, section 5.
type History struct {
	Written int // records that got a stamp
	Kept    int // records in the snapshot

	// LatestBytes is the latest fragment: the newest records, back to the first that is missing. A record counts
	// with what it takes in the tracer's buffer, as footprint says; LatestPayload without the tracer's framing.
	LatestBytes, LatestPayload int
	LatestRecords              int

	// Loss is the share of bytes missing between the oldest and the newest record that are kept, the oldest being
	// one that was written in time. Fragments count from there as well.
	Loss float64
	// Fragments is how many runs of records without a gap the snapshot consists of.
	Fragments int
	// NewestMissing is how many of the newest records are missing: what a tracer that drops the newest loses.
	NewestMissing int
	Late          int // records written late: see Snapshot.Late
}

// History judges the snapshot. footprint gives the bytes that a record of n bytes takes in the buffer.
//
// The latest fragment ends at the newest record that is kept, as the paper's does; what is missing after it
// is told in NewestMissing.
func (s *Snapshot) History(footprint func(n int) int) History {
	h := History{Written: len(s.have), Kept: s.count, Late: len(s.late)}
	newest := len(s.have) - 1
	for newest >= 0 && !s.have[newest] {
		newest--
	}
	h.NewestMissing = len(s.have) - 1 - newest
	for i := newest; i >= 0 && s.have[i]; i-- {
		n := s.size(uint64(i))
		h.LatestPayload += n
		h.LatestBytes += footprint(n)
		h.LatestRecords++
	}
	oldest := 0
	for oldest < newest && (!s.have[oldest] || s.late[uint64(oldest)]) {
		oldest++
	}
	missing, all := 0, 0
	for i := oldest; i <= newest; i++ {
		n := s.size(uint64(i))
		all += n
		switch {
		case !s.have[i]:
			missing += n
		case i == oldest || !s.have[i-1]:
			h.Fragments++
		}
	}
	if all > 0 {
		h.Loss = float64(missing) / float64(all)
	}
	return h
}
