package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/duckdbtest"
	"github.com/hbtrace/hbtrace/internal/synthetic"
)

// sql runs hbtrace sql with a PATH on which duckdb is found or not.
func sql(t *testing.T, path string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.Command(hbtrace(t), append([]string{"sql"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+path)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func TestSQL(t *testing.T) {
	path := duckdbtest.Command(t) + string(filepath.ListSeparator) + os.Getenv("PATH")
	file := filepath.Join(t.TempDir(), "demo.hbt")
	if err := saveSource(file, synthetic.Demo()); err != nil {
		t.Fatal(err)
	}
	tables := filepath.Join(t.TempDir(), "tables")
	if out, err := exec.Command(hbtrace(t), "export", file, "--parquet", tables).CombinedOutput(); err != nil {
		t.Fatalf("export: %v: %s", err, out)
	}
	const query = "select program, count(*) from recordings join threads using (recording) group by 1"
	for _, from := range []string{file, tables} {
		if out, err := sql(t, path, from, query); err != nil || out != "demo|5\n" {
			t.Errorf("of %s: %q, %v", from, out, err)
		}
	}
	if out, err := sql(t, path, "--json", file, "select count(*) as n from processes"); err != nil || out != `[{"n":"2"}]`+"\n" {
		t.Errorf("as JSON: %q, %v", out, err)
	}
	for _, c := range []struct{ from, query, want string }{
		{file, "select nonsense", "did not accept the query"},
		{t.TempDir(), "select 1", "has no table events"},
		{filepath.Join(t.TempDir(), "none.hbt"), "select 1", "no such file"},
	} {
		out, err := sql(t, path, c.from, c.query)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s, %q: %q, %v", c.from, c.query, out, err)
		}
	}
	if out, err := sql(t, t.TempDir(), file, query); err == nil || !strings.Contains(out, "duckdb is not installed") {
		t.Errorf("without duckdb: %q, %v", out, err)
	}
}
