package page

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/page/sources"
)

// serve shows src until the test ends.
func serve(t testing.TB, src trace.Source) *Server {
	t.Helper()
	m := read(t, src)
	s, err := Listen(m, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return s
}

func TestWhoMayAsk(t *testing.T) {
	s := serve(t, synthetic.Demo())
	_, port, _ := net.SplitHostPort(s.ln.Addr().String())
	base := strings.TrimSuffix(s.URL(), s.token+"/")
	tests := []struct {
		name   string
		method string
		url    string
		host   string
		head   map[string]string
		want   int
	}{
		{"the page", "GET", s.URL(), "", nil, 200},
		{"by the name localhost", "GET", s.URL() + "about", "localhost:" + port, nil, 200},
		{"without the token", "GET", base, "", nil, 403},
		{"with a part of it", "GET", base + s.token[:31] + "/about", "", nil, 403},
		{"with another", "GET", base + strings.Repeat("0", 32) + "/about", "", nil, 403},
		{"by a name that points here", "GET", s.URL() + "about", "evil.example:" + port, nil, 421},
		{"by a name without a port", "GET", s.URL() + "about", "127.0.0.1", nil, 421},
		{"from another site", "GET", s.URL() + "about", "", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		{"by a link on another site", "GET", s.URL(), "", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200},
		{"to change something", "POST", s.URL() + "about", "", nil, 405},
		{"for a file outside", "GET", s.URL() + "../../etc/passwd", "", nil, 404},
		{"for nothing", "GET", s.URL() + "nothing", "", nil, 404},
		{"for nonsense", "GET", s.URL() + "lanes?from=-1&to=x", "", nil, 400},
		{"for an empty selection", "GET", s.URL() + "sums?from=5&to=5", "", nil, 400},
		{"for threads that are none", "GET", s.URL() + "sums?from=0&to=5&threads=1,evil", "", nil, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequest(tt.method, tt.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.host != "" {
				r.Host = tt.host
			}
			for k, v := range tt.head {
				r.Header.Set(k, v)
			}
			a, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(a.Body)
			a.Body.Close()
			if a.StatusCode != tt.want {
				t.Errorf("status %d, want %d: %.200s", a.StatusCode, tt.want, body)
			}
			csp := a.Header.Get("Content-Security-Policy")
			for _, part := range []string{"default-src 'none'", "script-src 'sha256-", "frame-ancestors 'none'"} {
				if !strings.Contains(csp, part) {
					t.Errorf("Content-Security-Policy %q lacks %s", csp, part)
				}
			}
			if strings.Contains(csp, "unsafe") || a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers that let others in: %v", a.Header)
			}
			if tt.want != 200 && strings.Contains(string(body), s.token) {
				t.Error("a refusal tells the token")
			}
		})
	}
}

// TestBrowserGoesAway: a question whose asker is gone ends, and the next one is answered.
func TestBrowserGoesAway(t *testing.T) {
	s := serve(t, synthetic.New(30_000, 4))
	for range 20 {
		c, err := net.Dial("tcp", s.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET /"+s.token+"/sums?from=0&to=1000000000&edges=1 HTTP/1.1\r\nHost: "+s.ln.Addr().String()+"\r\n\r\n")
		c.Close()
	}
	a, err := http.Get(s.URL() + "about")
	if err != nil || a.StatusCode != 200 {
		t.Fatalf("after browsers that went away: %v %v", a, err)
	}
	a.Body.Close()
}

func TestReadingCanBeEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m := New(synthetic.New(500_000, 4))
	if err := m.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("reading with an ended context gives %v", err)
	}
}

func TestPerfettoIsServedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(file, []byte("a trace"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ListenPerfetto(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	ui, url, _ := strings.Cut(s.URL(), "?url=")
	if ui != "https://ui.perfetto.dev/#!/" {
		t.Errorf("it opens %s", ui)
	}
	if a, err := http.Get("http://" + s.ln.Addr().String() + "/trace"); err != nil || a.StatusCode != 404 {
		t.Errorf("by a guessed name: %v %v", a, err)
	}
	a, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(a.Body)
	a.Body.Close()
	if string(body) != "a trace" || a.Header.Get("Access-Control-Allow-Origin") != "https://ui.perfetto.dev" {
		t.Errorf("answer %q with %v", body, a.Header)
	}
	if err := <-done; err != nil {
		t.Errorf("after it was fetched: %v", err)
	}
}

// TestScriptIsFresh: zpage.js says which sources it was built of.
func TestScriptIsFresh(t *testing.T) {
	hash, err := sources.Hash(os.DirFS("web"))
	if err != nil {
		t.Fatal(err)
	}
	if banner := sources.Banner(hash); !strings.HasPrefix(string(script), banner) {
		t.Errorf("zpage.js was not built of web/: run go generate ./visualize/page (needs node and npm) and commit it\nit begins  %.140s\nwant       %s", script, banner)
	}
}

// TestTextIsOnlySetAsText: nothing in the page's sources parses a string as markup or as a script.
func TestTextIsOnlySetAsText(t *testing.T) {
	bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|setHTML|srcdoc|javascript:`)
	err := fs.WalkDir(os.DirFS("web"), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".ts") {
			return err
		}
		body, err := os.ReadFile(filepath.Join("web", path))
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(body), "\n") {
			if bad.MatchString(line) {
				t.Errorf("web/%s:%d: %s", path, i+1, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if i := regexp.MustCompile(`</script|<!--`).FindIndex(script); i != nil {
		t.Error("zpage.js would end the element that it stands in, at byte " + strconv.Itoa(i[0]))
	}
}
