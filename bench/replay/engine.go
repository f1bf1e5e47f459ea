package main

// engine.go: one replay: a workload's threads, pinned and paced, writing to one tracer; then what is left.
//
// What the paper does not say, and this assumes: a thread's entries come in bursts of 1 to 15 with
// exponential gaps between them; the threads of a core share its rate equally; of the threads that
// write to a core within 30 seconds, as many as write within one second (figure 6) are there at a time, and
// each hands over to the next in turn. At core level one thread does all of a core's writing.

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hbtrace/hbtrace/bench/replay/measure"
	"github.com/hbtrace/hbtrace/bench/replay/tracer"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// Replay is one run.
type Replay struct {
	Workload workload.Workload
	Tracer   string
	PerCore  bool // core level: one thread for each core
	Duration time.Duration
	Speed    float64 // times as fast as the phone
	Stuck    float64 // share of records whose writer sleeps StuckFor between reserve and commit
	StuckFor time.Duration
	Live     int  // snapshots that are read while writing
	Shrink   bool // the buffer is halved on the way and restored later
	Config   tracer.Config
	Threads  int // at most so many threads a core at a time
}

const (
	burstMost = 15
	seed      = 42
	// patience is how many times as long as asked for a run may take that ends by what was written.
	patience = 20
	// lateAfter is how many records of others make one late: a 256th of what the buffer holds.
	lateAfter = workload.BufferBytes / 52 / 256
)

// Result is what came of it.
type Result struct {
	Workload, Tracer string
	Level            string // core, thread
	Mapping          string
	Active           int // active blocks a core, 0: the tracer's default
	Stuck            float64
	Speed            float64
	Known            bool // the workload's rates are the paper's own
	Threads          int  // at a time, over all cores
	Identities       int  // over the whole run
	Pace             float64
	LatestMB         float64 // with framing
	LatestBytes      int
	LatestShare      float64 // of the buffer
	PayloadMB        float64
	Loss             float64
	Fragments        int
	Dropped          int // writes refused
	NewestMissing    int
	Late             int // records whose writer was away between stamp and store
	Written, Kept    int
	GeoNs, P50Ns     float64 // of batches: mean of 4 to 15 records written back to back
	P99Ns, P999Ns    float64 // of single records
	SingleGeoNs      float64
	LiveRead         int
	Counters         map[string]int
	Shrunk           *Shrunk `json:",omitempty"`
}

// identities are the threads of one core: those at a time, and how many there are over the run.
func (r Replay) identities() (atATime, all int) {
	if r.PerCore {
		return 1, 1
	}
	atATime = min(max(r.Workload.Threads, 1), r.Threads)
	return atATime, max(r.Workload.Total, atATime)
}

// worker is one thread of the replay; it plays one identity after the other.
type worker struct {
	replay    *Replay
	core      int
	rate      float64 // records a second
	producers []tracer.Producer
	names     []uint32
	seqs      []uint32

	stamp *atomic.Uint64
	goal  *atomic.Uint64 // end when so many records are written, and not by the time; nil: by the time
	watch stopwatch

	single, batch measure.Latency
	late          []uint64 // stamps of records that were written long after they got them
	written       int
	dropped       int
	err           error
}

