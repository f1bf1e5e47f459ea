package workload

// entries.go: how long entries are.
//
// The paper gives no sizes. Its figure 2 gives the volume of each atrace category (MB per core and minute, as
// printed lines, which are all about as long), so a category's share of the volume is its share of the
// entries. What an entry of a category takes in binary form follows from the kernel's event formats
// (/sys/kernel/tracing/events/*/*/format): common fields 8 bytes, sched_switch 56 more, sched_waking 28, an
// interrupt 8 to 24, cpu_idle and cpu_frequency 8, a binder transaction 28, a print its text (begin and end
// marks of gfx, view and so on: 20 to 100 characters). The custom energy and thermal points "provide detailed
// reasons": taken as text of 32 to 112 bytes, an assumption.
//
// Check: the three workloads whose big cores never fill their share of ftrace's buffer tell the total volume by
// ftrace's loss, and so the mean entry, ftrace's header included: 54 bytes (Video-1), 105 (LockScr), 100
// (Desktop). The mix below has a mean of 48 without a header. Entries are rounded up to 8 bytes, and hold at
// least the 16 that the logic stamp takes.
var mix = []struct {
	category string
	mb       float64 // figure 2, from the plot's vector coordinates
	sizes    []int   // equally likely, bytes
}{
	{"energy, thermal, …", 55.3, []int{32, 48, 64, 80, 96, 112}},
	{"irq", 50.4, []int{16, 16, 24, 32}},
	{"sched", 49.1, []int{64, 40}},
	{"gfx", 14.6, []int{16, 56, 72, 88}},
	{"idle", 11.1, []int{16}},
	{"binder_driver", 9.9, []int{40, 24}},
	{"freq", 2.1, []int{16}},
	{"dalvik, view, input, hal, pagecache, …", 7.9, []int{40, 64, 88, 104}},
}

// MinEntry and MaxEntry bound what Size gives.
const (
	MinEntry = 16
	MaxEntry = 112
)

// sizes is the mix as a table to draw from: entry i of 256 has that many bytes.
var sizes = buildSizes()

// Size is how many bytes the entry with that logic stamp has. It depends on nothing else, so that whoever
// reads a snapshot knows what is missing from it, and so that a replay in another language agrees.
func Size(stamp uint64) int { return int(sizes[stamp*0x9e3779b97f4a7c15>>56]) }

// SizeTable is what Size draws from: the top byte of stamp × 0x9e3779b97f4a7c15 is the index.
func SizeTable() [256]uint8 { return sizes }

// MeanEntry is the mean size in bytes.
func MeanEntry() float64 {
	sum := 0.0
	for _, n := range sizes {
		sum += float64(n)
	}
	return sum / float64(len(sizes))
}

func buildSizes() (table [256]uint8) {
	total := 0.0
	for _, m := range mix {
		total += m.mb
	}
	at, acc := 0, 0.0
	for _, m := range mix {
		from := at
		acc += m.mb
		for ; at < len(table) && float64(at) < acc/total*float64(len(table)); at++ {
			table[at] = uint8(m.sizes[(at-from)%len(m.sizes)])
		}
	}
	return table
}
