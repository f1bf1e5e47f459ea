package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// collectorConfig is what the Collector is to do: its ports for gRPC and HTTP, and the file it writes.
const collectorConfig = `
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:%d"}, http: {endpoint: "127.0.0.1:%d"}}}}
exporters: {file: {path: %q}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    profiles: {receivers: [otlp], exporters: [file]}
    metrics: {receivers: [otlp], exporters: [file]}
`

// TestStressCollector: an OpenTelemetry Collector, a process of its own that is built from its modules, gets the pushes over
// gRPC and over HTTP and writes them to a file. Added up they are what the recording says, to the nanosecond.
func TestStressCollector(t *testing.T) {
	if os.Getenv("HBTRACE_STRESS") == "" {
		t.Skip("builds an OpenTelemetry Collector (2 minutes of CPU): set HBTRACE_STRESS")
	}
	dir := t.TempDir()
	exe, config, got := filepath.Join(dir, "otelcol"), filepath.Join(dir, "config.yaml"), filepath.Join(dir, "got.json")
	build := exec.Command("go", "build", "-mod=mod", "-o", exe, ".")
	build.Dir = "testdata/otelcol"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the Collector: %v\n%s", err, out)
	}
	grpc, http := freePort(t), freePort(t)
	if err := os.WriteFile(config, fmt.Appendf(nil, collectorConfig, grpc, http, got), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, "--config=file:"+config, "--feature-gates=service.profilesSupport")
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log // one writer: os/exec writes it from one goroutine
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt) // gone already: the receive says so
		if err := <-done; err != nil {
			t.Errorf("the Collector: %v\n%s", err, log.Bytes())
		}
	})
	for _, port := range []int{grpc, http} {
		waitFor(t, "the Collector", func() bool {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	want := pushTwice(t, []string{fmt.Sprintf("otlp://127.0.0.1:%d", grpc), fmt.Sprintf("otlp+http://127.0.0.1:%d", http)}, func(n int) bool {
		return collected(t, got).pushes >= 2*n
	})
	for kind, n := range want {
		want[kind] = 2 * n // over both protocols
	}
	waitFor(t, "all pushes", func() bool { return collected(t, got).sums["cpu"] == want["cpu"] })
	r := collected(t, got)
	r.check(t, "Collector", want)
	if r.resource["service.name"] != "stock" || r.metrics["hbtrace.lock.wait.time"] != want["delay"] {
		t.Errorf("resource %q, metrics %v", r.resource, r.metrics)
	}
}

// collected adds up what the Collector's file exporter wrote: JSON, a request a line; the last line may not be whole yet.
func collected(t *testing.T, path string) *received {
	t.Helper()
	r := newReceived()
	all, _ := os.ReadFile(path) // not there yet: nothing came
	for line := range bytes.Lines(all) {
		var kind struct{ ResourceProfiles, ResourceMetrics json.RawMessage }
		if json.Unmarshal(line, &kind) != nil {
			continue
		}
		if kind.ResourceMetrics != nil {
			m, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
			if err != nil {
				t.Fatal(err)
			}
			r.addMetrics(m)
			continue
		}
		p, err := (&pprofile.JSONUnmarshaler{}).UnmarshalProfiles(line)
		if err != nil {
			t.Fatal(err)
		}
		r.profiles(p)
	}
	return r
}
