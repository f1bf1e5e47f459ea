package pprof

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	goprofile "runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// goCPU is a profile of CPU time as Go's runtime writes it, of this very process, which works until it has been seen doing so.
func goCPU(t *testing.T) []byte {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		var b bytes.Buffer
		if err := goprofile.StartCPUProfile(&b); err != nil {
			t.Skipf("this process's own CPU profile cannot be had: %v", err)
		}
		for began := time.Now(); time.Since(began) < 200*time.Millisecond; {
			burn(1 << 16)
		}
		goprofile.StopCPUProfile()
		p, err := profile.ParseData(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if _, ours := cpuTotal(t, p); ours > 0 { // on a busy machine a sample may be of the runtime alone
			return b.Bytes()
		}
		if time.Now().After(end) {
			t.Fatal("two minutes of work, and no sample in it")
		}
	}
}

var burnt uint64

func burn(n int) {
	for i := range n {
		burnt = burnt*6364136223846793005 + uint64(i)
	}
}

// cpuTotal is all CPU time of a profile, and that of samples of a function of this test.
func cpuTotal(t *testing.T, p *profile.Profile) (all, ours int64) {
	t.Helper()
	for name, ns := range flat(t, p) {
		all += ns
		if strings.HasSuffix(name, "pprof.burn") {
			ours += ns
		}
	}
	return all, ours
}

// TestForeignProfile: go tool pprof adds a profile of Go's own runtime to ours, and holds one against the other, in what both
// have; where they have nothing in common that weighs it says so and writes nothing.
func TestForeignProfile(t *testing.T) {
	tool, dir := pprofTool(t), t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sum := filepath.Join(dir, "sum.pb.gz")
	run := func(args ...string) (string, error) {
		cmd := exec.Command(tool, append([]string{"-symbolize=none", "-proto", "-output", sum}, args...)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	written := func(args ...string) *profile.Profile {
		if out, err := run(args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		data, err := os.ReadFile(sum)
		if err != nil {
			t.Fatal(err)
		}
		p, err := profile.ParseData(data)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	data, own := write(t, slow(10), Options{})
	ours := file("ours.pb.gz", data)
	foreignData := goCPU(t)
	foreign, err := profile.ParseData(foreignData)
	if err != nil {
		t.Fatal(err)
	}
	theirs := file("theirs.pb.gz", foreignData)
	const mine = 15e6 // 10 ms in compute, 5 in fresh
	if all, _ := cpuTotal(t, own); all != mine {
		t.Fatalf("%d ns in our own profile", all)
	}
	total, burning := cpuTotal(t, foreign)
	if burning == 0 {
		t.Fatalf("of %d ns none is in the work: %v", total, foreign)
	}
	for _, order := range [][]string{{ours, theirs}, {theirs, ours}} {
		p := written(order...)
		if all, burnt := cpuTotal(t, p); all != mine+total || burnt != burning {
			t.Errorf("%v: %d ns, %d of them in the foreign work, want %d and %d", order, all, burnt, int64(mine)+total, burning)
		}
		if got := flat(t, p); got["compute"] != 10e6 || got["fresh"] != 5e6 {
			t.Errorf("%v: %v", order, got)
		}
	}
	p := written("-diff_base", theirs, ours)
	if all, burnt := cpuTotal(t, p); all != mine-total || burnt != -burning {
		t.Errorf("ours against theirs: %d ns, %d of them in the foreign work, want %d and %d", all, burnt, int64(mine)-total, -burning)
	}

	// A heap profile has no CPU time.
	var b bytes.Buffer
	if err := goprofile.Lookup("heap").WriteTo(&b, 0); err != nil {
		t.Fatal(err)
	}
	os.Remove(sum)
	out, err := run(ours, file("heap.pb.gz", b.Bytes()))
	if err == nil || !strings.Contains(out, "incompatible types: {cpu nanoseconds") || !strings.Contains(out, "{space bytes") {
		t.Errorf("a profile of memory was added to one of CPU time: %v, %q", err, out)
	}
	if _, err := os.Stat(sum); err == nil {
		t.Error("something was written")
	}
}

// TestNothingInCommon: recordings of different things are neither added up nor compared, in words that say why.
func TestNothingInCommon(t *testing.T) {
	of := func(feature string) trace.Source {
		b := tracetest.New()
		b.Meta().Features = []string{feature}
		th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1})
		if feature == "cpu" {
			b.Sample(th, 1e6, 1e6, "main", "compute")
		} else {
			b.Alloc(th, 1e6, 64, 100, 512<<10, "main", "allocate")
		}
		return b.Source()
	}
	var b bytes.Buffer
	for what, err := range map[string]error{
		"merging":   WriteMerged(&b, []trace.Source{of("cpu"), of("alloc")}, Options{}),
		"comparing": WriteDiff(&b, of("cpu"), of("alloc"), Options{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "the recordings have nothing in common that weighs") || b.Len() > 0 {
			t.Errorf("%s: %v, %d bytes", what, err, b.Len())
		}
	}
}
