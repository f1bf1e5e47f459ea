// Command attach measures what hbtrace attach does to programs that run, and whether it records what hbtrace run does.
// Run it from the repository, as root:
//
//	go run ./bench/attach [-cycles 100] [-for 50ms] [-record 5s] [SUBJECT…]
//	go run ./bench/attach -compare [-rounds 3]
//
// Cycles: redis, nginx, memcached, PostgreSQL, node, python, Java, a C++ program of 200 threads that allocates and loads, and one of 10,000
// sleeping threads are attached to and left again and again while clients ask them, or while they check themselves. For each: how long
// threads were stopped, errors of clients, EINTR and wrong results of the program, requests' p99 bare, in the cycles and in one longer recording, and
// descriptors and resident memory before and after. What is not installed is left out, with the reason.
//
// -compare: a workload is recorded by run, and by attach after its first second, in turn. Shares of CPU time by function, of blocked time by call,
// of waits by what ended them, and of whole stacks are compared: the overlap of two distributions is the sum of the smaller shares. The overlap of two
// recordings by run says how much of a difference is chance.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/hbtrace/hbtrace/sampler"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == sampler.Command { // the recorder starts this binary as its sampler
		os.Exit(sampler.Main(os.Args[2:]))
	}
	c := config{}
	flag.IntVar(&c.cycles, "cycles", 100, "attaches and detaches of each subject")
	flag.DurationVar(&c.each, "for", 50*time.Millisecond, "how long each is")
	flag.DurationVar(&c.record, "record", 5*time.Second, "length of the longer recording, and of the bare time")
	compare := flag.Bool("compare", false, "compare recordings by attach with recordings by run")
	rounds := flag.Int("rounds", 3, "with -compare: rounds")
	flag.Parse()
	dir, err := os.MkdirTemp("", "hbtrace-bench-attach-")
	if err == nil {
		c.dir = dir
		os.Chmod(dir, 0o755) // servers run as other users
		if *compare {
			err = comparison(dir, *rounds)
		} else {
			err = c.all(flag.Args())
		}
		os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "attach: %v\n", err)
		os.Exit(1)
	}
}
