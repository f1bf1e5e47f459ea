// The server: the page and its data for one browser on this machine.
//
// Anybody on this machine can connect to a loopback port, and any web page in the user's browser can try to. So:
// the address holds a secret of 128 bits, without which nothing is answered; the Host header must be ours (a name that
// an attacker points at 127.0.0.1 is refused); the page may load and ask nothing but us (Content-Security-Policy); and
// no other site may embed it or read from it.

package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Server shows one [Model] on loopback.
type Server struct {
	m     *Model
	token string
	ln    net.Listener
	http  http.Server
}

// Listen opens a loopback port, a free one where port is 0. Nothing is answered before [Server.Serve].
func Listen(m *Model, port int) (*Server, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("opening a port on loopback: %w", err)
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		ln.Close()
		return nil, fmt.Errorf("making a token: %w", err)
	}
	s := &Server{m: m, token: hex.EncodeToString(secret), ln: ln}
	s.http = http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	return s, nil
}

// URL is the page's address with its token.
func (s *Server) URL() string { return "http://" + s.ln.Addr().String() + "/" + s.token + "/" }

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.http.Close() })
	defer stop()
	err := s.http.Serve(s.ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy("'self'")+"; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
	if !s.ours(r.Host) {
		http.Error(w, "hbtrace: this address is not where the page is: use the one that hbtrace view printed", http.StatusMisdirectedRequest)
		return
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "hbtrace: other sites may not ask", http.StatusForbidden)
			return
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "hbtrace: nothing here can be changed", http.StatusMethodNotAllowed)
		return
	}
	token, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		http.Error(w, "hbtrace: the address lacks its token: use the whole of what hbtrace view printed", http.StatusForbidden)
		return
	}
	if rest == "" {
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.Write(document("", nil)) // a browser that went away is no error
		return
	}
	body, kind, err := s.answer(r, rest)
	var bad *badQuestion
	switch {
	case errors.As(err, &bad):
		http.Error(w, "hbtrace: "+bad.Error(), bad.status)
	case errors.Is(err, context.Canceled):
	case err != nil:
		http.Error(w, "hbtrace: "+err.Error(), http.StatusInternalServerError)
	default:
		h.Set("Content-Type", kind)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	}
}

// ours says whether a Host header names this server.
func (s *Server) ours(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return false
	}
	_, own, _ := net.SplitHostPort(s.ln.Addr().String())
	return port == own && (name == "127.0.0.1" || name == "localhost")
}

type badQuestion struct {
	status int
	what   string
}

func (e *badQuestion) Error() string { return e.what }

const binaryType = "application/octet-stream"

// answer answers one question of the page.
func (s *Server) answer(r *http.Request, what string) ([]byte, string, error) {
	q := question{values: r.URL.Query()}
	ctx := r.Context()
	var t *table
	var err error
	switch what {
	case "about":
		body, err := json.Marshal(s.m.about())
		return body, "application/json", err
	case "places":
		site, node, frame, object := q.number("site"), q.number("node"), q.number("frame"), q.number("object")
		if q.err == nil {
			t = s.m.places(int(site), int(node), int(frame), int(object))
		}
	case "source":
		frame, first, last := q.number("frame"), q.number("first"), q.number("last")
		if q.err == nil {
			t = newTable(s.m.sourceOf(int(frame), int(first), int(last)))
		}
	case "lanes":
		sel, res := q.selection(), q.number("res")
		if q.err == nil {
			var out *rows
			if out, err = s.m.lanes(ctx, sel, max(1, res)); err == nil {
				t = out.columns(newTable(nil))
			}
		}
	case "sums":
		sel, thread, edges := q.selection(), q.number("thread") != 0, q.number("edges") != 0
		if q.err == nil {
			var out *rows
			if out, err = s.m.sums(ctx, sel, thread, edges); err == nil {
				t = out.columns(newTable(nil))
			}
		}
	case "calls":
		sel, res := q.selection(), q.number("res")
		if q.err == nil {
			t = s.m.calls(sel.threads, sel.from, sel.to, res).table()
		}
	case "chart":
		sel, cols := q.selection(), q.number("cols")
		if q.err == nil {
			t, err = s.m.chart(ctx, sel, int(max(1, min(cols, 8192))))
		}
	case "chains":
		if q.text("to") == "" {
			t = s.m.chainsTable()
			break
		}
		if sel := q.selection(); q.err == nil {
			var out *chains
			out, err = s.m.spentIn(ctx, sel)
			t = newTable(out)
		}
	case "ready":
		if sel := q.selection(); q.err == nil {
			t, err = s.m.ready(ctx, sel)
		}
	case "slowest":
		sel, turns, n := q.selection(), q.number("turns") != 0, q.number("n")
		if q.err == nil {
			t, err = s.m.slowest(ctx, sel, q.text("name"), turns, int(max(1, min(n, 10_000))))
		}
	default:
		return nil, "", &badQuestion{http.StatusNotFound, "there is no " + strconv.Quote(what)}
	}
	if err = errors.Join(q.err, err); err != nil {
		return nil, "", err
	}
	body, err := t.bytes()
	return body, binaryType, err
}

// question reads parameters; the first one that makes no sense is kept.
type question struct {
	values map[string][]string
	err    error
}

func (q *question) text(name string) string {
	if v := q.values[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// number is a whole number that is not negative; 0 where there is none.
func (q *question) number(name string) int64 {
	v := q.text(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > maxNs {
		q.err = &badQuestion{http.StatusBadRequest, fmt.Sprintf("%s is %q: give a whole number of at least 0", name, v)}
		return 0
	}
	return n
}

// selection is from, to and threads: indices with commas between them, all threads where there are none.
func (q *question) selection() selection {
	s := selection{from: q.number("from"), to: q.number("to")}
	if q.err == nil && s.to <= s.from {
		q.err = &badQuestion{http.StatusBadRequest, "the selection is empty: to must be after from"}
	}
	list := q.text("threads")
	if list == "" {
		return s
	}
	s.threads = []int{}
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			q.err = &badQuestion{http.StatusBadRequest, fmt.Sprintf("threads holds %q: give numbers with commas between them", part)}
			return s
		}
		s.threads = append(s.threads, n)
	}
	return s
}
