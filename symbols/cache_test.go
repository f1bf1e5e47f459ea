package symbols

// Answers kept from run to run: the same with them as without, whatever was done to the files.

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// TestMain keeps the tests away from the user's servers and caches.
func TestMain(m *testing.M) {
	os.Unsetenv("DEBUGINFOD_URLS")
	os.Exit(m.Run())
}

// resolveWith resolves in a new Resolver, closed afterwards. read says whether the module's tables had to be read.
func resolveWith(t *testing.T, o Options, file string, addrs []uint64) (out [][]trace.SymFrame, read bool) {
	t.Helper()
	r := NewResolver(o)
	if err := r.Add(trace.Module{ID: 1, Path: file}); err != nil {
		t.Fatal(err)
	}
	out = r.Resolve(1, addrs)
	m := r.locked(1)
	read = m.ready
	m.mu.Unlock()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return out, read
}

func cacheFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCache(t *testing.T) {
	for _, c := range []struct {
		name string
		file string
	}{
		{"DWARF", compile(t, "g++", "inline.cc", "-O2", "-g", "-Wl,--build-id=sha1")},
		{"symbols alone", compile(t, "g++", "inline.cc", "-O2", "-Wl,--build-id=sha1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{DebugDirs: []string{}, Cache: filepath.Join(t.TempDir(), "cache")}
			addrs := textAddrs(t, c.file, 400)
			want, _ := resolveWith(t, Options{DebugDirs: []string{}}, c.file, addrs)
			check := func(what string, ask []uint64, read bool) {
				t.Helper()
				got, didRead := resolveWith(t, o, c.file, ask)
				for i, a := range ask {
					if w := want[slices.Index(addrs, a)]; !slices.Equal(got[i], w) {
						t.Fatalf("%s: %#x: got %+v, want %+v", what, a, got[i], w)
					}
				}
				if didRead != read {
					t.Errorf("%s: the module's tables were read: %v, want %v", what, didRead, read)
				}
			}
			check("first", addrs[:200], true)
			check("again", addrs[:200], false)
			check("more", addrs, true)
			check("all", addrs, false)
			// Every address of the range that an answer was kept for has that answer.
			k := decodeCache(read(t, cacheFiles(t, o.Cache)[0]))
			var all []uint64
			for _, k := range k {
				for a := k.lo; a < min(k.hi, k.lo+300); a++ {
					all = append(all, a)
				}
			}
			full, _ := resolveWith(t, Options{DebugDirs: []string{}}, c.file, all)
			i := 0
			for _, k := range k {
				for a := k.lo; a < min(k.hi, k.lo+300); a++ {
					if !slices.Equal(full[i], k.frames) {
						t.Fatalf("%#x: kept %+v, is %+v", a, k.frames, full[i])
					}
					i++
				}
			}
			// Damage, whatever it is, only costs time.
			path := cacheFiles(t, o.Cache)[0]
			whole := read(t, path)
			for i := 0; i < len(whole); i += 1 + len(whole)/200 {
				b := bytes.Clone(whole)
				b[i] ^= 0x10
				if decodeCache(b) != nil || decodeCache(whole[:i]) != nil {
					t.Fatalf("byte %d changed, or the file cut there: taken", i)
				}
			}
			for _, b := range [][]byte{nil, []byte("rubbish"), whole[:len(whole)/2]} {
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				check("damaged", addrs, true)
				check("mended", addrs, false)
			}
			if n := cacheFiles(t, o.Cache); len(n) != 1 {
				t.Errorf("files %q", n)
			}
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCacheAndDebugFile: a debug file that is installed later is used.
func TestCacheAndDebugFile(t *testing.T) {
	full, prog, debug, id := debugPair(t)
	dir := t.TempDir()
	o := Options{DebugDirs: []string{dir}, Cache: t.TempDir()}
	mini := filepath.Join(t.TempDir(), "prog")
	run(t, "cp", full, mini)
	run(t, "strip", "--strip-debug", mini)
	_ = prog
	addr := []uint64{symbolAt(t, full, "main")}
	if got, _ := resolveWith(t, o, mini, addr); len(got[0]) == 0 || got[0][0].Line != 0 {
		t.Fatalf("without debug file: %+v", got)
	}
	path := filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug")
	mkdirFor(t, path)
	run(t, "cp", debug, path)
	if got, _ := resolveWith(t, o, mini, addr); len(got[0]) == 0 || got[0][0].Line == 0 {
		t.Fatalf("with debug file: %+v", got)
	}
}

// TestCacheShared: several writers at once, and a directory that cannot be written.
func TestCacheShared(t *testing.T) {
	file := compile(t, "g++", "inline.cc", "-O2", "-g", "-Wl,--build-id=sha1")
	addrs := textAddrs(t, file, 200)
	want, _ := resolveWith(t, Options{}, file, addrs)
	dir := t.TempDir()
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			for k := range 5 {
				r := NewResolver(Options{Cache: dir})
				if err := r.Add(trace.Module{ID: 1, Path: file}); err != nil {
					t.Error(err)
				}
				from := (n*31 + k*57) % 100
				for i, fs := range r.Resolve(1, addrs[from:from+100]) {
					if !slices.Equal(fs, want[from+i]) {
						t.Errorf("%#x: got %+v", addrs[from+i], fs)
					}
				}
				r.Close()
			}
		})
	}
	wait.Wait()
	for _, f := range cacheFiles(t, dir) {
		if decodeCache(read(t, f)) == nil {
			t.Errorf("%s is damaged or was left behind", f)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := resolveWith(t, Options{Cache: filepath.Join(dir, "file")}, file, addrs); !slices.EqualFunc(got, want, slices.Equal[[]trace.SymFrame]) {
		t.Error("other names where nothing can be kept")
	}
}

func FuzzCacheFile(f *testing.F) {
	f.Add(encodeCache([]cached{{lo: 1, hi: 5, frames: []trace.SymFrame{{Func: "f", Linkage: "_Z1fv", File: "/f", Line: 3}}}})[cacheHead:])
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append(make([]byte, cacheHead), body...)
		copy(b, encodeCache(nil)[:len(cacheMagic)])
		sum := encodeCacheSum(b)
		copy(b[len(cacheMagic):], sum[:])
		c := &cacheFile{known: decodeCache(b)}
		for _, a := range smallAddrs() {
			frames, _ := c.find(a)
			for _, fr := range frames {
				if fr.Func == "" || fr.Line < 0 {
					t.Fatalf("%+v", fr)
				}
			}
		}
	})
}

func encodeCacheSum(b []byte) (sum [4]byte) {
	binary.LittleEndian.PutUint32(sum[:], crc32.ChecksumIEEE(b[cacheHead:]))
	return sum
}
