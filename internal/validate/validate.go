// Package validate holds recordings against the invariants that every recording satisfies, whoever recorded it and
// however it ended ([tracetest.Validate]), and their outputs against each other (package agree). Every trace that any
// test makes goes through it.
package validate

import (
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// Source returns nil when the recording keeps every invariant, else an error that names each that it breaks.
func Source(src trace.Source) error { return tracetest.Validate(src) }