// Run does the replay.
func (r Replay) Run(watch stopwatch) (Result, error) {
	atATime, perCore := r.identities()
	r.Config.Cores = workload.Cores
	r.Config.Threads = perCore * workload.Cores
	tr, err := tracer.New(r.Tracer, r.Config)
	if err != nil {
		return Result{}, err
	}
	defer tr.Close()

	var stamp atomic.Uint64
	var shrunk shrinking
	steps := r.shrinkSteps(tr, stamp.Load, &shrunk)
	var workers []*worker
	for core := range workload.Cores {
		for j := range atATime {
			w := &worker{replay: &r, core: core, stamp: &stamp, goal: shrunk.goal, watch: watch,
				rate: r.Workload.Rates[core] * r.Speed / float64(atATime)}
			for id := j; id < perCore; id += atATime {
				name := core*perCore + id
				w.names = append(w.names, uint32(name))
				w.producers = append(w.producers, tr.Producer(core, name))
				w.seqs = append(w.seqs, 0)
			}
			workers = append(workers, w)
		}
	}
	// A thread in the middle of a write must be preempted by the kernel, not by Go: as many may run Go code at a
	// time as there are threads, within reason. The collector of garbage stays out of it.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(min(len(workers)+4, 400)))

	var wg, ready sync.WaitGroup
	begin := make(chan time.Time)
	for _, w := range workers {
		ready.Add(1)
		wg.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with its pinning
			w.err = tracer.Pin(tracer.CPU(w.core))
			growStack()
			ready.Done()
			w.run(<-begin)
		})
	}
	ready.Wait()
	t0 := time.Now()
	for range workers {
		begin <- t0
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	live, err := r.meanwhile(tr, t0, &stamp, ended, steps)
	<-ended
	for _, w := range workers {
		if w.err != nil {
			return Result{}, w.err
		}
	}
	if err != nil {
		return Result{}, err
	}
	res, err := r.judge(tr, workers, stamp.Load())
	res.LiveRead = live
	if err == nil && shrunk.halved != nil {
		res.Shrunk, err = shrunk.judge(r, tr, stamp.Load(), res.LatestBytes)
	}
	return res, err
}

// growStack makes the goroutine's stack as large as it needs to be: growing it would count as latency.
//
//go:noinline
func growStack() byte {
	var room [16 << 10]byte
	return room[time.Now().Second()]
}

// meanwhile takes snapshots and changes the size, as asked for, while the workers write.
func (r Replay) meanwhile(tr tracer.Tracer, t0 time.Time, stamp *atomic.Uint64, ended <-chan struct{}, steps []step) (live int, err error) {
	if l, ok := tr.(tracer.Live); ok && len(steps) == 0 {
		for i := range r.Live {
			at := t0.Add(r.Duration * time.Duration(i+1) / time.Duration(r.Live+1))
			steps = append(steps, step{"take a snapshot", func() bool { return !time.Now().Before(at) }, func() error {
				_, err := kept(l, tr, r.Config.Bytes, stamp.Load)
				live++
				return err
			}})
		}
	}
	for _, s := range steps {
		for over := false; !s.due(); {
			if over {
				return live, fmt.Errorf("%s on %s: the writers had ended before it was time to %s: give them longer, or more -turns", r.Tracer, r.Workload.Name, s.what)
			}
			select {
			case <-ended:
				over = true // look once more
			case <-time.After(200 * time.Microsecond):
			}
		}
		if err := s.do(); err != nil {
			return live, fmt.Errorf("%s on %s, while writing: %w", r.Tracer, r.Workload.Name, err)
		}
	}
	return live, nil
}

func (r Replay) judge(tr tracer.Tracer, workers []*worker, stamps uint64) (Result, error) {
	s := measure.NewSnapshot(stamps, workload.Size)
	if err := tr.Walk(s.Add); err != nil {
		return Result{}, fmt.Errorf("reading %s back: %w", r.Tracer, err)
	}
	if err := s.Err(); err != nil {
		return Result{}, fmt.Errorf("snapshot of %s on %s: %w", r.Tracer, r.Workload.Name, err)
	}
	for _, w := range workers {
		s.Late(w.late)
	}
	h := s.History(tr.Footprint)
	var single, batch measure.Latency
	dropped := 0
	for _, w := range workers {
		single.Merge(&w.single)
		batch.Merge(&w.batch)
		dropped += w.dropped
	}
	res := r.result(h, &single, &batch)
	res.Dropped, res.Counters = dropped, tr.Counters()
	return res, nil
}

// result is what all tracers have in common.
func (r Replay) result(h measure.History, single, batch *measure.Latency) Result {
	atATime, all := r.identities()
	level := "thread"
	if r.PerCore {
		level = "core"
	}
	return Result{
		Workload: r.Workload.Name, Tracer: r.Tracer, Level: level, Mapping: r.Config.Mapping, Active: r.Config.Active,
		Stuck: r.Stuck, Speed: r.Speed, Known: r.Workload.Known,
		Threads: atATime * workload.Cores, Identities: all * workload.Cores,
		Pace:     float64(h.Written) / (r.Workload.Sum() * r.Speed * r.Duration.Seconds()),
		LatestMB: mb(h.LatestBytes), LatestBytes: h.LatestBytes, LatestShare: float64(h.LatestBytes) / float64(r.Config.Bytes), PayloadMB: mb(h.LatestPayload),
		Loss: h.Loss, Fragments: h.Fragments, NewestMissing: h.NewestMissing, Late: h.Late, Written: h.Written, Kept: h.Kept,
		GeoNs: batch.GeoMean(), P50Ns: batch.Quantile(0.5), P99Ns: single.Quantile(0.99), P999Ns: single.Quantile(0.999),
		SingleGeoNs: single.GeoMean(),
	}
}

