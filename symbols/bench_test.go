package symbols

// Benchmarks: 10,000 addresses in the go command and in a C++ program of many compile units.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

const benchAddrs = 10_000

func BenchmarkResolve(b *testing.B) {
	b.Run("binary=go", func(b *testing.B) {
		// The distributed binary is stripped: build it as anybody would.
		file := filepath.Join(b.TempDir(), "go")
		run(b, "go", "build", "-o", file, "cmd/go")
		benchFile(b, file)
	})
	b.Run("binary=manyunits", func(b *testing.B) { benchFile(b, manyUnits(b, 300)) })
}

// benchFile measures a fresh resolver (cold) and one that has decoded everything it needs (warm).
func benchFile(b *testing.B, file string) {
	addrs := textAddrs(b, file, benchAddrs)
	report := func(b *testing.B, out [][]trace.SymFrame) {
		known, inlined := 0, 0
		for _, fs := range out {
			if fs != nil {
				known++
			}
			if len(fs) > 1 {
				inlined++
			}
		}
		if known == 0 {
			b.Fatal("no address was resolved")
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchAddrs, "ns/addr")
		b.ReportMetric(100*float64(known)/benchAddrs, "%known")
		b.ReportMetric(100*float64(inlined)/benchAddrs, "%inlined")
	}
	b.Run("cache=cold", func(b *testing.B) {
		b.ReportAllocs()
		var out [][]trace.SymFrame
		for b.Loop() {
			r := NewResolver(Options{})
			if err := r.Add(trace.Module{ID: 1, Path: file}); err != nil {
				b.Fatal(err)
			}
			out = r.Resolve(1, addrs)
			r.Close()
		}
		report(b, out)
	})
	b.Run("cache=warm", func(b *testing.B) {
		b.ReportAllocs()
		r := open(b, Options{}, file)
		out := r.Resolve(1, addrs)
		for b.Loop() {
			out = r.Resolve(1, addrs)
		}
		report(b, out)
	})
	b.Run("cache=cold/addrs=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := NewResolver(Options{})
			if err := r.Add(trace.Module{ID: 1, Path: file}); err != nil {
				b.Fatal(err)
			}
			r.Resolve(1, addrs[:1])
			r.Close()
		}
	})
}

// manyUnits compiles n small units with templates of the standard library into one program.
func manyUnits(b *testing.B, n int) string {
	b.Helper()
	dir := b.TempDir()
	var objs []string
	// A few sources, each compiled once and linked many times under other names, would share nothing of the DWARF
	// and still take little time to build.
	main := &strings.Builder{}
	for i := range n {
		fmt.Fprintf(main, "int unit%d(int);\n", i)
	}
	main.WriteString("int main(int c, char **) { int s = 0;\n")
	for i := range n {
		fmt.Fprintf(main, "s += unit%d(c);\n", i)
	}
	main.WriteString("return s; }\n")
	const body = `#include <string>
#include <vector>
#include <algorithm>
static inline int deep(int x) { return x * 3 + 1; }
static inline int mid(int x) { int s = 0; for (int i = 0; i < x; i++) s += deep(i ^ s); return s; }
int NAME(int x) {
    std::vector<std::string> v;
    for (int i = 0; i < x; i++) v.push_back(std::to_string(mid(i)));
    std::sort(v.begin(), v.end());
    return v.empty() ? 0 : (int)v[0].size();
}
`
	src := filepath.Join(dir, "unit.cc")
	obj := filepath.Join(dir, "unit.o")
	if err := os.WriteFile(src, []byte(strings.ReplaceAll(body, "NAME", "unit")), 0o644); err != nil {
		b.Fatal(err)
	}
	run(b, "g++", "-O2", "-g", "-c", "-o", obj, src)
	for i := range n {
		o := filepath.Join(dir, fmt.Sprintf("unit%d.o", i))
		run(b, "objcopy", fmt.Sprintf("--redefine-sym=_Z4uniti=_Z%dunit%di", len(fmt.Sprintf("unit%d", i)), i), obj, o)
		objs = append(objs, o)
	}
	msrc := filepath.Join(dir, "main.cc")
	if err := os.WriteFile(msrc, []byte(main.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	out := filepath.Join(dir, "prog")
	run(b, "g++", append([]string{"-O0", "-g", "-o", out, msrc}, objs...)...)
	return out
}
