// Handing a trace to ui.perfetto.dev, the way Perfetto's own script does: the page fetches it from port 9001 of this
// machine, the only address that its Content-Security-Policy lets it ask. Only that site may read the answer.

package page

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// PerfettoPort is the port that ui.perfetto.dev may fetch a trace from.
const PerfettoPort = 9001

const perfettoUI = "https://ui.perfetto.dev"

// PerfettoServer serves one trace file until it was fetched.
type PerfettoServer struct {
	file, name string
	ln         net.Listener
	http       http.Server
	fetched    chan struct{}
}

// ListenPerfetto opens the port on loopback for the trace in a file.
func ListenPerfetto(file string, port int) (*PerfettoServer, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("opening port %d on loopback: %w", port, err)
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		ln.Close()
		return nil, fmt.Errorf("making a token: %w", err)
	}
	s := &PerfettoServer{file: file, name: "/" + hex.EncodeToString(secret) + ".perfetto-trace", ln: ln, fetched: make(chan struct{}, 1)}
	s.http = http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	return s, nil
}

// URL is what to open: Perfetto's page, told where the trace is.
func (s *PerfettoServer) URL() string {
	return perfettoUI + "/#!/?url=http://" + s.ln.Addr().String() + s.name
}

// Serve answers until the trace was fetched, or ctx ends.
func (s *PerfettoServer) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
			s.http.Close()
		case <-s.fetched:
			s.http.Shutdown(ctx) // lets the answer go out
		}
	}()
	if err := s.http.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (s *PerfettoServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", perfettoUI)
	h.Set("Access-Control-Allow-Private-Network", "true")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Host != s.ln.Addr().String() || r.URL.Path != s.name {
		http.Error(w, "hbtrace: there is no such trace here", http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", "GET, HEAD")
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodGet, http.MethodHead:
	default:
		http.Error(w, "hbtrace: nothing here can be changed", http.StatusMethodNotAllowed)
		return
	}
	f, err := os.Open(s.file)
	if err != nil {
		http.Error(w, "hbtrace: the trace is gone", http.StatusInternalServerError)
		return
	}
	defer f.Close()
	h.Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
	if r.Method == http.MethodGet && r.Header.Get("Range") == "" {
		select {
		case s.fetched <- struct{}{}:
		default:
		}
	}
}
