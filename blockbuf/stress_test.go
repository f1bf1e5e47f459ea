package blockbuf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// A stress record: producer, its sequence number, filler, checksum of all that.
func putRecord(p []byte, producer, seq uint32) {
	binary.LittleEndian.PutUint32(p, producer)
	binary.LittleEndian.PutUint32(p[4:], seq)
	for i := 8; i < len(p)-4; i++ {
		p[i] = byte(seq) ^ byte(i)
	}
	binary.LittleEndian.PutUint32(p[len(p)-4:], crc32.ChecksumIEEE(p[:len(p)-4]))
}

func checkRecord(p []byte) (producer, seq uint32, err error) {
	if len(p) < 12 || crc32.ChecksumIEEE(p[:len(p)-4]) != binary.LittleEndian.Uint32(p[len(p)-4:]) {
		return 0, 0, fmt.Errorf("torn record of %d bytes", len(p))
	}
	return binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:]), nil
}

// TestStress runs producers that write, reserve, sleep with a reservation and exit, next to readers, snapshots,
// seals and resizes. No record may be torn, twice, or out of its producer's order; every record written must be
// read or be in a position that counts as lost; and the end of the history must be there.
// HBTRACE_STRESS=30s makes it run that long.
func TestStress(t *testing.T) {
	limit := 2 * time.Second
	if s := os.Getenv("HBTRACE_STRESS"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		limit = d
	}
	forMappings(t, func(t *testing.T, m Mapping) {
		for _, heap := range []bool{true, false} {
			t.Run(fmt.Sprintf("heap=%v", heap), func(t *testing.T) { stress(t, m, heap, limit/8) })
		}
	})
}

func stress(t *testing.T, m Mapping, heap bool, limit time.Duration) {
	const producers, slots = 12, 4
	b := mustNew(t, Options{Bytes: 64 * 4096, Slots: slots, MaxBytes: 128 * 4096, ActivePerSlot: 4, Mapping: m, heap: heap})
	r := b.NewReader()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	written := make([]uint32, producers)
	for p := range producers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(p), 99))
			w := b.Writer(p)
			buf := make([]byte, 600)
			for !stopped() {
				n := 12 + rng.IntN(500)
				seq := written[p] + 1
				if rng.IntN(2) == 0 {
					putRecord(buf[:n], uint32(p), seq)
					if err := w.Write(buf[:n]); err != nil {
						t.Error(err)
						return
					}
				} else {
					res, err := w.Reserve(n)
					if err != nil {
						t.Error(err)
						return
					}
					if rng.IntN(50) == 0 {
						runtime.Gosched() // others go round the block meanwhile
					}
					putRecord(res.Data, uint32(p), seq)
					res.Commit()
				}
				written[p] = seq
			}
			// One more when the others stop, too: whoever was preempted meanwhile may have been overwritten, but this is new.
			putRecord(buf[:64], uint32(p), written[p]+1)
			if err := w.Write(buf[:64]); err != nil {
				t.Error(err)
				return
			}
			written[p]++
		}()
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		rng := rand.New(rand.NewPCG(5, 5))
		for !stopped() {
			switch rng.IntN(4) {
			case 0:
				// More blocks than producers and readers can hold at one time, or writing fails with ErrHeld.
				if err := b.Resize((producers + 3 + rng.IntN(100)) * 4096); err != nil && !errors.Is(err, ErrHeld) {
					t.Error(err)
				}
			case 1:
				var last [producers]uint32
				for _, k := range b.Snapshot() {
					checkBlock(t, k, last[:])
				}
			default:
				b.Seal()
			}
			runtime.Gosched()
		}
	}()
	var last [producers]uint32
	var blocks, partial, prev uint64
	end := time.Now().Add(limit)
	drain := func() {
		for k, ok := r.Next(); ok; k, ok = r.Next() {
			if k.Pos < prev+k.Lost+1 {
				t.Fatalf("position %d with %d lost after %d", k.Pos, k.Lost, prev)
			}
			prev = k.Pos
			blocks++
			if k.Partial {
				partial++
			}
			was := last
			checkBlock(t, k, last[:])
			for p := range uint32(producers) {
				first := firstOf(k, p)
				if first > was[p]+1 && r.Lost() == 0 && partial == 0 {
					t.Fatalf("position %d: producer %d has record %d after %d, and nothing was lost", k.Pos, p, first, was[p])
				}
			}
		}
	}
	for time.Now().Before(end) && !t.Failed() {
		drain()
		runtime.Gosched()
	}
	close(stop)
	wg.Wait()
	b.Seal()
	drain()
	s := b.Stats()
	if blocks+r.Lost() > s.Head {
		t.Errorf("read %d blocks and lost %d of %d; the last was %d", blocks, r.Lost(), s.Head, prev)
	}
	// Producers that share a slot with others that were faster may have been overwritten since the last
	// drain; what the final snapshot has must still be the end of each.
	var final [producers]uint32
	for _, k := range b.Snapshot() {
		checkBlock(t, k, final[:])
	}
	for p := range producers {
		if final[p] != 0 && final[p] != written[p] {
			t.Errorf("producer %d wrote %d records, the history ends at %d", p, written[p], final[p])
		}
	}
	t.Logf("%d blocks, %d read, %d lost to the reader; %+v", s.Head, blocks, r.Lost(), s)
}

// checkBlock checks every record of k and that each producer's numbers grow.
func checkBlock(t *testing.T, k Block, last []uint32) {
	t.Helper()
	ok := k.Records(func(p []byte) bool {
		producer, seq, err := checkRecord(p)
		if err != nil {
			t.Errorf("block %d: %v", k.Pos, err)
			return false
		}
		if seq <= last[producer] {
			t.Errorf("block %d: producer %d has record %d after %d", k.Pos, producer, seq, last[producer])
		}
		last[producer] = seq
		return true
	})
	if !ok {
		t.Errorf("block %d is malformed", k.Pos)
	}
}

// firstOf is the number of the first record of a producer in k; 0: none.
func firstOf(k Block, producer uint32) (first uint32) {
	k.Records(func(p []byte) bool {
		if by, seq, err := checkRecord(p); err == nil && by == producer {
			first = seq
			return false
		}
		return true
	})
	return first
}
