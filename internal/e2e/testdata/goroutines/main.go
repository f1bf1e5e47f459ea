// Command goroutines makes one wait of each kind, between goroutines whose functions have telling names. A wait is over
// no sooner than `hold` after its goroutine is seen to be blocked, so that each is a long one on any machine.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

const hold = 5 * time.Millisecond

// whenBlocked waits until a goroutine is blocked in the function for the reason, and for a while longer.
func whenBlocked(function, reason string) {
	buf := make([]byte, 1<<20)
	for {
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			head, _, _ := strings.Cut(g, "\n")
			if strings.Contains(g, "main."+function+"(") && strings.Contains(head, "["+reason) {
				time.Sleep(hold)
				return
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// both runs a goroutine that blocks, and one that ends that.
func both(block, release func()) {
	var wg sync.WaitGroup
	wg.Add(2)
	go func() { defer wg.Done(); block() }()
	go func() { defer wg.Done(); release() }()
	wg.Wait()
}

var (
	values = make(chan int)
	never  = make(chan int)
	mu     sync.Mutex
	rw     sync.RWMutex
	cond   = sync.NewCond(&mu)
	group  sync.WaitGroup
	ready  bool
)

//go:noinline
func receives() { <-values }

//go:noinline
func sendsLate() { whenBlocked("receives", "chan receive"); values <- 1 }

//go:noinline
func sends() { values <- 1 }

//go:noinline
func receivesLate() { whenBlocked("sends", "chan send"); <-values }

//go:noinline
func selects() {
	select {
	case <-values:
	case <-never:
	}
}

//go:noinline
func sendsToSelect() { whenBlocked("selects", "select"); values <- 1 }

//go:noinline
func wantsMutex() { mu.Lock(); mu.Unlock() }

//go:noinline
func holdsMutex() { whenBlocked("wantsMutex", "sync.Mutex.Lock"); mu.Unlock() }

//go:noinline
func reads() { rw.RLock(); rw.RUnlock() }

//go:noinline
func wrote() { whenBlocked("reads", "sync.RWMutex.RLock"); rw.Unlock() }

//go:noinline
func waitsForCond() {
	mu.Lock()
	for !ready {
		cond.Wait()
	}
	mu.Unlock()
}

//go:noinline
func signals() {
	whenBlocked("waitsForCond", "sync.Cond.Wait")
	mu.Lock()
	ready = true
	mu.Unlock()
	cond.Broadcast()
}

//go:noinline
func waitsForGroup() { group.Wait() }

//go:noinline
func isDone() { time.Sleep(4 * hold); group.Done() }

//go:noinline
func readsPipe(r *os.File) { r.Read(make([]byte, 1)) }

//go:noinline
func sleeps() { time.Sleep(hold) }

//go:noinline
func leaks(c chan int) { <-c }

func main() {
	go leaks(make(chan int)) // for ever
	whenBlocked("leaks", "chan receive")
	both(receives, sendsLate)
	both(sends, receivesLate)
	both(selects, sendsToSelect)
	mu.Lock()
	both(wantsMutex, holdsMutex)
	rw.Lock()
	both(reads, wrote)
	both(waitsForCond, signals)
	group.Add(1)
	both(waitsForGroup, isDone)
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	both(func() { readsPipe(r) }, func() { whenBlocked("readsPipe", "IO wait"); w.Write([]byte{1}) })
	sleeps()
	fmt.Println("all waits are over")
	os.Exit(7)
}
