package pprof

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// slow is a recording that spends n ms in a function that Demo has, and one that it has not.
func slow(n int) trace.Source {
	b := tracetest.New()
	th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1, Exe: "/usr/bin/app"}), TID: 1})
	for i := range n {
		b.Sample(th, trace.Ns(i+1)*1e6, 1e6, "main", "compute")
	}
	b.Sample(th, 1e9, 5e6, "main", "fresh")
	return b.Source()
}

// flat is CPU time by leaf function.
func flat(t *testing.T, p *profile.Profile) map[string]int64 {
	t.Helper()
	at := -1
	for i, s := range p.SampleType {
		if s.Type == "cpu" {
			at = i
		}
	}
	if at < 0 {
		t.Fatalf("no CPU time in %v", p.SampleType)
	}
	out := map[string]int64{}
	for _, s := range p.Sample {
		out[s.Location[0].Line[0].Function.Name] += s.Value[at]
	}
	return out
}

func TestDiff(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDiff(&b, slow(10), slow(25), Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	base := 0
	for _, s := range p.Sample {
		if s.DiffBaseSample() {
			base++
		}
	}
	if got := flat(t, p); got["compute"] != 15e6 || got["fresh"] != 0 || base != 2 {
		t.Errorf("%v, %d samples of the base", got, base)
	}
}

// TestMerge: with another recording, and with itself by the tool that users have.
func TestMerge(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMerged(&b, []trace.Source{slow(10), slow(25)}, Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got := flat(t, p); got["compute"] != 35e6 || got["fresh"] != 10e6 {
		t.Errorf("%v", got)
	}
	tool := pprofTool(t)
	dir := t.TempDir()
	one, two, sum := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "sum")
	for path, n := range map[string]int{one: 10, two: 25} {
		data, _ := write(t, slow(n), Options{})
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(tool, "-symbolize=none", "-proto", "-output", sum, one, two)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(sum)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = profile.ParseData(data); err != nil {
		t.Fatal(err)
	}
	if got := flat(t, p); got["compute"] != 35e6 || got["fresh"] != 10e6 {
		t.Errorf("by go tool pprof: %v", got)
	}
}

// pprofTool is where go tool pprof is: go tool looks it up, and may build it, each time it is called.
func pprofTool(t *testing.T) string {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("go tool pprof: go is not installed")
	}
	where, err := exec.Command(goTool, "tool", "-n", "pprof").Output()
	if err != nil {
		t.Skipf("go tool pprof: this Go does not have it: %v", err)
	}
	return strings.TrimSpace(string(where))
}

// TestEveryView fetches all that go tool pprof -http shows, of each thing that weighs.
func TestEveryView(t *testing.T) {
	tool := pprofTool(t)
	data, p := write(t, synthetic.Demo(), Options{})
	file := filepath.Join(t.TempDir(), "demo.pb.gz")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command(tool, "-symbolize=none", "-no_browser", "-http="+address, file)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + "/ui" + path) // what is not below /ui is sent to its start page, whatever it is
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(body)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if status, _ := get("/top"); status != 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not answer: %s", said.String())
		}
	}
	_, err = exec.LookPath("dot")
	if err != nil {
		t.Log("the graph needs graphviz's dot: not checked")
	}
	for _, s := range p.SampleType {
		// a function that has some of each
		of := map[string]string{
			"samples": "main", "cpu": "main", "contentions": "pthread_mutex_lock", "delay": "pthread_mutex_lock",
			"held_contentions": "give|release|parse", "held_delay": "give|release|parse", "wall": "read", "blocked": "read",
		}[s.Type]
		if of == "" {
			of = "malloc"
		}
		for path, want := range map[string]string{
			"/": of, "/top": of, "/flamegraph": of, "/graph": "<svg", "/peek?f=.": of, "/source?f=.": "", "/download": "",
		} {
			if path == "/graph" && err != nil {
				continue
			}
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			status, body := get(path + sep + "si=" + s.Type)
			if status != http.StatusOK || body == "" || !regexp.MustCompile(want).MatchString(body) {
				t.Errorf("%s of %s: %d, or no %q\n%.300s", path, s.Type, status, want, body)
			}
		}
	}
	if status, body := get("/nosuchview"); status != http.StatusNotFound {
		t.Errorf("a view that is not there: %d %.100s", status, body)
	}
	if _, body := get("/flamegraph?si=cpu"); !strings.Contains(body, "compute") {
		t.Error("no compute in the flame graph")
	}
	if _, body := get("/top?si=cpu&tf=" + "worker"); !strings.Contains(body, "parse") {
		t.Errorf("-tagfocus on a thread shows nothing of it")
	}
}
