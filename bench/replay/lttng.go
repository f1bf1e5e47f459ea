package main

import (
	"errors"

	"github.com/hbtrace/hbtrace/bench/replay/tracer"
)

// errUnavailable: a tracer needs something that is not installed.
var errUnavailable = errors.New("not installed")

func allTracers() []tracer.Info { return tracer.All }

func (r Replay) do(watch stopwatch) (Result, error) { return r.Run(watch) }
