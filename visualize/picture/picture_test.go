package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const ms = 1_000_000

// server is a recording that has every state: an event loop, workers that parse and append to a journal under a
// lock, a flusher that holds it while it calls fsync. jobs is how many the workers do, workers how many there are.
func server(workers, jobs int) *tracetest.Builder {
	b := tracetest.New()
	m := b.Meta()
	m.Command = []string{"./server", "--threads", fmt.Sprint(workers), "--listen", "127.0.0.1:7000"}
	m.Hooks[79] = trace.HookInfo{Name: "fsync", Class: "CALL", Object: "FD"}
	m.Hooks[70] = trace.HookInfo{Name: "recvmsg", Class: "CALL", Object: "FD"}
	m.Hooks[104] = trace.HookInfo{Name: "epoll_wait", Class: "CALL", Object: "FD"}
	m.Hooks[121] = trace.HookInfo{Name: "clock_nanosleep", Class: "CALL", Object: "NONE"}
	m.Hooks[125] = trace.HookInfo{Name: "waitpid", Class: "CALL", Object: "PID"}
	p := b.AddProcess(trace.Process{PID: 4100, Exe: "/srv/bin/server", Cmdline: m.Command})
	main := b.AddThread(trace.Thread{Proc: p, TID: 4100, Name: "server", Main: true})
	lock, cond, fsync, epoll := b.Hook("pthread_mutex_lock"), b.Hook("pthread_cond_wait"), b.Hook("fsync"), b.Hook("epoll_wait")
	rng := rand.New(rand.NewPCG(1, 2))
	length := trace.Ns(jobs*8) * ms
	fl := b.AddThread(trace.Thread{Proc: p, Parent: main, TID: 4101, Name: "flusher", Start: 6 * ms, End: length})
	type hold struct{ from, to trace.Ns }
	var holds []hold
	root := []string{"libc.so.6!start_thread", "flusher_main"}
	st := func(root []string, f ...string) []string { return append(append([]string{}, root...), f...) }
	for at := trace.Ns(40 * ms); at < length-80*ms; {
		end := at + trace.Ns(20+rng.IntN(40))*ms
		b.Call(fl, at+ms, end-ms, fsync, 9, 0, st(root, "journal::Journal::flush(bool)")...)
		b.Sample(fl, end-ms/4, ms/2, st(root, "journal::Journal::flush(bool)", "crc32c")...)
		b.AddJoined(trace.Event{Kind: trace.KindRelease, Hook: b.Hook("pthread_mutex_unlock"), Thread: fl, Time: end, Object: 0x7f0010, Stack: b.Stack(st(root, "journal::Journal::flush(bool)")...)})
		holds = append(holds, hold{at, end})
		next := end + trace.Ns(60+rng.IntN(60))*ms
		b.Wait(fl, end+ms/10, next-ms/10, cond, 0x7f0100, main, st(root, "wait_for_work")...)
		at = next
	}
	for w := range workers {
		t := b.AddThread(trace.Thread{Proc: p, Parent: main, TID: 4110 + w, Name: fmt.Sprintf("worker-%d", w+1), Start: trace.Ns(5+w) * ms})
		root := []string{"libc.so.6!start_thread", "worker_main", "handle"}
		at := trace.Ns(8+w) * ms
		for j := range jobs {
			if at > length-20*ms {
				break
			}
			if j%5 == 4 {
				b.Call(t, at, at+2*ms, b.Hook("recvmsg"), 7, 100, st(root, "read_request")...)
				at += 2*ms + ms/10
			}
			n := 2 + rng.IntN(4)
			for i := range n {
				leaf := [][]string{{"parse_request", "scan_header"}, {"parse_request|scan_body"}, {"cache::Index<std::string, cache::Entry>::find(std::string const&)", "libc.so.6!memcmp"}, {"libz.so.1!deflate", "libz.so.1!longest_match"}}[(j/3+i+w)%4]
				b.Sample(t, at+ms, ms, st(root, leaf...)...)
				at += ms
			}
			for _, h := range holds {
				if at >= h.from && at < h.to-ms {
					e := trace.Event{Kind: trace.KindWait, Hook: lock, Thread: t, Start: at, Time: h.to + trace.Ns(20_000*(w+1)), Object: 0x7f0010, Owner: fl, Releaser: fl, Release: h.to,
						Flags: trace.FlagCertain, Stack: b.Stack(st(root, "journal::Journal::append(std::string const&)", "std::mutex::lock()")...)}
					b.AddJoined(e)
					at = e.Time
				}
			}
			at += trace.Ns(rng.IntN(3*ms)) + ms/5
		}
	}
	for at := trace.Ns(0); at < length-30*ms; at += 26 * ms {
		b.Call(main, at, at+24*ms, epoll, 4, 1, "main", "event_loop")
		b.Sample(main, at+26*ms, 2*ms, "main", "event_loop", "accept_connection")
	}
	m.EndNs = length
	b.Stats().Lost = 0
	return b
}

