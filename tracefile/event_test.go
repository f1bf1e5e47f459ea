package tracefile

import (
	"errors"
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
	e := trace.Event{
		Kind:   trace.Kind(rng.IntN(13)),
		Thread: trace.ThreadID(rng.IntN(5)),
		Time:   trace.Ns(rng.Int64N(1 << 50)),
		Count:  1,
	}
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
		var b Batch
		var d BatchDecoder
		b.Add(&e)
		if err := d.Decode(b.Bytes(), func(e *trace.Event) error { got = *e; return nil }); err != nil || got != e {
			t.Errorf("%s: got %+v, %v; want %+v", reflect.TypeFor[trace.Event]().Field(i).Name, got, err, e)
		}
	}
}

// randomEvents are some that have nothing to do with each other and some that mostly repeat.
func randomEvents(rng *rand.Rand, n int) []trace.Event {
	list := []trace.Event{fullEvent(1), fullEvent(-1), {}, fullEvent(1), {Count: 1}, {Thread: 1}}
	last := list[0]
	for range n {
		e := randomEvent(rng)
		if rng.IntN(2) == 0 {
			e = last
			e.Time += trace.Ns(rng.IntN(1e6))
			v := reflect.ValueOf(&e).Elem()
			if f := v.Field(rng.IntN(v.NumField())); f.CanUint() {
				f.SetUint(rng.Uint64() >> rng.IntN(64) & (1<<f.Type().Bits() - 1))
			} else {
				f.SetInt(rng.Int64() >> rng.IntN(64))
			}
		}
		list = append(list, e)
		last = e
	}
	return list
}

func TestBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 11))
	var b Batch
	var d BatchDecoder
	for range 50 { // batch and decoder are used again
		list := randomEvents(rng, rng.IntN(600))
		b.Reset()
		if len(b.Bytes()) != 0 {
			t.Fatal("an empty batch has bytes")
		}
		for i := range list {
			before := b.Len()
			b.Add(&list[i])
			if added := b.Len() - before; added > MaxEventBytes {
				t.Fatalf("%+v added %d bytes", list[i], added)
			}
		}
		i := 0
		err := d.Decode(b.Bytes(), func(e *trace.Event) error {
			if *e != list[i] {
				t.Fatalf("event %d = %+v, want %+v", i, *e, list[i])
			}
			i++
			return nil
		})
		if err != nil || i != len(list) || b.Count() != len(list) {
			t.Fatalf("%d events of %d: %v", i, len(list), err)
		}
	}
	p := b.Bytes()
	for cut := range len(p) {
		if err := d.Decode(p[:cut:cut], func(*trace.Event) error { return nil }); err == nil {
			t.Fatalf("a batch passes when cut to %d of %d bytes", cut, len(p))
		}
	}
	stop := errors.New("stop")
	if err := d.Decode(p, func(*trace.Event) error { return stop }); err != stop {
		t.Errorf("stopped with %v", err)
	}
}

// TestFullBatch: no event is lost at the largest count.
func TestFullBatch(t *testing.T) {
	var b Batch
	for !b.Full() {
		b.Add(&trace.Event{Kind: trace.KindGap, Count: 1})
	}
	n := 0
	if err := new(BatchDecoder).Decode(b.Bytes(), func(*trace.Event) error { n++; return nil }); err != nil ||
		n != maxBatchEvents {
		t.Errorf("%d events, %v", n, err)
	}
}

// typical is the i-th of a row of events as a program of eight threads gives them.
func typical(i int) trace.Event {
	at := trace.Ns(1e15) + trace.Ns(i)*1_003_777
	e := trace.Event{Thread: trace.ThreadID(1 + i%8), Time: at, Start: at, Same: 12, Count: 1}
	switch i % 3 {
	case 0:
		e.Kind, e.Stack, e.CPU = trace.KindCPU, trace.StackID(5000+i*7919%300), 1_000_000+int64(i)
	case 1:
		e.Kind, e.Hook, e.Stack, e.Object, e.Result = trace.KindCall, 60, trace.StackID(6000+i%8), 7, 4096
		e.Start -= 230_000
	default:
		e.Kind, e.Hook, e.Stack, e.Object = trace.KindWait, 20, trace.StackID(7000+i%8), 0x7f1234567000
		e.Start, e.Releaser, e.Owner, e.Release, e.Flags = e.Start-130_000, 3, 3, at-4000, trace.FlagCertain
	}
	return e
}

func TestTypicalEventIsSmall(t *testing.T) {
	var b Batch
	n := 0
	for ; b.Len() < 4000; n++ {
		e := typical(n)
		b.Add(&e)
	}
	got := float64(b.Len()) / float64(n)
	t.Logf("%.1f bytes an event before compression", got)
	if got > 11 {
		t.Errorf("%.1f bytes an event before compression, want at most 11", got)
	}
}

func BenchmarkEvent(b *testing.B) {
	b.Run("op=add", func(b *testing.B) {
		b.ReportAllocs()
		var batch Batch
		i, bytes := 0, 0
		for b.Loop() {
			e := typical(i)
			batch.Add(&e)
			if batch.Len() > 4000 {
				bytes += batch.Len()
				batch.Reset()
			}
			i++
		}
		b.ReportMetric(float64(bytes)/float64(i), "B/event")
	})
	b.Run("op=decode", func(b *testing.B) {
		b.ReportAllocs()
		var batch Batch
		for i := 0; batch.Len() < 4000; i++ {
			e := typical(i)
			batch.Add(&e)
		}
		var d BatchDecoder
		n := 0
		for b.Loop() {
			if err := d.Decode(batch.Bytes(), func(*trace.Event) error { n++; return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
	})
	b.Run("op=write", func(b *testing.B) {
		b.ReportAllocs()
		w, err := newWriter("x", nowhere{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		i := 0
		for b.Loop() {
			e := typical(i)
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
