// Command goburn uses 400 ms of CPU time in goroutines of two functions, and watches for SIGWINCH meanwhile: it gets the one that
// it sends itself, and no other.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var sink [2]uint64

//go:noinline
func burns(i int) {
	for used() < 400*time.Millisecond {
		for k := uint64(0); k < 200_000; k++ {
			sink[i] = sink[i]*31 + k
		}
	}
}

func first(wg *sync.WaitGroup)  { defer wg.Done(); burns(0) }
func second(wg *sync.WaitGroup) { defer wg.Done(); burns(1) }

func main() {
	caught := make(chan os.Signal, 100)
	signal.Notify(caught, syscall.SIGWINCH)
	var wg sync.WaitGroup
	wg.Add(2)
	go first(&wg)
	go second(&wg)
	wg.Wait()
	syscall.Kill(os.Getpid(), syscall.SIGWINCH)
	<-caught
	fmt.Println("others:", len(caught))
}
