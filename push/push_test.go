package push

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/trace"
)

func TestParseTarget(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, X-Two=2")
	for _, c := range []struct {
		url, host, path string
		protocol        Protocol
		secure          bool
	}{
		{"otlp://collector", "collector:4317", "", OTLP, false},
		{"otlps://collector:1", "collector:1", "", OTLP, true},
		{"otlp+http://[::1]:4318/base/", "[::1]:4318", "/base", OTLPHTTP, false},
		{"otlp+https://c", "c:4318", "", OTLPHTTP, true},
		{"pyroscope://u:p@p", "p:4040", "", Pyroscope, false},
		{"pyroscope+https://p", "p:443", "", Pyroscope, true},
	} {
		x, err := ParseTarget(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if x.Host != c.host || x.Path != c.path || x.Protocol != c.protocol || x.Secure != c.secure {
			t.Errorf("%s: %+v", c.url, x)
		}
		if x.Protocol != Pyroscope && (x.Headers["api-key"] != "a b" || x.Headers["x-two"] != "2") {
			t.Errorf("%s: headers %q", c.url, x.Headers)
		}
	}
	if x, err := ParseTarget("pyroscope://u:p@p"); err != nil || x.Headers["authorization"] != "Basic dTpw" {
		t.Errorf("basic authentication: %+v, %v", x, err)
	}
	for _, url := range []string{"", "collector:4317", "http://collector", "otlp://", "otlp://c/path", "otlp://%zz"} {
		if x, err := ParseTarget(url); err == nil {
			t.Errorf("%q: %+v", url, x)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error has several lines: %v", url, err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", filepath.Join(t.TempDir(), "none"))
	if _, err := ParseTarget("otlps://c"); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_CERTIFICATE") {
		t.Errorf("a certificate that is not there: %v", err)
	}
}

func TestResource(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=env")
	t.Setenv("POD_NAME", "shop-1")
	m := &trace.Meta{Host: "h", Command: []string{"/srv/shop", "-v"}}
	r := Resource("", m, 0, "ab")
	for k, v := range map[string]string{
		"service.name": "env", "deployment.environment": "test", "host.name": "h", "process.executable.name": "shop",
		"k8s.pod.name": "shop-1", "process.executable.build_id.gnu": "ab",
	} {
		if r[k] != v {
			t.Errorf("%s is %q, want %q", k, r[k], v)
		}
	}
	if r := Resource("flag", m, 0, ""); r["service.name"] != "flag" {
		t.Errorf("service.name %q, want the flag's", r["service.name"])
	}
	id, uid := strings.Repeat("0a", 32), "12345678-1234-1234-1234-123456789abc"
	for _, path := range []string{
		"0::/system.slice/docker-" + id + ".scope",
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-" + id + ".scope",
		"4:cpu:/kubepods/burstable/pod" + uid + "/" + id,
	} {
		r := map[string]string{}
		container(r, []byte(path+"\n"))
		if r["container.id"] != id || strings.Contains(path, "kubepods") && r["k8s.pod.uid"] != uid {
			t.Errorf("%s: %q", path, r)
		}
	}
}

func TestSpool(t *testing.T) {
	s := newSpool(t.TempDir(), 10)
	for _, body := range []string{"aaaa", "bbbb", "cccc"} {
		if err := s.put(kindProfiles, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if s.lost != 1 || s.bytes != 8 {
		t.Errorf("%d lost, %d bytes; want the oldest lost and 8", s.lost, s.bytes)
	}
	if err := s.put(kindProfiles, make([]byte, 11)); err == nil {
		t.Error("a request larger than the spool was taken")
	}
	for _, want := range []string{"bbbb", "cccc", ""} {
		name, body, err := s.oldest()
		if err != nil || string(body) != want {
			t.Errorf("%q, %v; want %q", body, err, want)
		}
		s.drop(name)
	}
	if files, err := os.ReadDir(s.dir); err != nil || len(files) != 0 || s.bytes != 0 {
		t.Errorf("%d files, %d bytes are left (%v)", len(files), s.bytes, err)
	}
}

// queued is a pusher with requests in its spool and nothing that makes more.
func queued(t *testing.T, url string, bodies ...string) (p *Pusher, said func() string) {
	t.Helper()
	target, err := ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines []string
	p, err = New(Options{Target: target, Spool: 1 << 20, Say: func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	for _, b := range bodies {
		if err := p.spool.put(kindProfiles, []byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	return p, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(lines, "\n")
	}
}

// TestRoomWhileSending: a request that makes room for newer ones while it is sent takes none of those with it.
func TestRoomWhileSending(t *testing.T) {
	s := newSpool(t.TempDir(), 8)
	put := func(body string) {
		if err := s.put(kindProfiles, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	put("aaaa")
	sent, _, err := s.oldest()
	if err != nil {
		t.Fatal(err)
	}
	put("bbbb")
	put("cccc")
	if s.drop(sent) {
		t.Error("a request that was gone was dropped again")
	}
	if _, body, err := s.oldest(); err != nil || string(body) != "bbbb" || s.lost != 1 {
		t.Errorf("next is %q (%v), %d lost; want bbbb and 1", body, err, s.lost)
	}
}

// sendUntil sends until a condition holds.
func sendUntil(t *testing.T, p *Pusher, ok func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.sendAll(ctx) })
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Error("not within a minute")
			break
		}
	}
	stop()
	wg.Wait()
}

// A receiver that is busy gets the request again; one that refuses it does not, and the next is sent.
func TestAnswers(t *testing.T) {
	var mu sync.Mutex
	got := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(z)
		if err != nil {
			t.Error(err)
		}
		b := string(body)
		got[b]++
		switch {
		case r.URL.Path != "/v1development/profiles":
			http.Error(w, "no such path", http.StatusNotFound)
		case b == "busy" && got[b] == 1:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "later", http.StatusTooManyRequests)
		case b == "large":
			http.Error(w, "too large\nby far", http.StatusRequestEntityTooLarge)
		}
	}))
	defer s.Close()
	address := s.Listener.Addr().String()
	p, said := queued(t, "otlp+http://"+address, "busy", "large", "good")
	sendUntil(t, p, func() bool { c := p.Counts(); return c.Sent+c.Dropped == 3 })
	if c := p.Counts(); c.Sent != 2 || c.Dropped != 1 || got["busy"] != 2 || got["large"] != 1 {
		t.Errorf("%+v, %v", c, got)
	}
	if text := said(); !strings.Contains(text, "429") || !strings.Contains(text, "413") || strings.Contains(text, "\nby far") {
		t.Errorf("said %q", text)
	}
	p, said = queued(t, "otlp+http://"+address+"/wrong", "path")
	sendUntil(t, p, func() bool { return p.Counts().Dropped == 1 })
	if !strings.Contains(said(), "/wrong/v1development/profiles: 404") {
		t.Errorf("of a wrong path: %q", said())
	}
}

// A receiver that is away keeps the request in the spool and takes nothing away from it.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, scheme := range []string{"otlp://", "otlp+http://", "pyroscope://"} {
		p, said := queued(t, scheme+address, "kept")
		sendUntil(t, p, func() bool { return said() != "" })
		if c := p.Counts(); c.Sent+c.Dropped != 0 || len(p.spool.names) != 1 {
			t.Errorf("%s: %+v, %d in the spool", scheme, c, len(p.spool.names))
		}
		if !strings.Contains(said(), "connection refused") || strings.Contains(said(), "\n") {
			t.Errorf("%s: %q", scheme, said())
		}
	}
}

// TLS mistakes are one line that says what to do.
func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	p, said := queued(t, "otlp+https://"+s.Listener.Addr().String(), "secret")
	sendUntil(t, p, func() bool { return said() != "" })
	if !strings.Contains(said(), "OTEL_EXPORTER_OTLP_CERTIFICATE") {
		t.Errorf("an unknown authority: %q", said())
	}
	x, err := ParseTarget("otlp+http://" + s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := newSender(x)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var no refused
	if err := c.send(context.Background(), kindProfiles, nil); !errors.As(err, &no) {
		t.Errorf("HTTP to an HTTPS port: %v", err)
	}
}
