// Package depscheck holds the test that keeps dependencies pointing one way, along the data path.
package depscheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hbtrace/hbtrace"

// layers is the data path, first to last. A package may import packages of its own layer's folder and of
// earlier layers, never of later ones, and never of another folder of its own layer. A folder stands for all
// packages under it; the longest match counts.
var layers = [][]string{
	{"trace", "diskcache", "outfile"},   // the vocabulary; what is kept from run to run; files that a user names
	{"segment", "trace/tracetest"},      // memory shared with the target
	{"hooks", "syscallproxy"},           // what is wrapped
	{"unwind", "agent"},                 // inside the target
	{"attach"},                          // into a program that runs already
	{"concurrentring", "symbols"},       // from the target; names for addresses
	{"stacktable", "sampler", "kernel"}, // one id for a stack; signals to threads
	{"goruntime", "python"},             // Go programs; Python ones
	{"blockbuf"},                        // what is kept
	{"tracefile"},                       // what is written
	{"live", "doctor"},                  // what threads do now; what a machine allows
	{"flight", "trigger"},               // the newest history; what asks for it
	{"collector/assemble"},              // records to events
	{"collector", "exectrace"},          // all of recording; what the Go runtime recorded itself
	{"analysis/names", "analysis/feed", "analysis/stored", "analysis/nest"}, // what a recording means: names of functions,
	{"analysis/frames"},                        // of frames,
	{"analysis/spans", "analysis/weigh"},       // calls, weighted stacks,
	{"analysis/timeline"},                      // what each thread did when,
	{"analysis/blame"},                         // waits,
	{"analysis/incident"},                      // what a dump is about,
	{"analysis/edges", "analysis/detail"},      // and who ended whose
	{"visualize/number", "visualize/terminal"}, // what writers share
	{"visualize/chrome", "visualize/firefox", "visualize/folded", "visualize/page", "visualize/perfetto", "visualize/pprof", "visualize/picture", "visualize/report", "visualize/speedscope", "visualize/tables", "visualize/top", "visualize"},
	{"visualize/otlp"}, // of what pprof makes
	{"push"},           // to receivers on other machines
	{"examples", "bench"},
	{"cmd"},
}

// aside are folders that serve building and testing; nothing that is shipped imports them.
var aside = []string{"internal", "trace/tracetest"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if inside(p.ImportPath) {
			all = append(all, p)
		}
	}
	if len(all) < 3 {
		t.Fatalf("go list found %d packages of the module", len(all))
	}
	return all
}

func inside(importPath string) bool { return strings.HasPrefix(importPath, module+"/") }

// place is a package's layer and the folder that put it there; -1 when no layer names it.
func place(importPath string) (layer int, folder string) {
	layer = -1
	for dir := strings.TrimPrefix(importPath, module+"/"); dir != "."; dir = path.Dir(dir) {
		for i, folders := range layers {
			if slices.Contains(folders, dir) {
				return i, dir
			}
		}
	}
	return layer, ""
}

func isAside(importPath string) bool {
	rel := strings.TrimPrefix(importPath, module+"/")
	return slices.ContainsFunc(aside, func(a string) bool { return rel == a || strings.HasPrefix(rel, a+"/") })
}

// isGenerator finds the programs behind go:generate, which may import anything and are imported by nobody.
func isGenerator(importPath string) bool { return path.Base(importPath) == "gen" }

func TestDependenciesPointAlongTheDataPath(t *testing.T) {
	for _, p := range list(t) {
		if isGenerator(p.ImportPath) || isAside(p.ImportPath) {
			continue
		}
		from, folder := place(p.ImportPath)
		if from < 0 {
			t.Errorf("%s is in no layer: give it its place in this test", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			if !inside(i) {
				continue
			}
			switch to, other := place(i); {
			case isAside(i) && folder == "bench": // is not shipped either
			case isAside(i):
				t.Errorf("%s imports %s, which is for tests and building", p.ImportPath, i)
			case to > from:
				t.Errorf("%s imports %s, which comes later on the data path", p.ImportPath, i)
			case to == from && other != folder:
				t.Errorf("%s imports %s: neighbours on the data path do not know each other", p.ImportPath, i)
			}
		}
	}
}

// recorder are the folders of what records, with all that lies under them.
var recorder = []string{"agent", "attach", "collector", "concurrentring", "flight", "kernel", "sampler", "segment", "syscallproxy", "unwind"}

// reader are the folders of what reads recordings.
var reader = []string{"trace", "tracefile", "analysis", "visualize"}

// under says whether a package is one of folders, or lies under one.
func under(importPath string, folders []string) bool {
	rel := strings.TrimPrefix(importPath, module+"/")
	return slices.ContainsFunc(folders, func(f string) bool { return rel == f || strings.HasPrefix(rel, f+"/") })
}

// TestReadingNeedsNoRecorder: a recording is read on machines and by programs that do not record.
func TestReadingNeedsNoRecorder(t *testing.T) {
	for _, p := range list(t) {
		if !under(p.ImportPath, reader) || isAside(p.ImportPath) {
			continue
		}
		for _, d := range p.Deps {
			if inside(d) && under(d, recorder) {
				t.Errorf("%s depends on %s", p.ImportPath, d)
			}
		}
	}
}

// TestUnder: a part of a forbidden folder is forbidden too, and one whose name only begins like it is not.
func TestUnder(t *testing.T) {
	for path, want := range map[string]bool{
		"collector": true, "collector/assemble": true, "collectors": false, "analysis/collector": false, "agent/freshness": true, "live": false,
	} {
		if got := under(module+"/"+path, recorder); got != want {
			t.Errorf("under(%s) is %v", path, got)
		}
	}
}

// TestBlockbufStandsAlone: the block buffer is a package for others too.
func TestBlockbufStandsAlone(t *testing.T) {
	for _, p := range list(t) {
		if p.ImportPath != module+"/blockbuf" {
			continue
		}
		for _, i := range p.Imports {
			if inside(i) {
				t.Errorf("blockbuf imports %s", i)
			}
		}
	}
}

// TestNoCgo: the binary is static.
func TestNoCgo(t *testing.T) {
	for _, p := range list(t) {
		if slices.Contains(p.Imports, "C") {
			t.Errorf("%s uses cgo", p.ImportPath)
		}
	}
}
