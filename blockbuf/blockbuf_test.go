package blockbuf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

func mustNew(t testing.TB, o Options) *Buffer {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// records collects the records of a block and checks that it was well formed.
func records(t testing.TB, k Block) [][]byte {
	t.Helper()
	var recs [][]byte
	if !k.Records(func(p []byte) bool { recs = append(recs, bytes.Clone(p)); return true }) {
		t.Fatalf("block %d is malformed", k.Pos)
	}
	return recs
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string // part of the error; "" none
	}{
		{Options{Bytes: 8192}, ""},
		{Options{Bytes: 8193, MaxBytes: 1}, ""},
		{Options{Bytes: 1 << 20, BlockBytes: 8192, Slots: 64}, ""},
		{Options{}, "too few for 1 slots: give at least 8192 bytes"},
		{Options{Bytes: 1 << 20, Slots: 129}, "too few for 129 slots: give at least 1056768 bytes"},
		{Options{Bytes: 1 << 20, BlockBytes: 100}, "power of two"},
		{Options{Bytes: 1 << 20, BlockBytes: 5000}, "power of two"},
		{Options{Bytes: -1}, "negative"},
		{Options{Bytes: 1 << 60}, "reserving"},
	} {
		b, err := New(c.o)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.o, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: error %v, want %q in it", c.o, err, c.want)
		}
		if b != nil {
			b.Close()
		}
	}
}

