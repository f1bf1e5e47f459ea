// Package push sends what a flight recorder sees to a receiver of profiles, every few seconds, while it records:
// OpenTelemetry (OTLP over gRPC or HTTP) or Pyroscope. It reads the session's files as a dump does, in a process of its
// own, so that neither the program nor its recorder waits for a profile to be made or for the network.
//
// Each event is in one push and no other: a push begins with the number of the event at which the one before ended.
// Intervals count where they end. Requests go through a spool, a directory bounded by size; a receiver that is away,
// slow or busy gets them later, after a pause that doubles up to a minute, with jitter. Requests that do not fit, or
// that the receiver refuses for good, are dropped and counted.
package push

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// Options of a Pusher.
type Options struct {
	Target  *Target
	Session flight.Session
	Every   time.Duration
	Service string
	NoNames bool              // send build ids and addresses only
	Spool   int64             // bytes
	Say     func(line string) // what goes wrong, one line each time that it changes
}

// Counts are what became of it.
type Counts struct {
	Pushes  uint64 // profiles that were made
	Events  uint64 // in them
	Missed  uint64 // events that were overwritten before they could be read
	Reduced uint64 // profiles without labels: they would have been too large with them
	Sent    uint64 // requests that were taken
	Dropped uint64 // requests that were refused, or made room in the spool
}

// Pusher sends one session's profiles.
type Pusher struct {
	o    Options
	dir  string // of the spool, and of the dump that a profile is made of
	next uint64 // number of the event that the next profile begins with
	s    *sender

	mu     sync.Mutex
	spool  *spool
	counts Counts
	said   string
	more   chan struct{} // something is in the spool
}

// The times that sending takes at most.
const (
	sendTimeout = 10 * time.Second
	lastTimeout = 10 * time.Second
	firstPause  = time.Second
	longPause   = time.Minute
)

// New makes a Pusher. Close it.
func New(o Options) (*Pusher, error) {
	dir, err := os.MkdirTemp("", "hbtrace-push-")
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	s, err := newSender(o.Target)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return &Pusher{o: o, dir: dir, s: s, spool: newSpool(dir, o.Spool), more: make(chan struct{}, 1)}, nil
}

// Close removes the spool.
func (p *Pusher) Close() error {
	p.s.close()
	return os.RemoveAll(p.dir)
}

// Counts returns what became of it so far.
func (p *Pusher) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	c.Dropped += p.spool.lost
	return c
}

// Run makes and sends profiles until ending is closed or ctx is done. Then it makes the last one, and gives the receiver
// ten seconds to take what is left.
func (p *Pusher) Run(ctx context.Context, ending <-chan struct{}) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.sendAll(sending) })
	tick := time.NewTicker(p.o.Every)
	defer tick.Stop()
	ask := true
	for alive := true; alive; {
		select {
		case <-ending: // the recorder has written down everything, and answers no more
			alive, ask = false, false
		case <-ctx.Done():
			alive = false
		case <-tick.C:
			if err := p.make(true); err != nil {
				if !flight.Alive(p.o.Session.Dir) {
					alive, ask = false, false // make says why
				}
				p.say(err.Error())
			}
		}
	}
	err := p.make(ask)
	p.drain()
	stop()
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.spool.names); n > 0 {
		p.counts.Dropped += uint64(n)
		return errors.Join(err, fmt.Errorf("push: %d requests were not taken by %s before the end", n, p.o.Target.Host))
	}
	return err
}

// make makes a profile of what was recorded since the last one, and spools it. Asked, the recorder writes down its state
// first; at the end it has done so.
func (p *Pusher) make(ask bool) error {
	if ask {
		c, err := flight.Connect(p.o.Session)
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
		_, err = c.Ask(flight.Request{Op: flight.OpDump})
		c.Close() // it has answered
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
	}
	content, err := flight.Read(p.o.Session.Dir)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	next := content.Next()
	missed := content.From(p.next)
	if next <= p.next {
		return nil // nothing happened
	}
	path := filepath.Join(p.dir, "dump.hbt")
	defer os.Remove(path)
	d, err := content.Dump(path, flight.Options{Why: trace.Dump{Why: trace.DumpedAsked}, NoNames: p.o.NoNames})
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	file, err := tracefile.Open(path)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	defer file.Close()
	requests, reduced, err := encode(ended{file}, &p.o)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Pushes++
	p.counts.Events += d.Events
	p.counts.Missed += missed
	if reduced {
		p.counts.Reduced++
	}
	p.next = next
	for _, r := range requests {
		err = errors.Join(err, p.spool.put(r.kind, r.body))
	}
	select {
	case p.more <- struct{}{}:
	default:
	}
	return err
}

// ended is a recording without the intervals that had not ended: a later push has them whole.
type ended struct{ trace.Source }

// EventBatches implements [trace.Source].
func (s ended) EventBatches(f func(events []trace.Event, done func()) error) error {
	return s.Source.EventBatches(func(events []trace.Event, done func()) error {
		kept := events[:0]
		for i := range events {
			if events[i].Flags&trace.FlagOpen == 0 {
				kept = append(kept, events[i])
			}
		}
		return f(kept, done)
	})
}

// sendAll sends what is spooled until ctx is done.
func (p *Pusher) sendAll(ctx context.Context) {
	pause := firstPause
	for {
		name, body := p.oldest()
		if body == nil {
			select {
			case <-ctx.Done():
				return
			case <-p.more:
			}
			continue
		}
		limited, cancel := context.WithTimeout(ctx, sendTimeout)
		err := p.s.send(limited, kind(name), body)
		cancel()
		var no refused
		var later busy
		switch {
		case err == nil:
			p.settle(name, &p.counts.Sent)
			p.say("")
			pause = firstPause
			continue
		case errors.As(err, &no):
			p.settle(name, &p.counts.Dropped)
			p.say(err.Error())
			continue
		case ctx.Err() != nil:
			return
		case errors.As(err, &later) && later.after > 0:
			pause = min(later.after, longPause)
		}
		p.say(err.Error() + ": it is kept and sent again")
		wait := time.NewTimer(pause*3/4 + rand.N(pause/2))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		pause = min(2*pause, longPause)
	}
}

func (p *Pusher) oldest() (name string, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, body, err := p.spool.oldest()
	if err != nil {
		p.sayLocked("push: reading the spool: " + err.Error())
	}
	return name, body
}

// settle drops a request that the receiver has answered, and counts it, unless it made room for a newer one meanwhile:
// such a request counts as dropped.
func (p *Pusher) settle(name string, count *uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spool.drop(name) {
		*count++
	}
}

// drain waits until the spool is empty, for a while.
func (p *Pusher) drain() {
	for until := time.Now().Add(lastTimeout); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		n := len(p.spool.names)
		p.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// say says a line once, until another one comes; "" means that all is well again.
func (p *Pusher) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sayLocked(line)
}

func (p *Pusher) sayLocked(line string) {
	if line != "" && line != p.said && p.o.Say != nil {
		p.o.Say(line)
	}
	p.said = line
}
