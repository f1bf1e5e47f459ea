package pprof

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/hbtrace/hbtrace/analysis/stored"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// write writes and reads back, so that what is compared is what a user's tool gets.
func write(t *testing.T, src trace.Source, o Options) ([]byte, *profile.Profile) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, src, o); err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), p
}

func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
	}{
		{"demo", Options{}},
		{"demo-nolabels", Options{NoLabels: true}},
		{"demo-blocked", Options{Values: []weigh.Value{weigh.Blocked}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, p := write(t, synthetic.Demo(), tt.o)
			again, _ := write(t, synthetic.Demo(), tt.o)
			if !bytes.Equal(data, again) {
				t.Error("equal recordings give different profiles")
			}
			got := p.String()
			path := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs (run with -update and look at the difference):\n%s", path, got)
			}
		})
	}
}

// TestTop asks the tool that users have.
// kept is a recording with a profile in it, whose events are not there to be read.
type kept struct {
	trace.Source
	profile []byte
}

func (k kept) Summary() []byte { return stored.Encode(Part(k.profile)) }

func (k kept) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(k.each, f)
}

func (k kept) each(func(*trace.Event) error) error { return errors.New("the events were read") }

// TestStored: a stored profile is what is written, and made a profile of; not where less was wanted.
func TestStored(t *testing.T) {
	src := synthetic.Demo()
	data, want := write(t, src, Options{})
	again, _ := write(t, kept{src, data}, Options{})
	if !bytes.Equal(data, again) {
		t.Error("another profile was written than the one that is stored")
	}
	p, err := Profile(kept{src, data}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.String() != want.String() {
		t.Error("another profile was made than the one that is stored")
	}
	for _, o := range []Options{{NoLabels: true}, {Values: []weigh.Value{weigh.CPU}}} {
		if _, err := Profile(kept{src, data}, o); err == nil {
			t.Errorf("%+v: the stored profile has more than that", o)
		}
	}
}

func TestTop(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("go tool pprof: go is not installed")
	}
	// go tool looks up, and may build, the tool each time it is called: ask it where the tool is.
	where, err := exec.Command(goTool, "tool", "-n", "pprof").Output()
	if err != nil {
		t.Skipf("go tool pprof: this Go does not have it: %v", err)
	}
	pprofTool := strings.TrimSpace(string(where))
	data, _ := write(t, synthetic.Demo(), Options{})
	file := filepath.Join(t.TempDir(), "demo.pb.gz")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(pprofTool, append([]string{"-symbolize=none"}, append(args, file)...)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go tool pprof %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	tests := []struct {
		args []string
		want []string // flat, cum and name of lines that must be there, as regular expressions
	}{
		{nil, []string{`Type: cpu`, `11ms \S+ +\S+ +14ms +\S+ +compute`, `3ms .* inner \(inline\)`}},
		{[]string{"-sample_index=samples"}, []string{`13 +\S+ +\S+ +\S+ +\S+ +compute|11 .*compute`}},
		{[]string{"-sample_index=wall"}, []string{`45ms .* read`}},
		{[]string{"-sample_index=blocked"}, []string{`45ms .* read`, `6\.10ms .* pthread_mutex_lock`, `19\.30ms .* pthread_cond_wait`}},
		{[]string{"-sample_index=contentions"}, []string{`\b2 +100% +100% +2 +100% +pthread_mutex_lock`}},
		{[]string{"-sample_index=delay"}, []string{`6\.10ms .*pthread_mutex_lock`, `6\.10ms .*take`}},
		{[]string{"-sample_index=alloc_objects"}, []string{`462\d .* malloc`}},
		{[]string{"-sample_index=alloc_space"}, []string{`1792kB .* malloc`, `768kB .* grow`}},
		{[]string{"-sample_index=inuse_objects"}, []string{`4097 .* malloc`}},
		{[]string{"-sample_index=inuse_space"}, []string{`1280kB .* malloc`, `256kB .* grow`}},
		{[]string{"-sample_index=blocked", "-tagfocus=lock=0x7ffe00001000"}, []string{`5\.10ms .*pthread_mutex_lock`}},
		{[]string{"-tagfocus=kind=tail"}, []string{`2ms .* work`}},
		{[]string{"-tagfocus=process=after"}, []string{`3ms .* main`}},
	}
	for _, tt := range tests {
		out := run(append([]string{"-top"}, tt.args...)...)
		for _, w := range tt.want {
			if !regexp.MustCompile(w).MatchString(out) {
				t.Errorf("pprof -top %v lacks %q:\n%s", tt.args, w, out)
			}
		}
	}
	if out := run("-comments"); !strings.Contains(out, "records lost: 3") || !strings.Contains(out, "libodd.so: no hook") {
		t.Errorf("comments lack what was lost:\n%s", out)
	}
}

func TestDefaultSampleType(t *testing.T) {
	tests := []struct {
		name  string
		feats []string
		make  func(b *tracetest.Builder, th trace.ThreadID)
		want  string
		types []string
	}{
		{"cpu", []string{"cpu", "lock"}, func(b *tracetest.Builder, th trace.ThreadID) { b.Sample(th, 1, 2, "f") },
			"cpu", []string{"samples", "cpu", "wall", "blocked", "contentions", "delay", "held_contentions", "held_delay"}},
		{"no cpu time", []string{"cpu", "syscall"}, func(b *tracetest.Builder, th trace.ThreadID) { b.Call(th, 1, 2, 60, 0, 0, "f") },
			"blocked", []string{"samples", "cpu", "wall", "blocked"}},
		{"allocations alone", []string{"alloc"}, func(b *tracetest.Builder, th trace.ThreadID) { b.Alloc(th, 1, 2, 3, 4, "f") },
			"alloc_space", []string{"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"}},
		{"empty", []string{"cpu"}, func(*tracetest.Builder, trace.ThreadID) {}, "cpu", []string{"samples", "cpu", "wall"}},
		{"nothing at all", nil, func(*tracetest.Builder, trace.ThreadID) {}, "cpu", []string{"cpu"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tracetest.New()
			b.Meta().Features = tt.feats
			tt.make(b, b.AddThread(trace.Thread{TID: 1}))
			_, p := write(t, b.Source(), Options{})
			var types []string
			for _, s := range p.SampleType {
				types = append(types, s.Type)
			}
			if p.DefaultSampleType != tt.want || !slices.Equal(types, tt.types) {
				t.Errorf("default %q of %q, want %q of %q", p.DefaultSampleType, types, tt.want, tt.types)
			}
		})
	}
}

func TestMainBinaryLeadsAndBuildIDs(t *testing.T) {
	b := tracetest.New()
	b.AddModule(trace.Module{Path: "/lib/libc.so.6", BuildID: "cc", Lo: 0x7f0000000000, Hi: 0x7f0000100000, Bias: 0x7f0000000000})
	b.AddModule(trace.Module{Path: "/usr/bin/app", BuildID: "aa", Lo: 0x400000, Hi: 0x500000, Bias: 0x400000})
	b.AddModule(trace.Module{Kind: trace.ModuleAnon, Lo: 0x1000, Hi: 0x2000})
	p := b.AddProcess(trace.Process{PID: 1, Exe: "/usr/bin/app"})
	b.Sample(b.AddThread(trace.Thread{Proc: p, TID: 1}), 1, 2, "main", "libc.so.6!read")
	_, prof := write(t, b.Source(), Options{})
	var got []string
	for _, m := range prof.Mapping {
		got = append(got, fmt.Sprintf("%s %s %#x-%#x", m.File, m.BuildID, m.Start, m.Limit))
	}
	want := []string{"/usr/bin/app aa 0x400000-0x500000", "/lib/libc.so.6 cc 0x7f0000000000-0x7f0000100000", "[anon]  0x1000-0x2000"}
	if !slices.Equal(got, want) {
		t.Errorf("mappings %q, want %q", got, want)
	}
	for _, l := range prof.Location {
		if l.Mapping == nil || l.Address < l.Mapping.Start || l.Address >= l.Mapping.Limit {
			t.Errorf("location %#x lies outside its mapping %+v", l.Address, l.Mapping)
		}
	}
}

func TestTooManyLabels(t *testing.T) {
	b := tracetest.New()
	proc := b.AddProcess(trace.Process{PID: 1})
	for i := range 3 {
		th := b.AddThread(trace.Thread{Proc: proc, TID: i + 1})
		b.Sample(th, 10, 5, "f")
		b.Wait(th, 20, 30, b.Hook("pthread_mutex_lock"), 0x10, 0, "f")
		b.Wait(th, 30, 40, b.Hook("pthread_mutex_lock"), 0x20, 0, "f")
		b.Add(trace.Event{Kind: trace.KindThreadExit, Thread: th, Time: 50, CPU: 1})
	}
	_, all := write(t, b.Source(), Options{})
	total := func(p *profile.Profile) (sum []int64) {
		sum = make([]int64, len(p.SampleType))
		for _, s := range p.Sample {
			for i, v := range s.Value {
				sum[i] += v
			}
		}
		return sum
	}
	if len(all.Sample) != 14 {
		t.Fatalf("%d samples, want 14", len(all.Sample))
	}
	for _, tt := range []struct {
		max, samples int
		want         string
	}{{11, 6, ": thread, tid"}, {3, 4, ": thread, tid, lock"}, {1, 3, ": all"}} {
		_, p := write(t, b.Source(), Options{maxSamples: tt.max})
		if c := p.Comments[len(p.Comments)-1]; !strings.HasSuffix(c, tt.want) {
			t.Errorf("at most %d samples: comment %q, want %q", tt.max, c, tt.want)
		}
		if len(p.Sample) != tt.samples {
			t.Errorf("at most %d: %d samples, want %d", tt.max, len(p.Sample), tt.samples)
		}
		if !slices.Equal(total(p), total(all)) {
			t.Errorf("at most %d samples: totals %v, want %v", tt.max, total(p), total(all))
		}
	}
}

type failing struct{ *tracetest.Source }

func (x failing) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(x.each, f)
}

func (failing) each(func(*trace.Event) error) error { return errors.New("block 7 is torn") }

func TestErrors(t *testing.T) {
	if err := Write(&bytes.Buffer{}, failing{synthetic.Demo()}, Options{}); err == nil || !strings.Contains(err.Error(), "block 7 is torn") {
		t.Errorf("the source's error is lost: %v", err)
	}
}
