package main

import (
	"fmt"
	"time"

	"github.com/hbtrace/hbtrace/tracefile"
)

// recorded is the CPU time of a recording's program, by the kernel's account when it was reaped.
func recorded(path string) (time.Duration, error) {
	r, err := tracefile.Open(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if cpu := r.Stats().TargetCPU; cpu > 0 {
		return cpu, nil
	}
	return 0, fmt.Errorf("%s has no CPU time of its program", path)
}