func TestRecordSizes(t *testing.T) {
	b := mustNew(t, Options{Bytes: 8192})
	w := b.Writer(0)
	for _, n := range []int{0, 1, 127, 128, 4094} {
		if err := w.Write(make([]byte, n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, n := range []int{4095, 4096, 1 << 30} {
		if _, err := w.Reserve(n); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: error %v, want ErrTooLarge", n, err)
		}
	}
	var got []int
	for _, k := range b.Snapshot() {
		for _, p := range records(t, k) {
			got = append(got, len(p))
		}
	}
	if want := []int{0, 1, 127, 128, 4094}; !slices.Equal(got, want) {
		t.Errorf("record sizes %v, want %v", got, want)
	}
}

func TestReservation(t *testing.T) {
	b := mustNew(t, Options{Bytes: 16 * 4096, Slots: 2})
	r := b.NewReader()
	res, err := b.Writer(0).Reserve(3)
	if err != nil {
		t.Fatal(err)
	}
	b.Writer(0).Write([]byte("later"))
	b.Writer(1).Write([]byte("other"))
	b.Seal()
	if k, ok := r.Next(); ok {
		t.Fatalf("block %d was read with an uncommitted record in it", k.Pos)
	}
	if s := b.Snapshot(); len(s) != 1 || s[0].Pos != 2 || s[0].Lost != 1 {
		t.Errorf("snapshot = %+v, want the second block alone", s)
	}
	copy(res.Data, "abc")
	res.Commit()
	k, ok := r.Next()
	if !ok || k.Lost != 0 {
		t.Fatalf("Next = %+v, %v", k, ok)
	}
	if got := fmt.Sprintf("%s", records(t, k)); got != "[abc later]" {
		t.Errorf("records %s", got)
	}
	if k, ok = r.Next(); !ok || k.Pos != 2 {
		t.Errorf("Next = %+v, %v, want block 2", k, ok)
	}
	if k, ok = r.Next(); ok {
		t.Errorf("Next = %+v at the end", k)
	}
}

// TestStuckWriter leaves a reservation open for ever: its block survives, newer ones go round it, and a reader
// gives it up after half a buffer.
func TestStuckWriter(t *testing.T) {
	const blocks = 8
	b := mustNew(t, Options{Bytes: blocks * 4096, Slots: 2})
	stuck, err := b.Writer(1).Reserve(4)
	if err != nil {
		t.Fatal(err)
	}
	r := b.NewReader()
	w := b.Writer(0)
	var seen uint64
	for i := range uint64(100) {
		if err := w.Write(binary.LittleEndian.AppendUint64(make([]byte, 4000), i)); err != nil {
			t.Fatal(err)
		}
		b.Seal()
		for k, ok := r.Next(); ok; k, ok = r.Next() {
			for _, p := range records(t, k) {
				if got := binary.LittleEndian.Uint64(p[4000:]); got != seen {
					t.Fatalf("record %d where %d was due", got, seen)
				}
				seen++
			}
		}
	}
	if seen != 100 || r.Lost() != 1 {
		t.Errorf("read %d records and lost %d positions, want 100 and the stuck one", seen, r.Lost())
	}
	if s := b.Stats(); s.Skipped == 0 || s.Blocks != blocks {
		t.Errorf("stats = %+v", s)
	}
	copy(stuck.Data, "free")
	stuck.Commit()
}

func TestEveryBlockHeld(t *testing.T) {
	b := mustNew(t, Options{Bytes: 2 * 4096})
	w := b.Writer(0)
	var held []Reservation
	for range 2 {
		res, err := w.Reserve(4000)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, res)
	}
	if err := w.Write(make([]byte, 4000)); !errors.Is(err, ErrHeld) {
		t.Errorf("error %v, want ErrHeld", err)
	}
	if err := w.Write([]byte("small")); err != nil {
		t.Errorf("a record that still fits: %v", err)
	}
	held[0].Commit()
	if err := w.Write(make([]byte, 4000)); err != nil {
		t.Errorf("after a commit: %v", err)
	}
	held[1].Commit()
}

func TestClose(t *testing.T) {
	for _, heap := range []bool{false, true} {
		b, err := New(Options{Bytes: 16 * 4096, heap: heap})
		if err != nil {
			t.Fatal(err)
		}
		w, r := b.Writer(0), b.NewReader()
		w.Write([]byte("x"))
		b.Seal()
		k, _ := r.Next()
		res, _ := w.Reserve(4)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		copy(res.Data, "late") // must still be memory
		res.Commit()
		if string(records(t, k)[0]) != "x" {
			t.Errorf("a block that was read changed")
		}
		if err := w.Write([]byte("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("Write: %v", err)
		}
		if err := b.Resize(1 << 15); !errors.Is(err, ErrClosed) {
			t.Errorf("Resize: %v", err)
		}
		if k, ok := r.Next(); ok || b.Snapshot() != nil {
			t.Errorf("a closed buffer gives %+v", k)
		}
		b.Seal()
		if err := b.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
}

// resident is how many bytes of the buffer's range are in memory, by /proc/self/smaps.
func resident(t *testing.T, b *Buffer) int {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip("needs /proc/self/smaps: ", err)
	}
	start := fmt.Sprintf("%x-", addressOf(b.mem.bytes()))
	var in bool
	for line := range strings.Lines(string(smaps)) {
		if strings.HasPrefix(line, start) {
			in = true
		}
		var kb int
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kb); in && n == 1 {
			return kb << 10
		}
	}
	t.Skip("the buffer's mapping was merged with another one")
	return 0
}

func TestResizeGivesMemoryBack(t *testing.T) {
	const big, small = 1024 * 4096, 16 * 4096
	b := mustNew(t, Options{Bytes: big})
	w := b.Writer(0)
	fill := func() {
		for range 2 * big / 4000 {
			if err := w.Write(make([]byte, 4000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		fill()
		if got := resident(t, b); got < big {
			t.Fatalf("%d bytes resident of a full buffer of %d", got, big)
		}
		if err := b.Resize(small); err != nil {
			t.Fatal(err)
		}
		if got := resident(t, b); got > small {
			t.Errorf("%d bytes resident after shrinking to %d", got, small)
		}
		if s := b.Stats(); s.Blocks != 16 || s.CapBytes != small {
			t.Errorf("stats = %+v", s)
		}
		fill()
		if got := resident(t, b); got > small {
			t.Errorf("%d bytes resident when filled at %d", got, small)
		}
		if err := b.Resize(big); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Resize(5 * big); err == nil || !strings.Contains(err.Error(), "MaxBytes") {
		t.Errorf("above MaxBytes: %v", err)
	}
	if err := b.Resize(4096); err == nil {
		t.Error("a resize to one block was taken")
	}
}

func TestResizeWithHeldBlocks(t *testing.T) {
	b := mustNew(t, Options{Bytes: 32 * 4096, MaxBytes: 32 * 4096})
	w := b.Writer(0)
	var held []Reservation
	for range 32 {
		res, err := w.Reserve(4000)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, res)
	}
	if err := b.Resize(4 * 4096); err != nil {
		t.Fatal(err)
	}
	for i, res := range held {
		for j := range res.Data {
			res.Data[j] = byte(i)
		}
		res.Commit()
	}
	snap := b.Snapshot()
	if len(snap) != 4 {
		t.Fatalf("%d blocks, want 4", len(snap))
	}
	for i, k := range snap {
		if got := records(t, k)[0][0]; got != byte(28+i) {
			t.Errorf("block %d holds record %d, want %d", i, got, 28+i)
		}
	}
	if err := b.Resize(32 * 4096); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := w.Write(make([]byte, 4000)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(b.Snapshot()); got != 32 {
		t.Errorf("%d blocks after growing again, want 32", got)
	}
}

// model is the buffer as a list, without holds.
type model struct {
	blocks, slots int
	live          []modelBlock
	head          uint64
	active        []uint64 // position of the slot's open block; 0 none
}

type modelBlock struct {
	pos  uint64
	used int
	recs []string
}

func (m *model) write(slot int, rec string) {
	need := len(rec) + 1
	if len(rec) > 127 {
		need++
	}
	if i := m.find(m.active[slot]); i < 0 || m.live[i].used+need > 4096 {
		m.head++
		m.live = append(m.live, modelBlock{pos: m.head})
		m.active[slot] = m.head
		m.trim()
		for s, pos := range m.active {
			if pos != 0 && m.head-pos >= uint64(min(lagPerSlot*m.slots, m.blocks/2)) {
				m.active[s] = 0
			}
		}
	}
	k := &m.live[m.find(m.active[slot])]
	k.used += need
	k.recs = append(k.recs, rec)
}

func (m *model) find(pos uint64) int {
	return slices.IndexFunc(m.live, func(k modelBlock) bool { return pos != 0 && k.pos == pos })
}

func (m *model) trim() {
	if n := len(m.live) - m.blocks; n > 0 {
		for s := range m.active {
			if i := m.find(m.active[s]); i >= 0 && i < n {
				m.active[s] = 0
			}
		}
		m.live = slices.Clone(m.live[n:])
	}
}

// TestAgainstModel runs random operations on a buffer and on the model and compares what can be read.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		slots := 1 + rng.IntN(4)
		blocks := 2*slots + rng.IntN(12)
		b := mustNew(t, Options{Bytes: blocks * 4096, Slots: slots, MaxBytes: 40 * 4096})
		m := &model{blocks: blocks, slots: slots, active: make([]uint64, slots)}
		r := b.NewReader()
		var cursor, lost uint64
		var readSoFar []string
		for op := range 4000 {
			switch x := rng.IntN(1000); {
			case x < 3:
				b.Seal()
				clear(m.active)
			case x < 6:
				n := 2*slots + rng.IntN(20)
				if err := b.Resize(n * 4096); err != nil {
					t.Fatal(err)
				}
				m.blocks = n
				m.trim()
			case x < 26:
				var got, want []string
				for k, ok := r.Next(); ok; k, ok = r.Next() {
					for _, p := range records(t, k) {
						got = append(got, string(p))
					}
				}
				for _, k := range m.live {
					if k.pos <= cursor {
						continue
					}
					if slices.Contains(m.active, k.pos) {
						break
					}
					lost += k.pos - cursor - 1
					cursor = k.pos
					want = append(want, k.recs...)
				}
				if !slices.Equal(got, want) || r.Lost() != lost {
					t.Fatalf("seed %d, op %d: read %d records, lost %d; want %d and %d", seed, op, len(got), r.Lost(), len(want), lost)
				}
				readSoFar = append(readSoFar, got...)
			case x < 30:
				var want []modelBlock
				want = append(want, m.live...)
				snap := b.Snapshot()
				if len(snap) != len(want) {
					t.Fatalf("seed %d, op %d: %d blocks, want %d", seed, op, len(snap), len(want))
				}
				for i, k := range snap {
					var got []string
					for _, p := range records(t, k) {
						got = append(got, string(p))
					}
					if k.Pos != want[i].pos || k.Lost != 0 || !slices.Equal(got, want[i].recs) {
						t.Fatalf("seed %d, op %d: block %d is at %d, lost %d", seed, op, i, k.Pos, k.Lost)
					}
				}
			default:
				slot := rng.IntN(slots)
				if rng.IntN(3) > 0 {
					slot = 0 // skewed
				}
				rec := fmt.Sprintf("%d.%d.%s", slot, op, strings.Repeat("x", rng.IntN(900)))
				if err := b.Writer(slot).Write([]byte(rec)); err != nil {
					t.Fatal(err)
				}
				m.write(slot, rec)
			}
		}
		if len(readSoFar) == 0 {
			t.Fatalf("seed %d: nothing was ever read", seed)
		}
	}
}

func TestRecordsOfForeignData(t *testing.T) {
	for _, data := range [][]byte{{5}, {1}, {0x80}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {1, 2, 0x80}} {
		if (Block{Data: data}).Records(func([]byte) bool { return true }) {
			t.Errorf("% x passes for well formed", data)
		}
	}
	if !(Block{Data: []byte{1, 2, 0x80}}).Records(func([]byte) bool { return false }) {
		t.Error("stopping early is reported as malformed")
	}
}
