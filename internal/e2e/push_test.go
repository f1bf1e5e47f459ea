package e2e

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // as the Collector accepts it

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/pprof"
)

// received adds up what a receiver took.
type received struct {
	mu       sync.Mutex
	pushes   int
	sums     map[string]int64 // by sample type
	resource map[string]string
	metrics  map[string]int64
}

func newReceived() *received {
	return &received{sums: map[string]int64{}, resource: map[string]string{}, metrics: map[string]int64{}}
}

// profiles adds a request with profiles.
func (r *received) profiles(got pprofile.Profiles) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pushes++
	dict := got.Dictionary()
	for _, rp := range got.ResourceProfiles().All() {
		for k, v := range rp.Resource().Attributes().All() {
			r.resource[k] = v.AsString()
		}
		for _, sp := range rp.ScopeProfiles().All() {
			for _, p := range sp.Profiles().All() {
				kind := dict.StringTable().At(int(p.SampleType().TypeStrindex()))
				for _, sample := range p.Samples().All() {
					for _, v := range sample.Values().All() {
						r.sums[kind] += v
					}
				}
			}
		}
	}
}

// addMetrics adds a request with metrics.
func (r *received) addMetrics(got pmetric.Metrics) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rm := range got.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				for _, p := range m.Sum().DataPoints().All() {
					r.metrics[m.Name()] += p.IntValue()
				}
			}
		}
	}
}

// profileService is the OpenTelemetry Collector's own service, over gRPC.
type profileService struct {
	pprofileotlp.UnimplementedGRPCServer
	r *received
}

func (s *profileService) Export(_ context.Context, req pprofileotlp.ExportRequest) (pprofileotlp.ExportResponse, error) {
	s.r.profiles(req.Profiles())
	return pprofileotlp.NewExportResponse(), nil
}

type metricService struct {
	pmetricotlp.UnimplementedGRPCServer
	r *received
}

func (s *metricService) Export(_ context.Context, req pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	s.r.addMetrics(req.Metrics())
	return pmetricotlp.NewExportResponse(), nil
}

func listenOTLP(t *testing.T, r *received) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pprofileotlp.RegisterGRPCServer(s, &profileService{r: r})
	pmetricotlp.RegisterGRPCServer(s, &metricService{r: r})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return "otlp://" + l.Addr().String()
}

// pyroscope is Pyroscope's push service as its API module defines it.
type pyroscope struct {
	pushv1connect.UnimplementedPusherServiceHandler
	r *received
}

func (s pyroscope) Push(_ context.Context, req *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.pushes++
	for _, series := range req.Msg.Series {
		for _, l := range series.Labels {
			s.r.resource[l.Name] = l.Value
		}
		for _, sample := range series.Samples {
			p, err := profile.ParseData(sample.RawProfile)
			if err != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, err)
			}
			addUp(s.r.sums, p)
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func listenPyroscope(t *testing.T, r *received) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(pushv1connect.NewPusherServiceHandler(pyroscope{r: r}))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return "pyroscope://" + s.Listener.Addr().String()
}

func addUp(sums map[string]int64, p *profile.Profile) {
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sums[p.SampleType[i].Type] += v
		}
	}
}

// closed is a recording without the intervals that have not ended: a push counts them when they end.
type closed struct{ trace.Source }

func (s closed) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(func(each func(*trace.Event) error) error {
		return trace.Events(s.Source, func(e *trace.Event) error {
			if e.Flags&trace.FlagOpen != 0 {
				return nil
			}
			return each(e)
		})
	}, f)
}

// waitFor polls until a condition holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// What receivers got, added up over several pushes, is what a dump of the whole window says, to the nanosecond.
func TestPush(t *testing.T) {
	otel, pyro := newReceived(), newReceived()
	want := pushTwice(t, []string{listenOTLP(t, otel), listenPyroscope(t, pyro)}, func(n int) bool {
		for _, r := range []*received{otel, pyro} {
			r.mu.Lock()
			arrived := r.pushes >= n
			r.mu.Unlock()
			if !arrived {
				return false
			}
		}
		return true
	})
	otel.check(t, "OTLP", want)
	pyro.check(t, "Pyroscope", want)
	if otel.resource["service.name"] != "stock" || otel.resource["process.pid"] == "" || pyro.resource["service_name"] != "stock" {
		t.Errorf("resources %q and %q", otel.resource, pyro.resource)
	}
	if got := otel.metrics["hbtrace.lock.wait.time"]; got != want["delay"] {
		t.Errorf("metric of waits for locks: %d ns, the profile has %d", got, want["delay"])
	}
}

// check compares sums by sample type with those of the recording.
func (r *received) check(t *testing.T, name string, want map[string]int64) {
	t.Helper()
	for _, kind := range []string{"cpu", "blocked", "delay", "contentions", "alloc_space"} {
		if r.sums[kind] != want[kind] {
			t.Errorf("%s: %s %d, the recording has %d", name, kind, r.sums[kind], want[kind])
		}
		if want[kind] == 0 {
			t.Errorf("the recording has no %s", kind)
		}
	}
}

// pushTwice records a program that works twice, pushes to each URL by a process of its own, and gives the sums of the whole
// recording by sample type. arrived tells whether every receiver has had n pushes.
func pushTwice(t *testing.T, urls []string, arrived func(n int) bool) (want map[string]int64) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	done := filepath.Join(dir, "done")
	s := &flightSession{startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{testprog.BuildFile(t, "testdata/push.c"), done}}, "--keep", "64M"), dir}
	waitFor(t, "a session", func() bool {
		out, _ := s.hbtrace(t, "ps")
		return len(out) > 0 && !strings.Contains(out, "no flight recorder")
	})
	var pushers []*exec.Cmd
	for _, url := range urls {
		cmd := exec.Command(testprog.Hbtrace(t), "push", "--to", url, "--every", "1s", "--service", "stock")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pushers = append(pushers, cmd)
	}
	for i, next := range []string{".go", ""} {
		path := done + "." + strconv.Itoa(i+1)
		waitFor(t, path, func() bool { _, err := os.Stat(path); return err == nil })
		waitFor(t, "a push", func() bool { return arrived(i + 1) })
		if err := os.WriteFile(done+next, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pushers {
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("hbtrace push: %v", err)
		}
	}
	src := s.dump(t, "all.hbt")
	p, err := pprof.Profile(closed{src}, pprof.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.finish(t)
	want = map[string]int64{}
	addUp(want, p)
	return want
}
