// Several recordings in one profile: added up, or one held against another.

package pprof

import (
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/trace"
)

// WriteMerged writes the sum of several recordings as one profile.
func WriteMerged(w io.Writer, srcs []trace.Source, o Options) error {
	all := make([]*profile.Profile, len(srcs))
	for i, src := range srcs {
		p, err := Profile(src, o)
		if err != nil {
			return err
		}
		all[i] = p
	}
	return writeSum(w, all)
}

// WriteDiff writes what src has more than base, as go tool pprof -diff_base makes it: base's samples with their values
// negated, and labelled so that percentages are of base's total.
func WriteDiff(w io.Writer, base, src trace.Source, o Options) error {
	b, err := Profile(base, o)
	if err != nil {
		return err
	}
	p, err := Profile(src, o)
	if err != nil {
		return err
	}
	b = b.Copy() // samples share their labels
	b.Scale(-1)
	b.SetLabel("pprof::base", []string{"true"})
	return writeSum(w, []*profile.Profile{b, p})
}

// writeSum adds profiles up. Those that have different sample types are added up in what all have.
func writeSum(w io.Writer, all []*profile.Profile) error {
	if err := profile.CompatibilizeSampleTypes(all); err != nil {
		return fmt.Errorf("pprof: the recordings have nothing in common that weighs: %w", err)
	}
	sum, err := profile.Merge(all)
	if err != nil {
		return fmt.Errorf("pprof: merging: %w", err)
	}
	return writeTo(w, sum)
}
