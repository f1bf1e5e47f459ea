package e2e

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// TestLockNames: a lock that has no name of its own is called the same in two recordings of a program, by a function that uses it.
func TestLockNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source string
		want   []string
	}{
		{"names.c", []string{"mutex of cache_get", "mutex of journal_add"}},
		{"names.cc", []string{"mutex of store::Cache::get"}},
		{"names.rs", []string{"futex of names::cache_get"}},
	} {
		t.Run(c.source, func(t *testing.T) {
			t.Parallel()
			exe := testprog.BuildFile(t, filepath.Join("../../bench/locks/src", c.source))
			for range 2 {
				s := start(t, testprog.Command{Args: []string{exe}})
				if r := s.finish(t); r.Code != 0 {
					t.Fatalf("exit %d: %s", r.Code, r.Stderr)
				}
				if got := lockNames(t, s); !slices.Equal(got, c.want) {
					t.Errorf("locks are called %q, want %q", got, c.want)
				}
			}
		})
	}
}

// lockNames are the names of a recording's locks, as the JSON has them.
func lockNames(t *testing.T, s *session) []string {
	t.Helper()
	var out bytes.Buffer
	if err := report.Write(&out, s.openTrace(t), report.ViewLocks, report.Options{JSON: true}); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Edges []struct{ Kind, Object string }
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range r.Edges {
		if e.Kind == "mutex" || e.Kind == "futex" {
			names = append(names, e.Object)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
