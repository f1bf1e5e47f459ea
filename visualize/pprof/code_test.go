package pprof

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestDisassembly: pprof finds the instructions of a function in the very file that was recorded, as compilers and linkers lay it out,
// and what fell on them. Where the recording does not say where that is, a mapping is the module's whole range.
func TestDisassembly(t *testing.T) {
	tool := pprofTool(t)
	for _, program := range []string{"cc", "objdump", "nm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("pprof disassembles what a C compiler made, with binutils: %v", err)
		}
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "work.c")
	if err := os.WriteFile(source, []byte("__attribute__((noinline)) int churn(int n) { for (int i = 0; i < 1000; i++) n = n * 31 + i; return n; }\nint main(int c, char **v) { return churn(c); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{
		"pie": {"-pie", "-fPIE"}, "no-pie": {"-no-pie"}, "code in the first segment": {"-pie", "-fPIE", "-Wl,-z,noseparate-code"},
		"addresses unlike offsets": {"-pie", "-fPIE", "-fuse-ld=lld"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if out, err := exec.Command("cc", append([]string{"-O1", "-Wl,--build-id", "-o", file, source}, flags...)...).CombinedOutput(); err != nil {
				t.Skipf("cc %v: %v\n%s", flags, err, out)
			}
			f, err := elf.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			syms, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			var at, end uint64
			for _, s := range syms {
				if s.Name == "churn" {
					at = s.Value
				}
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_LOAD {
					end = max(end, p.Vaddr+p.Memsz)
				}
			}
			raw, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			id, err := symbols.BuildID(raw)
			if err != nil || at == 0 {
				t.Fatalf("build id %q (%v), churn at %#x", id, err, at)
			}
			lo, bias := uint64(0), uint64(0x7f0000000000)
			if f.Type == elf.ET_EXEC {
				lo, bias = f.Progs[0].Vaddr&^0xfff, 0
			}
			made := func(id string, code trace.Code) []byte {
				b := tracetest.New()
				m := b.AddModule(trace.Module{Path: file, BuildID: id, Code: code, Lo: bias + lo, Hi: bias + end, Bias: bias})
				addr := trace.Addr{Module: m, Off: at}
				b.SetSymbols(addr, []trace.SymFrame{{Func: "churn", Linkage: "churn"}})
				th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1, Exe: file}), TID: 1})
				b.Add(trace.Event{Kind: trace.KindCPU, Thread: th, Time: 10, Start: 10, Count: 1, CPU: 7_000_000, Stack: b.Node(trace.Node{Addr: addr, How: trace.HowExact})})
				data, _ := write(t, b.Source(), Options{})
				return data
			}
			path := filepath.Join(dir, "p.pb.gz")
			if err := os.WriteFile(path, made(id, symbols.CodeSegment(f)), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(tool, "-symbolize=none", "-disasm=churn", path)
			cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir)
			out, err := cmd.CombinedOutput()
			if want := fmt.Sprintf(`(?m)^\s+7ms +7ms +%x: `, at); err != nil || !regexp.MustCompile(want).Match(out) {
				t.Errorf("%v, no %q in\n%s", err, want, out)
			}
			other, err := profile.ParseData(made("00"+id[2:], trace.Code{}))
			if err != nil {
				t.Fatal(err)
			}
			if m := other.Mapping[0]; m.Start != bias+lo || m.Limit != bias+end || m.Offset != 0 {
				t.Errorf("of code that is nowhere: %#x to %#x, offset %#x", m.Start, m.Limit, m.Offset)
			}
		})
	}
}
