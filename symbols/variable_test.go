package symbols

import (
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

func TestVariables(t *testing.T) {
	full := compile(t, "g++", "variables.cc", "-O1", "-g", "-pthread", "-Wl,--build-id=sha1")
	lock, shards := symbolAt(t, full, "_ZN5cache4lockE"), symbolAt(t, full, "_ZN5cacheL6shardsE")
	inner, code, mine := symbolAt(t, full, "_ZZ4mainE5inner"), symbolAt(t, full, "main"), symbolAt(t, full, "mine")
	want := map[uint64]trace.Variable{
		lock: {Name: "cache::lock"}, lock + 39: {Name: "cache::lock", Off: 39},
		shards + 48 + 8: {Name: "cache::shards", Off: 56}, inner: {Name: "main::inner"},
	}
	// code is no variable, a thread-local one's value is no address, and nothing lies where nothing is
	ask := []uint64{lock, lock + 39, shards + 56, inner, code, mine, 0, 1 << 40, ^uint64(0)}
	check := func(t *testing.T, r *Resolver, want map[uint64]trace.Variable) {
		t.Helper()
		got := r.Variables(1, ask)
		for _, a := range ask {
			if got[a] != want[a] {
				t.Errorf("%#x: got %+v, want %+v", a, got[a], want[a])
			}
		}
	}
	t.Run("own table", func(t *testing.T) { check(t, open(t, Options{}, full), want) })
	t.Run("stripped", func(t *testing.T) {
		bare := filepath.Join(t.TempDir(), "prog")
		run(t, "objcopy", "--strip-all", full, bare)
		check(t, open(t, Options{}, bare), nil)
	})
	t.Run("separate debug file", func(t *testing.T) {
		dir := t.TempDir()
		bare, id := filepath.Join(dir, "prog"), fileID(t, full)
		debug := filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug")
		mkdirFor(t, debug)
		run(t, "objcopy", "--strip-all", full, bare)
		run(t, "objcopy", "--only-keep-debug", full, debug)
		check(t, open(t, Options{DebugDirs: []string{dir}}, bare), want)
	})
	t.Run("unknown module", func(t *testing.T) {
		r := NewResolver(Options{})
		check(t, r, nil)
		r.Close()
		check(t, r, nil)
	})
}
