//go:build !amd64

package main

import "time"

var start = time.Now()

// cycles is the clock in nanoseconds: here batches alone are worth reading.
func cycles() uint64 { return uint64(time.Since(start)) }
