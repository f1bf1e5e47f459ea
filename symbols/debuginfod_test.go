package symbols

// debuginfod over loopback: what is asked, what is believed, and a cache that elfutils' client understands.

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

// debugServer serves files by path and counts what it is asked.
type debugServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	files map[string]string // build id -> file
}

func newDebugServer(t *testing.T, special http.HandlerFunc) *debugServer {
	s := &debugServer{files: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, req.URL.Path)
		s.mu.Unlock()
		if special != nil {
			special(w, req)
			return
		}
		id := strings.TrimSuffix(strings.TrimPrefix(req.URL.Path, "/buildid/"), "/debuginfo")
		if f, ok := s.files[id]; ok {
			http.ServeFile(w, req, f)
			return
		}
		http.NotFound(w, req)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *debugServer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// debugPair makes a stripped program and its debug file.
func debugPair(t *testing.T) (full, prog, debug, id string) {
	full = compile(t, "gcc", "plain.c", "-O2", "-g", "-Wl,--build-id=sha1")
	dir := t.TempDir()
	prog, debug = filepath.Join(dir, "prog"), filepath.Join(dir, "prog.debug")
	run(t, "objcopy", "--only-keep-debug", full, debug)
	run(t, "objcopy", "--strip-all", full, prog)
	return full, prog, debug, fileID(t, full)
}

func TestDebuginfod(t *testing.T) {
	full, prog, debug, id := debugPair(t)
	_, _, otherDebug, _ := debugPair2(t)
	addr := symbolAt(t, full, "main")
	for _, c := range []struct {
		name    string
		special http.HandlerFunc
		file    string // that the server has for the id
		env     map[string]string
		found   bool
		note    string
	}{
		{name: "has it", file: debug, found: true},
		{name: "does not have it", note: "no symbols"},
		{name: "sends another", file: otherDebug, note: "not used"},
		{name: "sends rubbish", special: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "rubbish") }, note: "not used"},
		{name: "fails", special: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, note: "500"},
		{name: "breaks off", special: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			fmt.Fprint(w, "\x7fELF")
		}, note: "unexpected EOF"},
		{name: "says nothing", special: func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }, env: map[string]string{"DEBUGINFOD_TIMEOUT": "1"}, note: "debug information of prog"},
		{name: "is slow", special: func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		}, env: map[string]string{"DEBUGINFOD_TIMEOUT": "1"}, note: "less than"},
		{name: "sends too much", file: debug, env: map[string]string{"DEBUGINFOD_MAXSIZE": "1000"}, note: "MAXSIZE"},
		{name: "is not asked", file: debug, env: map[string]string{"DEBUGINFOD_URLS": ""}, note: "no symbols"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newDebugServer(t, c.special)
			if c.file != "" {
				s.files[id] = c.file
			}
			cache := filepath.Join(t.TempDir(), "cache")
			t.Setenv("DEBUGINFOD_URLS", s.URL)
			t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			for round := range 2 {
				r := open(t, Options{DebugDirs: []string{}}, prog)
				got := one(r, addr)
				if c.found != (len(got) > 0 && got[0].Func == "main" && got[0].Line > 0) {
					t.Errorf("round %d: got %+v", round, got)
				}
				checkNotes(t, r, c.note)
			}
			want := map[bool]int{true: 1, false: 2}[c.found || c.name == "does not have it"]
			if c.name == "is not asked" {
				want = 0
			}
			if n := s.requests(); n != want {
				t.Errorf("the server was asked %d times, want %d", n, want)
			}
			left, _ := filepath.Glob(filepath.Join(cache, "*", "debuginfo.*"))
			if len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// debugPair2 is a pair of another build.
func debugPair2(t *testing.T) (full, prog, debug, id string) {
	full = compile(t, "gcc", "plain.c", "-O1", "-g", "-Wl,--build-id=sha1")
	debug = filepath.Join(t.TempDir(), "other.debug")
	run(t, "objcopy", "--only-keep-debug", full, debug)
	return full, full, debug, fileID(t, full)
}

// TestDebuginfodCache: what we fetched elfutils' client finds without a server, a miss included.
func TestDebuginfodCache(t *testing.T) {
	full, prog, debug, id := debugPair(t)
	s := newDebugServer(t, nil)
	s.files[id] = debug
	cache := t.TempDir()
	t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
	t.Setenv("DEBUGINFOD_URLS", s.URL)
	if got := one(open(t, Options{DebugDirs: []string{}}, prog), symbolAt(t, full, "main")); len(got) == 0 {
		t.Fatal("not found")
	}
	if _, err := exec.LookPath("debuginfod-find"); err != nil {
		t.Skip("needs debuginfod-find (Debian: debuginfod)")
	}
	s.Close()
	out, err := exec.Command("debuginfod-find", "debuginfo", id).CombinedOutput()
	if want := filepath.Join(cache, id, "debuginfo"); err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("debuginfod-find: %v %s, want %s", err, out, want)
	}
}

// TestDebuginfodDown: a server that cannot be reached is tried once, and downloads end when they are told to.
func TestDebuginfodDown(t *testing.T) {
	_, prog, _, _ := debugPair(t)
	_, prog2, _, _ := debugPair2(t)
	run(t, "objcopy", "--strip-all", prog2, prog2+".bare")
	s := newDebugServer(t, nil)
	s.Close()
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	t.Setenv("DEBUGINFOD_URLS", s.URL)
	r := NewResolver(Options{DebugDirs: []string{}})
	defer r.Close()
	for i, p := range []string{prog, prog2 + ".bare"} {
		if err := r.Add(trace.Module{ID: trace.ModuleID(i + 1), Path: p}); err != nil {
			t.Fatal(err)
		}
		r.Resolve(trace.ModuleID(i+1), []uint64{0x1000})
	}
	if n := strings.Count(strings.Join(r.Notes(), "\n"), "refused"); n != 1 {
		t.Errorf("notes %q", r.Notes())
	}

	stop := make(chan struct{})
	asked := make(chan struct{})
	slow := newDebugServer(t, func(_ http.ResponseWriter, req *http.Request) { close(asked); <-req.Context().Done() })
	t.Setenv("DEBUGINFOD_URLS", slow.URL)
	go func() { <-asked; close(stop) }()
	begun := time.Now()
	r2 := open(t, Options{DebugDirs: []string{}, Stop: stop}, prog)
	one(r2, 0x1000)
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("went on for %v", d)
	}
	checkNotes(t, r2, "interrupted")
}

// TestDebuginfodServer asks elfutils' own server.
func TestDebuginfodServer(t *testing.T) {
	server, err := exec.LookPath("debuginfod")
	if err != nil {
		t.Skip("needs debuginfod (Debian: debuginfod)")
	}
	full, prog, debug, _ := debugPair(t)
	port := fmt.Sprint(freePort(t))
	cmd := exec.Command(server, "-F", "-p", port, "-d", ":memory:", filepath.Dir(debug))
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	t.Setenv("DEBUGINFOD_URLS", "http://127.0.0.1:"+port)
	for begun := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir()) // it has to look first, and misses are remembered
		r := open(t, Options{DebugDirs: []string{}}, prog)
		if got := one(r, symbolAt(t, full, "main")); len(got) > 0 && got[0].Line > 0 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("not found in a minute: %q", r.Notes())
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	s := httptest.NewServer(nil)
	defer s.Close()
	var port int
	if _, err := fmt.Sscanf(s.URL[strings.LastIndexByte(s.URL, ':'):], ":%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}