func mb(bytes int) float64 { return float64(bytes) / (1 << 20) }

// run writes until the time is over.
func (w *worker) run(t0 time.Time) {
	rng := rand.New(rand.NewPCG(seed, uint64(w.names[0])))
	end := t0.Add(w.replay.Duration)
	if w.goal != nil {
		end = t0.Add(patience * w.replay.Duration)
	}
	// seconds since t0 at which the next burst is due
	due := rng.ExpFloat64() * (burstMost + 1) / 2 / w.rate
	slice := w.replay.Duration.Seconds() / float64(len(w.producers))
	for n := 0; ; n++ {
		at := t0.Add(time.Duration(due * 1e9))
		if !at.Before(end) || w.goal != nil && w.stamp.Load() >= w.goal.Load() {
			return
		}
		sleepUntil(at, end)
		now := time.Since(t0)
		if now >= end.Sub(t0) {
			return
		}
		id := min(int(now.Seconds()/slice), len(w.producers)-1)
		count := 1 + rng.IntN(burstMost)
		if n%2 == 0 && count >= 4 {
			w.writeBatch(id, count)
		} else {
			w.writeSingly(id, count, rng)
		}
		due += rng.ExpFloat64() * float64(count) / w.rate
	}
}

// writeBatch times count records together: a clock costs as much as a record.
func (w *worker) writeBatch(id, count int) {
	var buf [burstMost][workload.MaxEntry]byte
	var recs [burstMost][]byte
	first := w.stamp.Add(uint64(count)) - uint64(count)
	for i := range count {
		st := first + uint64(i)
		recs[i] = buf[i][:workload.Size(st)]
		measure.Encode(recs[i], st, w.names[id], w.seqs[id])
		w.seqs[id]++
	}
	p, dropped := w.producers[id], 0
	c0 := cycles()
	for i := range count {
		if !p.Write(recs[i]) {
			dropped++
		}
	}
	ns := w.watch.ns(c0, cycles())
	w.batch.Add(ns/float64(count), count)
	for i := range count {
		w.isLate(first + uint64(i))
	}
	w.written += count
	w.dropped += dropped
}

// writeSingly times each record for itself, for the tail.
func (w *worker) writeSingly(id, count int, rng *rand.Rand) {
	var buf [workload.MaxEntry]byte
	p := w.producers[id]
	for range count {
		st := w.stamp.Add(1) - 1
		rec := buf[:workload.Size(st)]
		measure.Encode(rec, st, w.names[id], w.seqs[id])
		w.seqs[id]++
		w.written++
		if w.replay.Stuck > 0 && rng.Float64() < w.replay.Stuck {
			if s, ok := p.(tracer.Reserver); ok {
				w.stuck(s, rec)
				w.isLate(st)
				continue
			}
		}
		c0 := cycles()
		ok := p.Write(rec)
		w.single.Add(w.watch.ns(c0, cycles()), 1)
		if !ok {
			w.dropped++
		}
		w.isLate(st)
	}
}

// isLate notes a record that was just written if much was written since it got its stamp.
func (w *worker) isLate(stamp uint64) {
	if w.stamp.Load() > stamp+lateAfter {
		w.late = append(w.late, stamp)
	}
}

// stuck is a writer that is away for long in the middle of a record.
func (w *worker) stuck(s tracer.Reserver, rec []byte) {
	room, commit, ok := s.Reserve(len(rec))
	if !ok {
		w.dropped++
		return
	}
	half := len(rec) / 2
	copy(room[:half], rec[:half])
	t := time.Now().Add(w.replay.StuckFor)
	sleepUntil(t, t)
	copy(room[half:], rec[half:])
	commit()
}
