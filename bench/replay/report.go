package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/hbtrace/hbtrace/bench/replay/measure"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// key is what results are medians over repetitions of.
type key struct {
	workload, tracer, level, mapping string
	active                           int
}

func (r Result) key() key { return key{r.Workload, r.Tracer, r.Level, r.Mapping, r.Active} }

// medians joins repetitions, in the order of their first.
func medians(all []Result) []Result {
	groups := map[key][]Result{}
	var order []key
	for _, r := range all {
		if groups[r.key()] == nil {
			order = append(order, r.key())
		}
		groups[r.key()] = append(groups[r.key()], r)
	}
	var out []Result
	for _, k := range order {
		g := groups[k]
		r := g[0]
		r.LatestMB = median(g, func(r Result) float64 { return r.LatestMB })
		r.LatestShare = median(g, func(r Result) float64 { return r.LatestShare })
		r.PayloadMB = median(g, func(r Result) float64 { return r.PayloadMB })
		r.Loss = median(g, func(r Result) float64 { return r.Loss })
		r.Fragments = int(median(g, func(r Result) float64 { return float64(r.Fragments) }))
		r.Dropped = int(median(g, func(r Result) float64 { return float64(r.Dropped) }))
		r.Late = int(median(g, func(r Result) float64 { return float64(r.Late) }))
		r.Pace = median(g, func(r Result) float64 { return r.Pace })
		r.GeoNs = median(g, func(r Result) float64 { return r.GeoNs })
		r.P50Ns = median(g, func(r Result) float64 { return r.P50Ns })
		r.P99Ns = median(g, func(r Result) float64 { return r.P99Ns })
		r.P999Ns = median(g, func(r Result) float64 { return r.P999Ns })
		out = append(out, r)
	}
	return out
}

func median(g []Result, f func(Result) float64) float64 {
	var v []float64
	for _, r := range g {
		v = append(v, f(r))
	}
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

const columnHeads = "latest MB\t% of buffer\tpayload MB\tloss %\tfragments\tdropped\tlate\tgeo ns\tp50 ns\tp99 ns\tp99.9 ns\tpace\n"

func row(w io.Writer, r Result) {
	fmt.Fprintf(w, "%.2f\t%.1f\t%.2f\t%.2f\t%d\t%d\t%d\t%.1f\t%.1f\t%.0f\t%.0f\t%.2f\n", r.LatestMB, 100*r.LatestShare, r.PayloadMB,
		100*r.Loss, r.Fragments, r.Dropped, r.Late, r.GeoNs, r.P50Ns, r.P99Ns, r.P999Ns, r.Pace)
}

// printTable is the paper's table 2: every workload, then geometric means, then the paper's own.
func printTable(out io.Writer, all []Result) {
	results := medians(all)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "workload\tlevel\tthreads\ttracer\t"+columnHeads)
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t", r.Workload, r.Level, r.Threads, r.Tracer)
		row(w, r)
	}
	fmt.Fprint(w, "\ngeometric mean\tlevel\tworkloads\ttracer\t"+columnHeads)
	for _, g := range means(results) {
		fmt.Fprintf(w, "\t%s\t%d\t%s\t", g.Level, g.Threads, g.Tracer)
		row(w, g)
	}
	fmt.Fprint(w, "\nworst workload for the latest fragment\t\t\n")
	for _, g := range means(results) {
		worst := slices.MinFunc(of(results, g), func(a, b Result) int { return int(1e6 * (a.LatestShare - b.LatestShare)) })
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%.2f\t%.1f\n", g.Level, worst.Workload, g.Tracer, worst.LatestMB, 100*worst.LatestShare)
	}
	fmt.Fprint(w, "\nthe paper, thread level, on its phone\t\t\n")
	for _, p := range workload.Means {
		fmt.Fprintf(w, "\tthread\t20\t%s\t%.2f\t%.1f\t\t%.0f\t%.0f\t\t\t%.0f\n", p.Tracer, p.LatestMB, 100*p.LatestMB/12, 100*p.Loss, p.Fragments, p.Ns)
	}
}

// of are the results that a mean is made of.
func of(results []Result, g Result) (some []Result) {
	for _, r := range results {
		if r.Tracer == g.Tracer && r.Level == g.Level && r.Mapping == g.Mapping && r.Active == g.Active {
			some = append(some, r)
		}
	}
	return some
}

