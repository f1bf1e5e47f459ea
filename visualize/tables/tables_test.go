package tables

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/hbtrace/hbtrace/internal/duckdbtest"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// write exports recordings into a fresh directory and returns statements that make a view of each table.
func write(t *testing.T, srcs ...trace.Source) (dir string, views []string) {
	t.Helper()
	dir = t.TempDir()
	for _, src := range srcs {
		if err := Write(dir, src); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range Names {
		views = append(views, "create view "+n+" as select * from read_parquet('"+filepath.Join(dir, n, "*.parquet")+"')")
	}
	return dir, views
}

// ask returns the rows of one query over exported recordings.
func ask(t *testing.T, views []string, query string) [][]string {
	t.Helper()
	answers := duckdbtest.Query(t, append(slices.Clone(views), query)...)
	return answers[len(answers)-1]
}

func reported(t *testing.T, src trace.Source, view report.View, into any) {
	t.Helper()
	var out bytes.Buffer
	if err := report.Write(&out, src, view, report.Options{JSON: true, Top: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
}

func number(ns int64) string { return strconv.FormatInt(ns, 10) }

// sources are recordings with one of everything.
func sources() map[string]trace.Source {
	return map[string]trace.Source{"demo": synthetic.Demo(), "long": synthetic.New(20_000, 8)}
}

// SQL over the tables and the report are two answers to one question.
func TestEqualReport(t *testing.T) {
	for name, src := range sources() {
		t.Run(name, func(t *testing.T) {
			_, views := write(t, src)
			var cpu struct {
				Functions []struct {
					Function     string
					SelfNs       int64 `json:"self_ns"`
					CumulativeNs int64 `json:"cumulative_ns"`
				}
			}
			reported(t, src, report.ViewCPU, &cpu)
			self, cum := map[string]int64{}, map[string]int64{}
			for _, f := range cpu.Functions {
				self[f.Function] += f.SelfNs
				cum[f.Function] += f.CumulativeNs
			}
			rows := ask(t, views, `select f.name, sum(p.cpu_ns) from profile p join stacks s using (recording, stack)
				join functions f on f.recording = s.recording and f.function = s.leaf where p.cpu_ns <> 0 group by 1`)
			compare(t, "self time", rows, self)
			rows = ask(t, views, `select f.name, sum(p.cpu_ns) from profile p join
				(select recording, stack, unnest(list_distinct(case when len(functions) = 0 then [leaf] else functions end)) as function from stacks) s
				using (recording, stack) join functions f using (recording, function)
				where p.cpu_ns <> 0 and f.name not like '[% frames omitted]' group by 1`)
			compare(t, "cumulative time", rows, cum)

			var blocked struct {
				Places []struct {
					Function, Call string
					TotalNs        int64 `json:"total_ns"`
					Count          int64
				}
			}
			reported(t, src, report.ViewBlocked, &blocked)
			ns, count := map[string]int64{}, map[string]int64{}
			for _, b := range blocked.Places {
				ns[b.Function+" "+b.Call] += b.TotalNs
				count[b.Function+" "+b.Call] += b.Count
			}
			rows = ask(t, views, `select s.place || ' ' || w.call, sum(w.ns) from waits w join stacks s using (recording, stack) group by 1`)
			compare(t, "blocked time", rows, ns)
			rows = ask(t, views, `select s.place || ' ' || w.call, count(*) from waits w join stacks s using (recording, stack) group by 1`)
			compare(t, "number of waits", rows, count)

			var locks struct {
				Edges []struct {
					Object  string
					Count   int64
					TotalNs int64 `json:"total_ns"`
					Waiter  struct{ Thread int64 }
				}
				Chains []struct {
					TotalNs int64 `json:"total_ns"`
				}
			}
			reported(t, src, report.ViewLocks, &locks)
			edges := map[string]int64{}
			for _, e := range locks.Edges {
				edges[e.Object+" "+number(e.Waiter.Thread)+" "+number(e.Count)] += e.TotalNs
			}
			rows = ask(t, views, `select object_name || ' ' || waiter || ' ' || count, sum(total_ns) from edges group by 1`)
			compare(t, "edges", rows, edges)
			chains := map[string]int64{}
			for i, c := range locks.Chains {
				chains[number(int64(i+1))] = c.TotalNs
			}
			rows = ask(t, views, `select chain, total_ns from chains`)
			compare(t, "chains", rows, chains)
		})
	}
}

// compare holds rows of a name and a number against what the report says.
func compare(t *testing.T, what string, rows [][]string, want map[string]int64) {
	t.Helper()
	got := map[string]int64{}
	for _, r := range rows {
		n, err := strconv.ParseInt(r[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		got[r[0]] = n
	}
	if len(want) == 0 {
		t.Fatalf("%s: the report has none", what)
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s of %q: tables %d, report %d", what, name, got[name], n)
		}
	}
	for name, n := range got {
		if _, ok := want[name]; !ok && n != 0 {
			t.Errorf("%s of %q: tables %d, report none", what, name, n)
		}
	}
}

// Each recording's files lie next to those of others; the same recording's are replaced.
func TestDataSet(t *testing.T) {
	demo, long := synthetic.Demo(), synthetic.New(5_000, 2)
	dir, views := write(t, demo, long, demo)
	if ID(demo) == ID(long) {
		t.Fatal("two recordings have one id")
	}
	for _, n := range Names {
		files, err := os.ReadDir(filepath.Join(dir, n))
		if err != nil || len(files) != 2 {
			t.Errorf("%s: %d files, want 2 (%v)", n, len(files), err)
		}
	}
	rows := ask(t, views, `select count(*), count(distinct recording) from recordings`)
	if want := []string{"2", "2"}; !slices.Equal(rows[0], want) {
		t.Errorf("recordings: %q, want %q", rows[0], want)
	}
	rows = ask(t, views, `select count(*) from events where recording = '`+ID(long)+`'`)
	if rows[0][0] != "5000" {
		t.Errorf("%s events of the long recording, want 5000", rows[0][0])
	}
	rows = ask(t, views, `select count(*) from (select ts, lag(ts) over (partition by recording order by file_row_number) as before
		from (select * from read_parquet('`+filepath.Join(dir, "events", ID(long)+".parquet")+`', file_row_number = true))) where before > ts`)
	if rows[0][0] != "0" {
		t.Errorf("%s events of one row group are not in order", rows[0][0])
	}
}

// Every id that a row refers to exists.
func TestReferences(t *testing.T) {
	for name, src := range sources() {
		t.Run(name, func(t *testing.T) {
			_, views := write(t, src)
			queries := []string{
				`select stack from events where stack <> 0 and (recording, stack) not in (select (recording, stack) from stacks)`,
				`select stack from waits where stack <> 0 and (recording, stack) not in (select (recording, stack) from stacks)`,
				`select stack from profile where (recording, stack) not in (select (recording, stack) from stacks)`,
				`select leaf from stacks where leaf <> 0 and (recording, leaf) not in (select (recording, function) from functions)`,
				`select f from (select recording, unnest(frames) as f from stacks) where (recording, f) not in (select (recording, frame) from frames)`,
				`select function from frames where (recording, function) not in (select (recording, function) from functions)`,
				`select releaser_stack from edges where releaser_stack <> 0 and (recording, releaser_stack) not in (select (recording, stack) from stacks)`,
				`select end_stack from chains where end_stack <> 0 and (recording, end_stack) not in (select (recording, stack) from stacks)`,
				`select thread from waits where (recording, thread) not in (select (recording, thread) from threads)`,
			}
			for i, rows := range duckdbtest.Query(t, append(slices.Clone(views), queries...)...)[len(views):] {
				if len(rows) > 0 {
					t.Errorf("%d rows refer to nothing: %s", len(rows), queries[i])
				}
			}
		})
	}
}

// A directory that cannot be written is an error, and leaves nothing half-written.
func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "recordings"), nil, 0o600); err != nil { // where a directory is wanted
		t.Fatal(err)
	}
	if err := Write(dir, synthetic.Demo()); err == nil {
		t.Fatal("no error")
	}
	for _, n := range Names {
		files, _ := os.ReadDir(filepath.Join(dir, n)) // what is no directory has none
		if len(files) > 0 {
			t.Errorf("%s was left behind in %s", files[0].Name(), n)
		}
	}
}