func forks() *tracetest.Builder {
	b := server(2, 60)
	for i := range 3 {
		p := b.AddProcess(trace.Process{PID: 5000 + i, Exe: "/usr/bin/gzip", Cmdline: []string{"gzip", "-9", fmt.Sprintf("log.%d", i)}})
		t := b.AddThread(trace.Thread{Proc: p, TID: 5000 + i, Name: "gzip", Main: true, Start: trace.Ns(20+i*100) * ms, End: trace.Ns(110+i*100) * ms})
		for k := range 40 {
			b.Sample(t, trace.Ns(22+i*100+k*2)*ms, 2*ms, "gzip!main", "gzip!treat_file", "gzip!zip", "gzip!deflate", "gzip!longest_match")
		}
		b.Call(t, trace.Ns(103+i*100)*ms, trace.Ns(108+i*100)*ms, b.Hook("clock_nanosleep"), 0, 0, "gzip!main", "gzip!pause")
		b.Call(1, trace.Ns(105+i*100)*ms, trace.Ns(109+i*100)*ms, b.Hook("waitpid"), 0, 0, "main", "reap")
	}
	return b
}

func timelineOf(t testing.TB, src trace.Source, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Timeline(&b, src, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func flameOf(t testing.TB, src trace.Source, o FlameOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := Flame(&b, src, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wellFormed parses a picture, and finds no script, no reference to elsewhere and no number that is none.
func wellFormed(t testing.TB, picture string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(picture))
	elements := 0
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		elements++
		if e.Name.Local == "script" || e.Name.Local == "foreignObject" || e.Name.Local == "image" {
			t.Errorf("the picture has a <%s>", e.Name.Local)
		}
		for _, a := range e.Attr {
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || strings.Contains(a.Value, "e+") {
				t.Fatalf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
			}
			if (a.Name.Local == "width" || a.Name.Local == "height") && strings.HasPrefix(a.Value, "-") {
				t.Fatalf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
			}
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
				t.Errorf("<%s> has %s", e.Name.Local, a.Name.Local)
			}
		}
	}
	if elements < 4 {
		t.Errorf("only %d elements", elements)
	}
	if len(picture) >= 2_000_000 {
		t.Errorf("the picture has %d bytes", len(picture))
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run go test -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (%d bytes, want %d): run go test -update and look at the picture", path, len(got), len(want))
	}
}

func TestGolden(t *testing.T) {
	src := server(2, 30).Source()
	for name, picture := range map[string]string{
		"timeline.svg":         timelineOf(t, src, Options{Width: 900}),
		"timeline-window.svg":  timelineOf(t, src, Options{Width: 900, From: 50 * ms, To: 120 * ms, MaxThreads: 3}),
		"flame-cpu.svg":        flameOf(t, src, FlameOptions{Width: 900}),
		"flame-blocked.svg":    flameOf(t, src, FlameOptions{Width: 900, Value: "blocked"}),
		"timeline-forks.svg":   timelineOf(t, forks().Source(), Options{Width: 900}),
		"timeline-nothing.svg": timelineOf(t, tracetest.New().Source(), Options{}),
	} {
		wellFormed(t, picture)
		golden(t, name, picture)
	}
}

func TestErrors(t *testing.T) {
	src := server(1, 10).Source()
	if err := Flame(io.Discard, src, FlameOptions{Value: "heat"}); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Errorf("unknown value: %v, want the list of values", err)
	}
	for name, err := range map[string]error{
		"timeline, full disk": Timeline(full{}, src, Options{}), "flame, full disk": Flame(full{}, src, FlameOptions{}),
		"timeline, bad file": Timeline(io.Discard, failing{src}, Options{}), "flame, bad file": Flame(io.Discard, failing{src}, FlameOptions{}),
	} {
		if !errors.Is(err, errDisk) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errDisk = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errDisk }

type failing struct{ trace.Source }

func (x failing) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(x.each, f)
}

func (failing) each(func(*trace.Event) error) error { return errDisk }