// means are geometric means over workloads, whose number is in Threads. Loss is an arithmetic mean, as most are
// nought.
func means(results []Result) (out []Result) {
	for i, first := range results {
		if slices.ContainsFunc(results[:i], func(r Result) bool { return len(of([]Result{r}, first)) > 0 }) {
			continue
		}
		g := of(results, first)
		geo := func(floor float64, f func(Result) float64) float64 {
			var v []float64
			for _, r := range g {
				v = append(v, f(r))
			}
			return measure.GeoMean(v, floor)
		}
		m := Result{Tracer: first.Tracer, Level: first.Level, Mapping: first.Mapping, Active: first.Active, Threads: len(g)}
		m.LatestMB = geo(1e-3, func(r Result) float64 { return r.LatestMB })
		m.LatestShare = geo(1e-4, func(r Result) float64 { return r.LatestShare })
		m.PayloadMB = geo(1e-3, func(r Result) float64 { return r.PayloadMB })
		m.Fragments = int(geo(1, func(r Result) float64 { return float64(r.Fragments) }) + 0.5)
		m.GeoNs = geo(0.1, func(r Result) float64 { return r.GeoNs })
		m.P50Ns = geo(0.1, func(r Result) float64 { return r.P50Ns })
		m.P99Ns = geo(0.1, func(r Result) float64 { return r.P99Ns })
		m.P999Ns = geo(0.1, func(r Result) float64 { return r.P999Ns })
		m.Pace = geo(1e-3, func(r Result) float64 { return r.Pace })
		for _, r := range g {
			m.Loss += r.Loss / float64(len(g))
			m.Dropped += r.Dropped
			m.Late += r.Late
		}
		out = append(out, m)
	}
	return out
}

// printFigure10 is the paper's figure 10: the latest fragment over the workloads (least, geometric mean, most)
// against the number of active blocks.
func printFigure10(out io.Writer, all []Result) {
	results := medians(all)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "active blocks\tmapping\tlevel\tleast MB\tmean MB\tmost MB\t% of buffer\tloss %\tfragments\tgeo ns\tp99 ns\n")
	for _, m := range means(results) {
		g := of(results, m)
		least := slices.MinFunc(g, func(a, b Result) int { return int(1e6 * (a.LatestMB - b.LatestMB)) })
		most := slices.MaxFunc(g, func(a, b Result) int { return int(1e6 * (a.LatestMB - b.LatestMB)) })
		fmt.Fprintf(w, "%d × %d\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.1f\t%.2f\t%d\t%.1f\t%.0f\n", m.Active, workload.Cores, m.Mapping, m.Level,
			least.LatestMB, m.LatestMB, most.LatestMB, 100*m.LatestShare, 100*m.Loss, m.Fragments, m.GeoNs, m.P99Ns)
	}
}

func halfFilled(r Result) string {
	if r.Shrunk == nil {
		return ""
	}
	return strconv.FormatFloat(r.Shrunk.HalfFilled, 'g', 6, 64)
}

// printShrunk says what halving and restoring cost.
func printShrunk(out io.Writer, all []Result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "\nworkload\ttracer\tfilled right after halving\twritten meanwhile\tlost by restoring\twritten meanwhile\twritten since\tlatest fragment of what fits\n")
	for _, r := range all {
		if s := r.Shrunk; s != nil {
			fmt.Fprintf(w, "%s\t%s\t%.1f %%\t%d KB\t%d KB\t%d KB\t%d KB\t%.1f %%\n", r.Workload, r.Tracer, 100*s.HalfFilled, s.WrittenHalving>>10, s.LostByRestoring>>10,
				s.WrittenMeantime>>10, s.WrittenSince>>10, 100*s.OfWhatFits)
		}
	}
}

// save writes every run, not the medians.
func save(prefix string, results []Result) error {
	j, err := json.MarshalIndent(results, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(prefix+".json", append(j, '\n'), 0o644); err != nil {
		return err
	}
	f, err := os.Create(prefix + ".csv")
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	w.Write([]string{"workload", "known", "tracer", "level", "mapping", "active", "stuck", "half_filled", "speed", "threads", "identities", "pace",
		"latest_mb", "latest_share", "payload_mb", "loss", "fragments", "dropped", "newest_missing", "late", "written", "kept",
		"geo_ns", "p50_ns", "p99_ns", "p999_ns"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, r := range results {
		w.Write([]string{r.Workload, strconv.FormatBool(r.Known), r.Tracer, r.Level, r.Mapping, strconv.Itoa(r.Active), num(r.Stuck),
			halfFilled(r), num(r.Speed), strconv.Itoa(r.Threads), strconv.Itoa(r.Identities), num(r.Pace),
			num(r.LatestMB), num(r.LatestShare), num(r.PayloadMB), num(r.Loss), strconv.Itoa(r.Fragments), strconv.Itoa(r.Dropped),
			strconv.Itoa(r.NewestMissing), strconv.Itoa(r.Late), strconv.Itoa(r.Written), strconv.Itoa(r.Kept), num(r.GeoNs), num(r.P50Ns), num(r.P99Ns), num(r.P999Ns)})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return f.Close()
}
