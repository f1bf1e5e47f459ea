package unwind

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkWalk reports what one synchronous backtrace costs by each way at each depth: ns/walk; all in one run of one
// process (testdata/cost.c), so that ratios mean something. table-cold is with an empty cache of rules.
func BenchmarkWalk(b *testing.B) {
	dir := b.TempDir()
	cc := func(args ...string) error {
		base := []string{"-std=gnu11", "-O2", "-I..", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"}
		out, err := exec.Command("gcc", append(base, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		b.Skip("needs gcc")
	}
	fp, nofp, cost := filepath.Join(dir, "fp.o"), filepath.Join(dir, "nofp.o"), filepath.Join(dir, "cost")
	if err := cc("-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-c", "testdata/chain_fp.c", "-o", fp); err != nil {
		b.Fatal(err)
	}
	if err := cc("-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-c", "testdata/chain_nofp.c", "-o", nofp); err != nil {
		b.Fatal(err)
	}
	if err := cc("-fno-optimize-sibling-calls", "-DHB_LIBUNWIND", "testdata/cost.c", fp, nofp, "-lunwind", "-o", cost); err != nil {
		b.Logf("without libunwind: %v", err)
		if err := cc("-fno-optimize-sibling-calls", "testdata/cost.c", fp, nofp, "-o", cost); err != nil {
			b.Fatal(err)
		}
	}
	numbers, _ := startInside(b, nil, cost).result(b)
	b.Logf("%d of %d verified walks joined the last one", numbers["joined"], numbers["verified"])
	for _, depth := range []int{10, 30, 100} {
		for _, way := range []string{"fp", "verify", "table", "table-cold", "libunwind", "backtrace"} {
			ps, ok := numbers[fmt.Sprintf("%s/%d", way, depth)]
			if !ok {
				continue
			}
			b.Run(fmt.Sprintf("way=%s/depth=%d", way, depth), func(b *testing.B) {
				for b.Loop() { // measured already
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(ps)/1000, "ns/walk")
				b.ReportMetric(float64(numbers[fmt.Sprintf("%s/%d/frames", way, depth)]), "frames")
			})
		}
	}
}

// closure is a program and every library that it loads, as ldd says.
func closure(b *testing.B, program string) []string {
	path, err := exec.LookPath(program)
	if err != nil {
		b.Skipf("needs %s", program)
	}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		b.Skipf("ldd %s: %v", path, err)
	}
	files := []string{path}
	for line := range strings.Lines(string(out)) {
		for _, f := range strings.Fields(line) {
			if strings.HasPrefix(f, "/") {
				files = append(files, f)
			}
		}
	}
	return files
}

// BenchmarkCompile compiles all modules of a program, one after the other.
func BenchmarkCompile(b *testing.B) {
	for _, program := range []string{"redis-server", "/usr/bin/python3", "gdb", "node"} {
		b.Run("closure="+filepath.Base(program), func(b *testing.B) {
			files := closure(b, program)
			b.ReportAllocs()
			var text, bytes uint64
			for b.Loop() {
				text, bytes = 0, 0
				for _, path := range files {
					f, err := os.Open(path)
					if err != nil {
						b.Fatal(err)
					}
					table, err := Compile(f)
					f.Close()
					if errors.Is(err, ErrNoCFI) { // data only
						continue
					}
					if err != nil {
						b.Fatalf("%s: %v", path, err)
					}
					text += table.Stats.TextBytes
					bytes += uint64(len(table.Blob()))
				}
			}
			b.ReportMetric(float64(len(files)), "modules")
			b.ReportMetric(float64(text)/(1<<20), "MB-text")
			b.ReportMetric(float64(bytes)/1024/(float64(text)/(1<<20)), "KB/MB")
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/closure")
		})
	}
}

// BenchmarkLookup is the Go side's look-up; the C side's is in BenchmarkWalk.
func BenchmarkLookup(b *testing.B) {
	files := realFiles(b)
	if len(files) == 0 {
		b.Skip("no library to look into")
	}
	f, err := elf.Open(files[0])
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	table, err := CompileELF(f)
	if err != nil {
		b.Fatal(err)
	}
	lo, hi := table.Text()
	pc := lo
	for b.Loop() {
		if pc += 4099; pc >= hi {
			pc = lo
		}
		table.Lookup(pc)
	}
}
