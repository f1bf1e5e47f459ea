// Ordering by thread and time: what comes in the order in which it ended lies nearly as it should already.

package blame

import (
	"slices"

	"github.com/hbtrace/hbtrace/trace"
)

// byThread orders list by thread and, within one, by cmp; what is equal stays in its order. The result is a list of the size of
// spare, where that is large enough, and list becomes the next spare. It also returns where each thread's part lies. Linear for
// lists of which few elements are out of place.
func byThread[T any](list, spare []T, thread func(*T) trace.ThreadID, cmp func(x, y *T) int) (sorted, unused []T, of map[trace.ThreadID]span) {
	of = map[trace.ThreadID]span{}
	var counts []int
	for i := range list {
		id := int(thread(&list[i]))
		if id >= len(counts) {
			counts = append(counts, make([]int, id+1-len(counts))...)
		}
		counts[id]++
	}
	at := 0
	for id, n := range counts {
		if n > 0 {
			of[trace.ThreadID(id)] = span{at, at + n}
		}
		counts[id], at = at, at+n
	}
	sorted = slices.Grow(spare[:0], len(list))[:len(list)]
	for i := range list {
		id := thread(&list[i])
		sorted[counts[id]] = list[i]
		counts[id]++
	}
	for _, s := range of {
		settle(sorted[s.lo:s.hi], cmp)
	}
	return sorted, list[:0], of
}

// settle sorts by insertion as long as that moves little, 8 places an element.
func settle[T any](list []T, cmp func(x, y *T) int) {
	moves := 8*len(list) + 64
	for i := 1; i < len(list); i++ {
		for j := i; j > 0 && cmp(&list[j], &list[j-1]) < 0; j-- {
			list[j], list[j-1] = list[j-1], list[j]
			if moves--; moves == 0 {
				slices.SortStableFunc(list, func(x, y T) int { return cmp(&x, &y) })
				return
			}
		}
	}
}
