package tracefile

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// fullEvent has every field set, to its largest where sign is 1, smallest where it is -1.
func fullEvent(sign int64) trace.Event {
	ns := trace.Ns(math.MaxInt64)
	if sign < 0 {
		ns = math.MinInt64
	}
	return trace.Event{
		Kind: 255, Flags: math.MaxUint16, Hook: math.MaxUint16, Thread: math.MaxUint32, Time: ns, Start: -ns, Stack: math.MaxUint32,
		Same: math.MaxUint32, Count: math.MaxUint32, CPU: int64(ns), Object: math.MaxUint64, Object2: 1, Size: math.MaxUint64,
		Weight: math.MaxUint64, Debt: int64(ns), Result: int64(ns), Owner: math.MaxUint32, Releaser: math.MaxUint32, Release: ns / 3,
	}
}

func randomEvent(rng *rand.Rand) trace.Event {
	e := trace.Event{Kind: trace.Kind(rng.IntN(13)), Thread: trace.ThreadID(rng.IntN(5)), Time: trace.Ns(rng.Int64N(1 << 50)), Count: 1}
	e.Start = e.Time
	v := reflect.ValueOf(&e).Elem()
	for range rng.IntN(6) {
		f := v.Field(rng.IntN(v.NumField()))
		if f.CanUint() {
			f.SetUint(rng.Uint64() >> rng.IntN(64) & (1<<f.Type().Bits() - 1))
		} else {
			f.SetInt(rng.Int64()>>rng.IntN(64) - rng.Int64N(2))
		}
	}
	return e
}

// TestEveryFieldIsStored sets each field of an Event alone: a field added to trace.Event must not be forgotten.
func TestEveryFieldIsStored(t *testing.T) {
	for i := range reflect.TypeFor[trace.Event]().NumField() {
		var e, got trace.Event
		if f := reflect.ValueOf(&e).Elem().Field(i); f.CanUint() {
			f.SetUint(7)
		} else {
			f.SetInt(-7)
		}
		if n, err := DecodeEvent(AppendEvent(nil, &e), &got); err != nil || got != e || n == 0 {
			t.Errorf("%s: got %+v, %v; want %+v", reflect.TypeFor[trace.Event]().Field(i).Name, got, err, e)
		}
	}
}

func TestEventRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	list := []trace.Event{{}, {Count: 1}, fullEvent(1), fullEvent(-1)}
	for range 2000 {
		list = append(list, randomEvent(rng))
	}
	var buf []byte
	for i := range list {
		buf = AppendEvent(buf, &list[i])
	}
	p := buf
	for i := range list {
		got := trace.Event{Kind: 99, Size: 99, Thread: 99, Release: 99} // of the last use
		n, err := DecodeEvent(p, &got)
		if err != nil || got != list[i] {
			t.Fatalf("event %d: got %+v, %v; want %+v", i, got, err, list[i])
		}
		for cut := range n {
			if _, err := DecodeEvent(p[:cut:cut], &got); err == nil {
				t.Fatalf("event %d passes when cut to %d of %d bytes", i, cut, n)
			}
		}
		p = p[n:]
	}
	if len(p) != 0 {
		t.Errorf("%d bytes left", len(p))
	}
}

func TestEventBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 11))
	var b batch
	var d batchDecoder
	for range 50 { // batch and decoder are used again
		list := []trace.Event{fullEvent(1), fullEvent(-1), {}}
		for range rng.IntN(300) {
			list = append(list, randomEvent(rng))
		}
		b.reset()
		for i := range list {
			b.add(&list[i])
		}
		i := 0
		err := d.decode(b.payload, uint32(b.count), func(e *trace.Event) error {
			if *e != list[i] {
				t.Fatalf("event %d = %+v, want %+v", i, *e, list[i])
			}
			i++
			return nil
		})
		if err != nil || i != len(list) {
			t.Fatalf("%d events of %d: %v", i, len(list), err)
		}
	}
}

func TestTypicalEventIsSmall(t *testing.T) {
	var b batch
	const n = 1000
	for i := range n {
		b.add(&trace.Event{
			Kind: trace.KindCPU, Thread: trace.ThreadID(1 + i%8), Time: trace.Ns(1e15) + trace.Ns(i)*1_003_777,
			Start: trace.Ns(1e15) + trace.Ns(i)*1_003_777, Stack: trace.StackID(5000 + i*7919%300), Same: 12, Count: 1, CPU: 1_000_000 + int64(i),
		})
	}
	got := float64(len(b.payload)) / n
	t.Logf("%.1f bytes a sample before compression", got)
	if got > 13 {
		t.Errorf("%.1f bytes a sample before compression, want at most 13", got)
	}
}

func BenchmarkEvent(b *testing.B) {
	e := trace.Event{Kind: trace.KindCPU, Thread: 3, Time: 1e15, Start: 1e15, Stack: 5000, Same: 12, Count: 1, CPU: 1e6}
	rec := AppendEvent(nil, &e)
	b.Run("op=append", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 128)
		for b.Loop() {
			AppendEvent(buf, &e)
		}
		b.ReportMetric(float64(len(rec)), "B/event")
	})
	b.Run("op=decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeEvent(rec, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("op=write", func(b *testing.B) {
		b.ReportAllocs()
		w, err := newWriter("x", nowhere{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		i := 0
		for b.Loop() {
			e.Time += 1_003_777
			e.Start, e.Thread, e.Stack = e.Time, trace.ThreadID(1+i%8), trace.StackID(5000+i*7919%300)
			if err := w.PutEvent(&e); err != nil {
				b.Fatal(err)
			}
			i++
		}
		b.ReportMetric(float64(w.Size())/float64(i), "B/event")
	})
}

// nowhere is a file that keeps nothing.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nowhere) Truncate(int64) error                   { return nil }
func (nowhere) Sync() error                            { return nil }
func (nowhere) Close() error                           { return nil }
