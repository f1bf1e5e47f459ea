// Command load is what bench/go measures: one of four workloads, bare, or under the Go runtime's own CPU profile or execution trace.
//
//	load http|pool|sort|gc none|cpu|trace FILE
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"sync"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: load http|pool|sort|gc none|cpu|trace FILE")
		os.Exit(2)
	}
	f, err := os.Create(os.Args[3])
	check(err)
	switch os.Args[2] {
	case "cpu":
		check(pprof.StartCPUProfile(f))
		defer pprof.StopCPUProfile()
	case "trace":
		check(trace.Start(f))
		defer trace.Stop()
	}
	map[string]func(){"http": serve, "pool": pool, "sort": sorts, "gc": garbage}[os.Args[1]]()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// serve: 8 clients, 6,000 requests on loopback in all.
func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := make([]int, 500)
		for i := range n {
			n[i] = rand.IntN(1000)
		}
		slices.Sort(n)
		fmt.Fprintln(w, n[250])
	}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			for range 750 {
				r, err := c.Get("http://" + l.Addr().String())
				check(err)
				_, err = io.Copy(io.Discard, r.Body)
				check(err)
				r.Body.Close()
			}
		})
	}
	wg.Wait()
}

// pool: 16 workers, 600,000 jobs through a channel without a buffer.
func pool() {
	jobs := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range jobs {
			}
		})
	}
	for i := range 600_000 {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
}

func sorts() {
	for range 6 {
		n := make([]int, 1_000_000)
		for i := range n {
			n[i] = rand.Int()
		}
		slices.Sort(n)
	}
}

type tree struct{ left, right *tree }

func grow(depth int) *tree {
	if depth == 0 {
		return &tree{}
	}
	return &tree{grow(depth - 1), grow(depth - 1)}
}

func garbage() {
	for range 24 {
		if grow(17) == nil {
			return
		}
	}
}
