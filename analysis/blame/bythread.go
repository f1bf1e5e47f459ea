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
	// A thread's number may be anything that a file says: threads are counted by the order in which they come.
	place := map[trace.ThreadID]int{}
	var ids []trace.ThreadID
	var counts []int
	var last trace.ThreadID
	at, found := 0, false
	of = map[trace.ThreadID]span{}
	placeOf := func(id trace.ThreadID) int {
		if found && id == last { // most elements are of the thread of the one before
			return at
		}
		n, ok := place[id]
		if !ok {
			n = len(ids)
			place[id], ids, counts = n, append(ids, id), append(counts, 0)
		}
		last, at, found = id, n, true
		return n
	}
	for i := range list {
		counts[placeOf(thread(&list[i]))]++
	}
	from := 0
	for _, id := range slices.Sorted(slices.Values(ids)) {
		n := place[id]
		of[id] = span{from, from + counts[n]}
		counts[n], from = from, from+counts[n]
	}
	sorted = slices.Grow(spare[:0], len(list))[:len(list)]
	for i := range list {
		n := placeOf(thread(&list[i]))
		sorted[counts[n]] = list[i]
		counts[n]++
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
