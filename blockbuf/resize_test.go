package blockbuf

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident is how many bytes of the buffer's blocks are in memory.
func resident(t *testing.T, b *Buffer) int {
	t.Helper()
	blocks := b.mem.bytes[b.mem.blocks:]
	pages := make([]byte, (len(blocks)+pageBytes-1)/pageBytes)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&blocks[0])), uintptr(len(blocks)), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Skip("needs mincore: ", errno)
	}
	n := 0
	for _, p := range pages {
		n += int(p & 1)
	}
	return n * pageBytes
}

func TestResizeGivesMemoryBack(t *testing.T) {
	forMappings(t, func(t *testing.T, m Mapping) {
		for _, file := range []string{"", t.TempDir() + "/buffer"} {
			const big, small = 1024 * 4096, 16 * 4096
			b := mustNew(t, Options{Bytes: big, MaxBytes: big, Mapping: m, File: file})
			w := b.Writer(0)
			fill := func() {
				for range 2 * big / 4000 {
					write(t, w, make([]byte, 4000))
				}
			}
			for range 3 {
				fill()
				if got := resident(t, b); got < big*9/10 {
					t.Fatalf("%d bytes resident of a full buffer of %d", got, big)
				}
				if err := b.Resize(small); err != nil {
					if file != "" && strings.Contains(err.Error(), "not supported") {
						t.Skip("the file system of ", file, " cannot punch holes: ", err)
					}
					t.Fatal(err)
				}
				if got := resident(t, b); got > small {
					t.Errorf("%d bytes resident after shrinking to %d", got, small)
				}
				if s := b.Stats(); s.Blocks > 16 || s.CapBytes != small {
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
			if err := b.Resize(2 * big); err == nil || !strings.Contains(err.Error(), "MaxBytes") {
				t.Errorf("above MaxBytes: %v", err)
			}
			if err := b.Resize(4096); m.late() && err == nil {
				t.Error("a resize to one block was taken")
			}
		}
	})
}

// TestResizeKeepsTheNewest: exactly the newest blocks that fit survive, wherever in memory they are.
func TestResizeKeepsTheNewest(t *testing.T) {
	b := mustNew(t, Options{Bytes: 64 * 4096, MaxBytes: 128 * 4096})
	w := b.Writer(0)
	next := uint32(0)
	fill := func(n int) {
		for range n {
			rec := make([]byte, 4000)
			putRecord(rec, 0, next)
			write(t, w, rec)
			next++
		}
	}
	kept := uint32(0)
	size := 64
	fill(100)
	kept = 64
	for i, to := range []int{20, 128, 50, 51, 2, 128, 3, 100, 64} {
		if err := b.Resize(to * 4096); err != nil {
			t.Fatal(err)
		}
		kept = min(kept, uint32(to))
		size = to
		for _, more := range []int{0, 1, 7, 90} {
			fill(more)
			kept = min(kept+uint32(more), uint32(size))
			snap := b.Snapshot()
			if len(snap) != int(kept) {
				t.Fatalf("resize %d to %d, %d written: %d blocks, want %d", i, to, more, len(snap), kept)
			}
			for j, k := range snap {
				_, seq, err := checkRecord(records(t, k)[0])
				if want := next - kept + uint32(j); err != nil || seq != want || k.Lost != 0 {
					t.Fatalf("resize %d to %d: record %d where %d was due (%v), %d lost", i, to, seq, want, err, k.Lost)
				}
			}
		}
	}
}

// TestResizeAroundAHeldBlock: a block that is held when its turn comes is kept. Shrinking drops what lies between it and the
// newest half; where the history has room for so much again, a reader gets it, and is told how much is missing behind it.
func TestResizeAroundAHeldBlock(t *testing.T) {
	const blocks, half, between = 32, 16, 24
	b := mustNew(t, Options{Bytes: blocks * 4096})
	w := b.Writer(0)
	res, err := w.Reserve(4000)
	if err != nil {
		t.Fatal(err)
	}
	putRecord(res.Data, 7, 7)
	for i := range uint32(between) {
		rec := make([]byte, 4000)
		putRecord(rec, 0, i)
		write(t, w, rec)
	}
	if err := b.Resize(half * 4096); err != nil {
		t.Fatal(err)
	}
	res.Commit()
	// newest checks that blocks are the newest ones, all but the held one.
	newest := func(snap []Block) {
		t.Helper()
		if len(snap) != half-1 {
			t.Fatalf("%d blocks, want %d", len(snap), half-1)
		}
		for i, k := range snap {
			if _, seq, err := checkRecord(records(t, k)[0]); seq != uint32(between-len(snap)+i) || err != nil || i > 0 && k.Lost != 0 {
				t.Errorf("record %d where %d was due, %d lost: %v", seq, between-len(snap)+i, k.Lost, err)
			}
		}
	}
	if held := b.Snapshot(); len(held) == half {
		newest(held[1:])
	} else {
		newest(held)
	}
	if err := b.Resize(blocks * 4096); err != nil {
		t.Fatal(err)
	}
	snap := b.Snapshot()
	if by, _, err := checkRecord(records(t, snap[0])[0]); by != 7 || err != nil {
		t.Fatalf("the oldest is of producer %d: %v", by, err)
	}
	newest(snap[1:])
	if got, want := snap[1].Lost, uint64(between-(half-1)); got != want {
		t.Errorf("%d positions lost behind the held block, want %d", got, want)
	}
}

func TestResizeWithHeldBlocks(t *testing.T) {
	forMappings(t, func(t *testing.T, m Mapping) {
		b := mustNew(t, Options{Bytes: 32 * 4096, MaxBytes: 32 * 4096, ActivePerSlot: 4, Mapping: m})
		w := b.Writer(0)
		var held []Reservation
		for {
			res, err := w.Reserve(4000)
			if err != nil {
				break // all are held, with the paper's mapping A of them
			}
			held = append(held, res)
		}
		err := b.Resize(4 * 4096)
		if m.late() && !errors.Is(err, ErrHeld) {
			t.Fatalf("shrinking with all blocks held: error %v, want ErrHeld", err)
		}
		for i, res := range held {
			for j := range res.Data {
				res.Data[j] = byte(i)
			}
			res.Commit()
		}
		if err := b.Resize(4 * 4096); err != nil {
			t.Fatal(err)
		}
		snap := b.Snapshot()
		if m.late() && len(snap) != 4 {
			t.Fatalf("%d blocks, want 4", len(snap))
		}
		for i, k := range snap {
			if got := records(t, k)[0][0]; int(got) != len(held)-len(snap)+i {
				t.Errorf("block %d holds record %d of %d", i, got, len(held))
			}
		}
		if err := b.Resize(32 * 4096); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			write(t, w, make([]byte, 4000))
		}
		if got := len(b.Snapshot()); got != 32 {
			t.Errorf("%d blocks after growing again, want 32", got)
		}
	})
}
