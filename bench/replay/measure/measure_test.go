package measure

import (
	"math"
	"strings"
	"testing"
)

func size8(stamp uint64) int { return 16 + 8*int(stamp%3) }

// snap makes a snapshot of one producer with the stamps of s: 'x' kept, '.' missing.
func snap(t *testing.T, s string) *Snapshot {
	t.Helper()
	h := NewSnapshot(uint64(len(s)), func(uint64) int { return 16 })
	for i, c := range s {
		if c == 'x' {
			p := make([]byte, 16)
			Encode(p, uint64(i), 1, uint32(i))
			h.Add(p)
		}
	}
	if h.Err() != nil {
		t.Fatal(h.Err())
	}
	return h
}

func TestHistory(t *testing.T) {
	for _, tc := range []struct {
		kept      string
		latest    int // records
		loss      float64
		fragments int
		newest    int // missing
	}{
		{"", 0, 0, 0, 0},
		{"....", 0, 0, 0, 4},
		{"xxxx", 4, 0, 1, 0},
		{"..xx", 2, 0, 1, 0},   // overwritten oldest is no loss
		{"x..x", 1, 0.5, 2, 0}, // figure 5 of the paper: gaps between kept ones are
		{".x.xx.xxx", 3, 0.25, 3, 0},
		{"xxx.", 3, 0, 1, 1}, // dropped newest
		{"x.x.x.", 1, 0.4, 3, 1},
	} {
		h := snap(t, tc.kept).History(func(n int) int { return n + 4 })
		if h.LatestRecords != tc.latest || h.LatestBytes != tc.latest*20 || h.LatestPayload != tc.latest*16 ||
			math.Abs(h.Loss-tc.loss) > 1e-9 || h.Fragments != tc.fragments || h.NewestMissing != tc.newest ||
			h.Written != len(tc.kept) || h.Kept != strings.Count(tc.kept, "x") {
			t.Errorf("%q: %+v", tc.kept, h)
		}
	}
}

// TestLate: a record that was written late does not stretch the range back to its stamp, but one that is missing
// is missing however late it was written.
func TestLate(t *testing.T) {
	s := snap(t, "x...xx.x")
	s.Late([]uint64{0, 6})
	h := s.History(func(n int) int { return n })
	if h.Loss != 0.25 || h.Fragments != 2 || h.LatestRecords != 1 || h.Late != 2 {
		t.Errorf("%+v", h)
	}
}

// TestPaperFigure5: the example with which the paper explains the effectivity ratio. Four cores with four
// entries each; kept are ts 1, 10, 11, 13, 15–20; the latest fragment is ts 15 to 20: 6 of 16.
func TestPaperFigure5(t *testing.T) {
	h := snap(t, ".x........xx.x.xxxxxx").History(func(n int) int { return n })
	if h.LatestRecords != 6 || h.Fragments != 4 {
		t.Errorf("%+v", h)
	}
}

func TestUnsound(t *testing.T) {
	rec := func(stamp uint64, producer, seq uint32) []byte {
		p := make([]byte, size8(stamp))
		Encode(p, stamp, producer, seq)
		return p
	}
	torn := rec(2, 0, 0)
	torn[20] ^= 1
	for _, tc := range []struct {
		want string
		recs [][]byte
	}{
		{"", [][]byte{rec(1, 0, 0), rec(0, 1, 0), rec(3, 0, 1), rec(2, 1, 5)}},
		{"torn", [][]byte{torn}},
		{"twice", [][]byte{rec(1, 0, 0), rec(1, 0, 0)}},
		{"comes after", [][]byte{rec(1, 0, 4), rec(2, 0, 3)}},
		{"comes after", [][]byte{rec(1, 0, 4), rec(2, 0, 4)}},
		{"never written", [][]byte{rec(10, 0, 0)}},
		{"bytes, written were", [][]byte{rec(2, 0, 0)[:16]}},
		{"record of 8 bytes", [][]byte{make([]byte, 8)}},
	} {
		s := NewSnapshot(10, size8)
		for _, r := range tc.recs {
			s.Add(r)
		}
		if got := s.Err(); (got == nil) != (tc.want == "") || got != nil && !strings.Contains(got.Error(), tc.want) {
			t.Errorf("want %q, got %v", tc.want, got)
		}
	}
}

func TestLatency(t *testing.T) {
	var a, b Latency
	for range 99 {
		a.Add(10, 1)
	}
	b.Add(1000, 1)
	a.Merge(&b)
	if a.N() != 100 || math.Abs(a.Mean()-19.9) > 1e-9 || math.Abs(a.GeoMean()-10*math.Pow(100, 0.01)) > 1e-6 {
		t.Errorf("n %d mean %v geometric %v", a.N(), a.Mean(), a.GeoMean())
	}
	for _, q := range []struct{ q, want float64 }{{0, 10}, {0.5, 10}, {0.98, 10}, {0.995, 1000}} {
		if got := a.Quantile(q.q); math.Abs(got/q.want-1) > 0.025 {
			t.Errorf("quantile %v: %v, want %v", q.q, got, q.want)
		}
	}
	a.Add(1e12, 1) // beyond the last bin: in the last bin
	if a.Quantile(1) != 0 && a.Quantile(0.9999) < 1e9 {
		t.Error("a huge duration is lost")
	}
	if g := GeoMean([]float64{1, 100, 0}, 1); math.Abs(g-math.Pow(100, 1.0/3)) > 1e-9 {
		t.Error(g)
	}
}
