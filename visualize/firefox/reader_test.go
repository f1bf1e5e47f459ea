package firefox

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// TestOwnReader: the Firefox Profiler's own code reads what is written, brings it from the version that it has up to its
// present one, and has the CPU time of each function of each thread, and each wait and call, afterwards.
func TestOwnReader(t *testing.T) {
	source := os.Getenv("HBTRACE_FIREFOX_PROFILER")
	if source == "" {
		t.Skip("needs the source of the Firefox Profiler: set HBTRACE_FIREFOX_PROFILER to a checkout of github.com/firefox-devtools/profiler")
	}
	source, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s to build and run the profiler's reader", tool)
		}
	}
	dir := t.TempDir()
	run := func(name string, args ...string) []byte {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			stderr := ""
			if e, ok := err.(*exec.ExitError); ok {
				stderr = string(e.Stderr)
			}
			t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, stderr)
		}
		return out
	}
	for _, f := range []string{"package.json", "none.js", "read.ts"} {
		data, err := os.ReadFile(filepath.Join("testdata", "reader", f))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run("npm", "install", "--no-audit", "--no-fund", "--silent")
	config, err := json.Marshal(map[string]any{"compilerOptions": map[string]any{"paths": map[string]any{"firefox-profiler/*": []string{source + "/src/*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tsconfig.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "node_modules", ".bin", "esbuild"), "read.ts", "--bundle", "--platform=node", "--format=cjs", "--outfile=read.js",
		"--log-level=error", "--external:*.wasm", "--tsconfig=tsconfig.json", "--loader:.svg=dataurl", "--loader:.css=empty",
		"--alias:devtools-reps=./none.js", "--alias:json-slabs=./none.js", "--alias:@streamparser/json=./none.js")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the profiler's reader: %v\n%s", err, out)
	}
	for name, src := range map[string]trace.Source{"demo": synthetic.Demo(), "long": synthetic.New(20_000, 5)} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Create(filepath.Join(dir, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := Write(file, src); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			var got struct {
				Version       int
				Self, Markers map[string]float64
			}
			if err := json.Unmarshal(run("node", "read.js", file.Name()), &got); err != nil {
				t.Fatal(err)
			}
			if got.Version < 62 {
				t.Errorf("version %d", got.Version)
			}
			tab, err := weigh.Collect(src, weigh.Options{Values: []weigh.Value{weigh.CPU}})
			if err != nil {
				t.Fatal(err)
			}
			sum, intervals, marked := 0.0, 0, 0.0
			for _, ms := range got.Self {
				sum += ms
			}
			for _, n := range got.Markers {
				marked += n
			}
			if err := trace.Events(src, func(e *trace.Event) error {
				if e.Kind == trace.KindWait || e.Kind == trace.KindCall {
					intervals++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := float64(tab.Total[weigh.CPU]) / 1e6; math.Abs(sum-want) > 0.001*want || want == 0 {
				t.Errorf("%v ms in all, want %v", sum, want)
			}
			if marked < float64(intervals) || intervals == 0 {
				t.Errorf("%v markers, want the %d waits and calls", marked, intervals)
			}
			if name == "demo" {
				for _, key := range []string{"worker parse\uFFFDname", "app inner", "app compute"} {
					if got.Self[key] <= 0 {
						t.Errorf("nothing of %q: %s", key, fmt.Sprint(got.Self))
					}
				}
			}
		})
	}
}
