package blockbuf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
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

var allMappings = []Mapping{LateBorrowing, Late, Paper, PaperBorrowing}

func forMappings(t *testing.T, f func(t *testing.T, m Mapping)) {
	for _, m := range allMappings {
		t.Run(m.String(), func(t *testing.T) { f(t, m) })
	}
}

func write(t testing.TB, w *Writer, p []byte) {
	t.Helper()
	if err := w.Write(p); err != nil {
		t.Fatal(err)
	}
}

func reserveIn(t testing.TB, w *Writer, n int) Reservation {
	t.Helper()
	res, err := w.Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string // part of the error; "" none
	}{
		{Options{Bytes: 8192}, ""},
		{Options{Bytes: 8193, MaxBytes: 1}, ""},
		{Options{Bytes: 1 << 20, BlockBytes: 8192, Slots: 64}, ""},
		{Options{Bytes: 1 << 20, Slots: 8, Mapping: Paper}, ""},
		{Options{}, "too few for 1 slots: give at least 8192 bytes"},
		{Options{Bytes: 1 << 20, Slots: 129}, "too few for 129 slots: give at least 1056768 bytes"},
		{Options{Bytes: 1 << 20, BlockBytes: 100}, "power of two"},
		{Options{Bytes: 1 << 20, BlockBytes: 5000}, "power of two"},
		{Options{Bytes: 1 << 20, BlockBytes: 1 << 17}, "power of two"},
		{Options{Bytes: -1}, "negative"},
		{Options{Bytes: 1 << 20, Mapping: 9}, "unknown mapping"},
		{Options{Bytes: 1 << 60}, "want fewer than"},
		{Options{Bytes: 1 << 20, File: "/nonexistent/x"}, "no such file"},
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
	b := mustNew(t, Options{Bytes: 64 << 10})
	w := b.Writer(0)
	sizes := []int{0, 1, 2, 3, 4, 5, 127, 128, 4091, 4092, 0, 4088, 0}
	for _, n := range sizes {
		write(t, w, make([]byte, n))
	}
	for _, n := range []int{-1, 4093, 4096, 1 << 30} {
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
	if !slices.Equal(got, sizes) {
		t.Errorf("record sizes %v, want %v", got, sizes)
	}
	big := mustNew(t, Options{Bytes: 1 << 18, BlockBytes: maxBlock})
	write(t, big.Writer(0), make([]byte, maxBlock-headerBytes))
	if got := records(t, big.Snapshot()[0]); len(got) != 1 || len(got[0]) != maxBlock-headerBytes {
		t.Errorf("the largest record there is was not kept")
	}
}

func TestReservation(t *testing.T) {
	b := mustNew(t, Options{Bytes: 16 * 4096, Slots: 2})
	r := b.NewReader()
	res := reserveIn(t, b.Writer(0), 3)
	write(t, b.Writer(0), []byte("later"))
	write(t, b.Writer(1), []byte("other"))
	gone := reserveIn(t, b.Writer(0), 5)
	write(t, b.Writer(0), []byte("last"))
	gone.Discard()
	b.Seal()
	if k, ok := r.Next(); ok {
		t.Fatalf("block %d was read with an uncommitted record in it", k.Pos)
	}
	if s := b.Snapshot(); len(s) != 2 || !s[0].Partial || s[1].Partial {
		t.Errorf("snapshot = %+v, want both blocks, the first in part", s)
	} else if got := fmt.Sprintf("%s %s", records(t, s[0]), records(t, s[1])); got != "[later last] [other]" {
		t.Errorf("snapshot has %s", got)
	}
	copy(res.Data, "abc")
	res.Commit()
	k, ok := r.Next()
	if !ok || k.Lost != 0 || k.Partial {
		t.Fatalf("Next = %+v, %v", k, ok)
	}
	if got := fmt.Sprintf("%s", records(t, k)); got != "[abc later last]" {
		t.Errorf("records %s", got)
	}
	if k, ok = r.Next(); !ok || k.Pos != 2 {
		t.Errorf("Next = %+v, %v, want block 2", k, ok)
	}
	if k, ok = r.Next(); ok {
		t.Errorf("Next = %+v at the end", k)
	}
}

// TestStuckWriters leaves reservations open for ever: each costs its block, not more, what was committed next to it
// is read, and nothing else is lost. With the paper's mapping each costs its metadata, N/A blocks.
func TestStuckWriters(t *testing.T) {
	forMappings(t, func(t *testing.T, m Mapping) {
		const blocks, stuck = 64, 5
		b := mustNew(t, Options{Bytes: blocks * 4096, Slots: 2, Mapping: m})
		for i := range stuck {
			write(t, b.Writer(1), []byte("beside"))
			reserveIn(t, b.Writer(1), 4)
			write(t, b.Writer(1), fmt.Appendf(nil, "behind %d", i))
			b.Seal()
		}
		r := b.NewReader()
		w := b.Writer(0)
		var seen uint64
		beside, partial := 0, 0
		for i := range uint64(1000) {
			write(t, w, binary.LittleEndian.AppendUint64(make([]byte, 4000), i))
			b.Seal()
			for k, ok := r.Next(); ok; k, ok = r.Next() {
				if k.Partial {
					partial++
				}
				for _, p := range records(t, k) {
					if len(p) < 4000 {
						beside++
						continue
					}
					if got := binary.LittleEndian.Uint64(p[4000:]); got != seen {
						t.Fatalf("record %d where %d was due", got, seen)
					}
					seen++
				}
			}
		}
		if seen != 1000 || beside != 2*stuck || partial != stuck {
			t.Errorf("read %d records, %d beside stuck ones in %d blocks, want 1000, %d, %d", seen, beside, partial, 2*stuck, stuck)
		}
		if got, want := b.Stats().Blocks, blocks-stuck; m.late() && got != want {
			t.Errorf("%d blocks of history, want %d", got, want)
		}
		if m.late() && r.Lost() != 0 {
			t.Errorf("lost %d positions", r.Lost())
		}
	})
}

// TestLateCommit: a writer that wakes up gives its block back to the history.
func TestLateCommit(t *testing.T) {
	b := mustNew(t, Options{Bytes: 16 * 4096})
	w := b.Writer(0)
	fill := func() {
		for range 100 {
			write(t, w, make([]byte, 4000))
		}
	}
	res := reserveIn(t, w, 4000)
	fill()
	if got := len(b.Snapshot()); got != 15 {
		t.Errorf("%d blocks beside one that is held, want 15", got)
	}
	res.Commit()
	fill()
	if got := len(b.Snapshot()); got != 16 {
		t.Errorf("%d blocks after the commit, want 16", got)
	}
}

func TestEveryBlockHeld(t *testing.T) {
	forMappings(t, func(t *testing.T, m Mapping) {
		b := mustNew(t, Options{Bytes: 2 * 4096, Mapping: m})
		w := b.Writer(0)
		held := []Reservation{reserveIn(t, w, 4000)}
		if m.late() { // the paper's mapping has one metadata block here, which is held by now
			held = append(held, reserveIn(t, w, 4000))
		}
		if err := w.Write([]byte("small")); err != nil {
			t.Errorf("a record that still fits: %v", err)
		}
		for range 3 {
			if err := w.Write(make([]byte, 4000)); !errors.Is(err, ErrHeld) {
				t.Fatalf("error %v, want ErrHeld", err)
			}
		}
		held[0].Commit()
		if err := w.Write(make([]byte, 4000)); err != nil {
			t.Errorf("after a commit: %v", err)
		}
	})
}

func TestUsedUp(t *testing.T) {
	b := mustNew(t, Options{Bytes: 8 * 4096, from: maxPos - 3})
	w := b.Writer(0)
	for range 3 {
		write(t, w, make([]byte, 4000))
	}
	for range 10 {
		if err := w.Write(make([]byte, 4000)); !errors.Is(err, ErrFull) {
			t.Fatalf("error %v, want ErrFull", err)
		}
	}
	if got := len(b.Snapshot()); got != 3 {
		t.Errorf("%d blocks, want 3", got)
	}
}

func TestClose(t *testing.T) {
	for _, heap := range []bool{false, true} {
		b, err := New(Options{Bytes: 16 * 4096, heap: heap})
		if err != nil {
			t.Fatal(err)
		}
		w, r := b.Writer(0), b.NewReader()
		write(t, w, []byte("x"))
		b.Seal()
		k, _ := r.Next()
		res := reserveIn(t, w, 4)
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

// TestSkewLeavesHistoryWhole: nine slots in ten are quiet, and the history still is nearly all of the memory.
func TestSkewLeavesHistoryWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 2 million records: not with -short")
	}
	for m, least := range map[Mapping]float64{LateBorrowing: 0.96, Late: 0.80, Paper: 0.80, PaperBorrowing: 0.94} {
		const size, slots = 12 << 20, 12
		b := mustNew(t, Options{Bytes: size, Slots: slots, ActivePerSlot: 8, Mapping: m})
		rng := rand.New(rand.NewPCG(7, 7))
		rec := make([]byte, 60)
		var stamp uint64
		for range 3 * size / 64 {
			slot := rng.IntN(10 * slots)
			if slot >= slots {
				slot = 0
			}
			binary.LittleEndian.PutUint64(rec, stamp)
			stamp++
			write(t, b.Writer(slot), rec)
		}
		seen := make([]bool, stamp)
		for _, k := range b.Snapshot() {
			k.Records(func(p []byte) bool { seen[binary.LittleEndian.Uint64(p)] = true; return true })
		}
		latest := 0
		for latest < len(seen) && seen[len(seen)-1-latest] {
			latest++
		}
		part := float64(latest*64) / size
		t.Logf("%s: latest fragment %.1f %% of the memory, %+v", m, 100*part, b.Stats())
		if part < least {
			t.Errorf("%s: latest fragment is %.1f %% of the memory, want %.0f", m, 100*part, 100*least)
		}
	}
}
