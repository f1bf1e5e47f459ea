// Package workload makes the twenty workloads of the BTrace paper's evaluation from what the paper prints
// about them: Wang et al., "Enabling Efficient Mobile Tracing with BTrace", ASPLOS '25. paper.go holds the
// figures, read off the published tables and plots; derive.go turns them into rates; entries.go gives sizes.
package workload

// Cores is how many cores the paper's phone has: 0–3 little, 4–9 middle, 10 and 11 big (its figure 4).
const Cores = 12

// BufferBytes is the buffer that the paper gives to every tracer (its section 5).
const BufferBytes = 12 << 20

// Seconds is how long the paper's traces are.
const Seconds = 30

// paper is one column of the evaluation.
type paper struct {
	name string

	// Table 2.
	btraceMB, bbqMB, ftraceMB, lttngMB, vtraceMB float64 // latest fragment
	ftraceLoss                                   float64 // share of the range from the oldest to the newest entry
	btraceFragments                              float64
	btraceNs, bbqNs, ftraceNs, lttngNs, vtraceNs float64 // recording latency, geometric mean

	// Figure 6, medians over cores: distinct threads that write to one core's buffer.
	threadsPerSecond, threadsTotal float64

	// Figure 4, thousands of entries a second and core; nil for the fourteen workloads that it does not show.
	// Read from the plot's vector coordinates, so exact to ±0.03.
	rates []float64
}

var columns = []paper{
	{"Bench-1", 10.8, 11.6, 3.4, 2.8, 0.1, 0.81, 47, 54, 111, 62, 263, 278, 14, 86, nil},
	{"Browser", 10.6, 11.6, 7.1, 7.3, 0.8, 0.41, 86, 52, 138, 63, 251, 296, 39, 257, nil},
	{"Camera", 10.6, 11.7, 5.2, 6.5, 0.3, 0.83, 87, 52, 495, 64, 246, 283, 40, 139, nil},
	{"Bench-2", 11.2, 11.7, 5.6, 5.4, 0.3, 0.92, 53, 53, 119, 62, 260, 264, 17, 92, nil},
	{"Desktop", 11.0, 11.6, 3.3, 3.2, 0.5, 0.76, 34, 55, 95, 62, 266, 238, 9, 58,
		[]float64{3.15, 2.29, 2.21, 2.29, 0.32, 0.30, 0.22, 0.32, 0.17, 0.30, 0.02, 0.02}},
	{"Install", 10.7, 11.6, 4.3, 3.7, 0.1, 0.84, 49, 56, 102, 62, 266, 229, 12, 46, nil},
	{"Video-1", 11.0, 11.6, 3.3, 0.1, 0.2, 0.84, 60, 56, 148, 63, 260, 235, 24, 93,
		[]float64{7.70, 5.85, 7.06, 9.02, 1.43, 1.77, 1.13, 2.21, 0.84, 3.74, 0.10, 0.07}},
	{"eShop-1", 10.8, 11.5, 6.8, 6.7, 0.8, 0.58, 101, 51, 510, 63, 250, 360, 45, 267,
		[]float64{9.47, 5.75, 5.21, 4.97, 6.54, 4.40, 6.00, 4.50, 5.02, 4.38, 2.58, 1.97}},
	{"Bench-3", 10.6, 11.6, 4.1, 4.2, 0.3, 0.90, 49, 52, 115, 61, 251, 264, 14, 62, nil},
	{"eShop-2", 10.6, 11.5, 5.8, 0.3, 0.2, 0.51, 73, 52, 894, 64, 227, 359, 58, 406, nil},
	{"LockScr", 10.8, 11.6, 3.8, 3.7, 0.7, 0.78, 35, 56, 88, 61, 271, 207, 5, 30,
		[]float64{1.60, 1.60, 1.52, 1.60, 0.07, 0.05, 0.03, 0.05, 0.03, 0.05, 0.02, 0.01}},
	{"StartApp", 10.9, 11.6, 3.2, 3.1, 0.02, 0.83, 83, 53, 485, 63, 251, 290, 15, 282, nil},
	{"eShop-3", 10.8, 11.5, 7.6, 7.9, 0.4, 0.43, 69, 52, 828, 64, 236, 355, 62, 312, nil},
	{"Video-2", 10.6, 11.5, 7.2, 1.8, 0.2, 0.38, 111, 52, 738, 64, 238, 308, 54, 302,
		[]float64{16.99, 10.94, 10.55, 10.70, 10.35, 6.81, 9.52, 7.25, 7.35, 7.97, 4.82, 4.25}},
	{"News", 10.4, 11.5, 6.5, 0.7, 0.2, 0.56, 87, 53, 794, 65, 239, 332, 58, 391, nil},
	{"Video-3", 11.0, 11.6, 4.9, 5.2, 0.2, 0.91, 68, 54, 447, 64, 250, 321, 52, 183, nil},
	{"Game", 11.1, 11.6, 7.5, 6.8, 0.6, 0.15, 73, 53, 520, 66, 250, 300, 19, 55, nil},
	{"IM", 10.6, 11.6, 7.5, 7.4, 0.4, 0.57, 70, 52, 822, 65, 232, 341, 57, 366,
		[]float64{13.62, 8.46, 8.14, 8.19, 12.02, 9.74, 11.36, 10.08, 9.81, 10.38, 5.90, 5.46}},
	{"Blog-1", 10.2, 11.6, 7.6, 0.4, 0.1, 0.49, 86, 51, 763, 63, 243, 297, 50, 327, nil},
	{"Blog-2", 10.9, 11.5, 8.0, 1.2, 0.4, 0.49, 54, 52, 776, 64, 228, 359, 115, 802, nil},
}

// Published is what the paper's table 2 says of a tracer, over all workloads (its column "G.M.").
type Published struct {
	Tracer    string
	LatestMB  float64
	Loss      float64
	Fragments float64
	Ns        float64
}

// Means are the paper's geometric means, measured by its authors on their phone.
var Means = []Published{
	{"BTrace", 10.8, 0.00, 65, 53},
	{"BBQ", 11.6, 0.00, 34, 324},
	{"ftrace", 5.4, 0.60, 1e4, 63},
	{"LTTng", 2.5, 0.60, 1e4, 249},
	{"VTrace", 0.3, 0.90, 6e4, 292},
}
