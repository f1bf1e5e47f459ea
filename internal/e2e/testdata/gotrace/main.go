// Command gotrace writes an execution trace of itself, to the file that it is given, while goroutines wait for each other: the same run can be
// recorded by hbtrace and compared.
package main

import (
	"os"
	"runtime/trace"
	"sync"
	"time"
)

const (
	rounds = 20
	pause  = 2 * time.Millisecond // that the one who is waited for sleeps
)

// passes hands a token round a ring of goroutines: each waits for the one before.
func passes(in <-chan int, out chan<- int) {
	for v := range in {
		time.Sleep(pause)
		out <- v + 1
	}
	close(out)
}

var mu sync.Mutex

func locks(wg *sync.WaitGroup) {
	defer wg.Done()
	for range rounds {
		mu.Lock()
		time.Sleep(pause)
		mu.Unlock()
	}
}

func picks(a, b <-chan int, done chan<- struct{}) {
	for n := 0; n < 2; {
		select {
		case _, ok := <-a:
			if !ok {
				a, n = nil, n+1
			}
		case _, ok := <-b:
			if !ok {
				b, n = nil, n+1
			}
		}
	}
	close(done)
}

func sends(c chan<- int) {
	for i := range rounds {
		time.Sleep(pause)
		c <- i
	}
	close(c)
}

func leaks(c <-chan int) { <-c }

func main() {
	f, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	if err := trace.Start(f); err != nil {
		panic(err)
	}
	first, second, third := make(chan int), make(chan int), make(chan int)
	go passes(first, second)
	go passes(second, third)
	var wg sync.WaitGroup
	wg.Add(3)
	for range 3 {
		go locks(&wg)
	}
	a, b, done := make(chan int), make(chan int), make(chan struct{})
	go picks(a, b, done)
	go sends(a)
	go sends(b)
	never := make(chan int)
	go leaks(never)
	for i := range rounds {
		first <- i
		<-third
	}
	close(first)
	<-third
	wg.Wait()
	<-done
	trace.Stop()
	if err := f.Close(); err != nil {
		panic(err)
	}
}
