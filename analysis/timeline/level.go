// How many CPUs were busy.

package timeline

// Level bounds the CPU time of consecutive buckets, each of which has room for most. Where in the time before a sample
// its CPU time was used is not known: what is too much for a bucket was used in earlier ones, and what those have no
// room for in later ones. The sum stays the same while there is room; the first bucket has what there is none for. It
// changes sums in place.
func Level(sums []float64, most float64) {
	over := 0.0
	for i := len(sums) - 1; i >= 0; i-- {
		sums[i] += over
		over = max(0, sums[i]-most)
		sums[i] -= over
	}
	for i := 0; i < len(sums) && over > 0; i++ {
		room := min(over, max(0, most-sums[i]))
		sums[i] += room
		over -= room
	}
	if len(sums) > 0 {
		sums[0] += over
	}
}
