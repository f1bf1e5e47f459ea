package tables

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/hbtrace/hbtrace/internal/duckdbtest"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

const (
	fleetHosts = 100
	oddHost    = 37
	second     = trace.Ns(1e9)
	milli      = trace.Ns(1e6)
)

// fleet is a recording of one second on each of 100 hosts. Half of them run the new build, in which render takes 300 ms of
// CPU instead of 100, and refill holds cache_lock for 2 ms instead of 1. On host 37 it holds it for 40.
func fleet() []trace.Source {
	var srcs []trace.Source
	for host := range fleetHosts {
		b := tracetest.New()
		m := b.Meta()
		m.Host, m.Command = fmt.Sprintf("host-%02d", host), []string{"/srv/shop"}
		m.StartNs = second
		m.EndNs = 2 * second
		build, hold, cpu := "b1", milli, 100*milli
		m.Started = time.Date(2026, 5, 1, 12, 0, host, 0, time.UTC)
		if host%2 == 1 {
			build, hold, cpu = "b2", 2*milli, 300*milli
			m.Started = m.Started.AddDate(0, 0, 1)
		}
		if host == oddHost {
			hold = 40 * milli
		}
		proc := b.AddProcess(trace.Process{PID: 100, Exe: "/srv/shop", Start: second})
		b.AddModule(trace.Module{Path: "/srv/shop", BuildID: build, Lo: 0x400000, Hi: 0x500000})
		worker := b.AddThread(trace.Thread{Proc: proc, TID: 101, Name: "worker", Start: second, CPU: int64(cpu)})
		refill := b.AddThread(trace.Thread{Proc: proc, TID: 102, Name: "refill", Start: second, CPU: 0})
		lock, unlock := b.Hook("pthread_mutex_lock"), b.Hook("pthread_mutex_unlock")
		b.Sample(worker, second+cpu, int64(cpu), "main", "serve", "render")
		for i := range trace.Ns(10) {
			at := second + 350*milli + i*50*milli
			b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: unlock, Thread: refill, Time: at + hold, Object: 0x1000, Debt: int64(hold),
				Stack: b.Stack("main", "refill_loop", "refill")})
			b.AddJoined(trace.Event{Kind: trace.KindWait, Hook: lock, Thread: worker, Start: at, Time: at + hold, Object: 0x1000,
				Owner: refill, Releaser: refill, Release: at + hold, Flags: trace.FlagCertain, Count: 1, Stack: b.Stack("main", "serve", "look_up")})
		}
		srcs = append(srcs, b.Source())
	}
	return srcs
}

const page = "../../docs/reference/tables.md"

// documented are the queries of the page, by the name in their first line.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```sql\n-- ([a-z0-9-]+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = m[2]
	}
	return out
}

// The queries of the documentation find what was planted on 100 hosts.
func TestFleet(t *testing.T) {
	_, views := write(t, fleet()...)
	queries := documented(t)
	names := slices.Sorted(maps.Keys(queries))
	var all []string
	for _, n := range names {
		all = append(all, queries[n])
	}
	answers := map[string][][]string{}
	for i, rows := range duckdbtest.Query(t, append(slices.Clone(views), all...)...)[len(views):] {
		answers[names[i]] = rows
	}
	// 50 hosts of 10 ms, 49 of 20, one of 400.
	const waited = 50*0.010 + 49*0.020 + 0.400
	want := []struct {
		query string
		row   []any // string: equal; float64: within a millionth
	}{
		{"fleet-locks", []any{"shop", nil, waited, "100"}},
		{"holders", []any{nil, "refill", "refill", waited}},
		{"odd-host", []any{"host-37", 0.4, nil}},
		{"builds-cpu", []any{"render", 0.2}},
		{"builds-waits", []any{"look_up", "pthread_mutex_lock", (49*0.020+0.400)/50 - 0.010}},
		{"p99", []any{"host-37", "look_up", 40.0, "10"}},
	}
	if len(want) != len(queries) {
		t.Errorf("%d queries in %s, %d are tested", len(queries), page, len(want))
	}
	for _, w := range want {
		rows := answers[w.query]
		if len(rows) == 0 || len(rows[0]) != len(w.row) {
			t.Errorf("%s: %q", w.query, rows)
			continue
		}
		for i, x := range w.row {
			switch x := x.(type) {
			case string:
				if rows[0][i] != x {
					t.Errorf("%s: column %d is %q, want %q: %q", w.query, i, rows[0][i], x, rows[0])
				}
			case float64:
				if n, err := strconv.ParseFloat(rows[0][i], 64); err != nil || n < x-1e-6 || n > x+1e-6 {
					t.Errorf("%s: column %d is %q, want %g: %q", w.query, i, rows[0][i], x, rows[0])
				}
			}
		}
	}
}

// The documentation lists every column of every table, and no others.
func TestDocumentedColumns(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := write(t, fleet()[0])
	for _, table := range Names {
		m := regexp.MustCompile("(?m)^\\| `" + table + "` \\|[^|]*\\|([^|]*)\\|$").FindStringSubmatch(string(text))
		if m == nil {
			t.Errorf("%s is not documented", table)
			continue
		}
		var documented []string
		for _, c := range strings.Split(m[1], ",") {
			documented = append(documented, strings.TrimSpace(c))
		}
		found, err := filepath.Glob(filepath.Join(dir, table, "*.parquet"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %q, %v", table, found, err)
		}
		f, err := os.Open(found[0])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		p, err := parquet.OpenFile(f, st.Size())
		if err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, field := range p.Schema().Fields() {
			if field.Name() != "recording" {
				columns = append(columns, field.Name())
			}
		}
		if !reflect.DeepEqual(columns, documented) {
			t.Errorf("%s has the columns\n%q, documented are\n%q", table, columns, documented)
		}
	}
}
