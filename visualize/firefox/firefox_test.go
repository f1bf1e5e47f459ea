package firefox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// columns are a table as the file has it: arrays of one length.
type columns map[string]json.RawMessage

// profile is what the processed format documents, of what is written.
type profile struct {
	Meta struct {
		PreprocessedProfileVersion int
		Interval, StartTime        float64
		Product                    string
		Categories                 []struct{ Name, Color string }
		MarkerSchema               []struct{ Name string }
	}
	Libs   []struct{ Name, Path string }
	Shared struct {
		StringArray                                                              []string
		StackTable, FrameTable, FuncTable, ResourceTable, Sources, NativeSymbols columns
	}
	Threads []struct {
		Name, PID      string
		TID            int
		IsMainThread   bool
		ProcessName    string
		Samples        columns
		Markers        columns
		RegisterTime   *float64
		UnregisterTime *float64
	}
}

// length checks that all columns of a table have the length that it says.
func (c columns) length(t *testing.T, name string) int {
	t.Helper()
	var n int
	if err := json.Unmarshal(c["length"], &n); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for k, raw := range c {
		if k == "length" || k == "weightType" {
			continue
		}
		var cells []json.RawMessage
		if err := json.Unmarshal(raw, &cells); err != nil || len(cells) != n {
			t.Fatalf("%s.%s: %d cells of %d, %v", name, k, len(cells), n, err)
		}
	}
	return n
}

// refs is a column of indices into a table of n rows; -1 for null.
func (c columns) refs(t *testing.T, name string, n int) []int {
	t.Helper()
	var cells []*int
	if err := json.Unmarshal(c[name], &cells); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out := make([]int, len(cells))
	for i, x := range cells {
		out[i] = -1
		if x == nil {
			continue
		}
		if out[i] = *x; *x < -1 || *x >= n {
			t.Fatalf("%s[%d] is %d of %d", name, i, *x, n)
		}
	}
	return out
}

func (c columns) numbers(t *testing.T, name string) (out []float64) {
	t.Helper()
	if err := json.Unmarshal(c[name], &out); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

func load(t *testing.T, src trace.Source) *profile {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, src); err != nil {
		t.Fatal(err)
	}
	p := &profile{}
	if err := json.Unmarshal(b.Bytes(), p); err != nil {
		t.Fatal(err)
	}
	if p.Meta.PreprocessedProfileVersion != 62 || p.Meta.Interval <= 0 || p.Meta.Product == "" || len(p.Meta.MarkerSchema) != 1 {
		t.Errorf("meta %+v", p.Meta)
	}
	grey := false // the format asks for one
	for _, c := range p.Meta.Categories {
		grey = grey || c.Color == "grey"
	}
	if !grey {
		t.Error("no category is grey")
	}
	s := &p.Shared
	names := len(s.StringArray)
	sources := s.Sources.length(t, "sources")
	s.Sources.refs(t, "filename", names)
	resources := s.ResourceTable.length(t, "resourceTable")
	s.ResourceTable.refs(t, "lib", len(p.Libs))
	s.ResourceTable.refs(t, "name", names)
	funcs := s.FuncTable.length(t, "funcTable")
	s.FuncTable.refs(t, "name", names)
	s.FuncTable.refs(t, "resource", resources)
	s.FuncTable.refs(t, "source", sources)
	frames := s.FrameTable.length(t, "frameTable")
	s.FrameTable.refs(t, "func", funcs)
	stacks := s.StackTable.length(t, "stackTable")
	s.StackTable.refs(t, "frame", frames)
	for i, prefix := range s.StackTable.refs(t, "prefix", stacks) {
		if prefix >= i {
			t.Errorf("stack %d has the prefix %d, which comes after it", i, prefix)
		}
	}
	if s.NativeSymbols.length(t, "nativeSymbols") != 0 {
		t.Error("native symbols")
	}
	for _, th := range p.Threads {
		if th.Name == "" || th.RegisterTime == nil {
			t.Errorf("thread %+v", th)
		}
		th.Samples.length(t, "samples")
		th.Samples.refs(t, "stack", stacks)
		for i, d := range th.Samples.numbers(t, "timeDeltas") {
			if d < 0 {
				t.Errorf("thread %s: sample %d goes back by %v ms", th.Name, i, -d)
			}
		}
		th.Markers.length(t, "markers")
		th.Markers.refs(t, "name", names)
		th.Markers.refs(t, "category", len(p.Meta.Categories))
		ends := th.Markers.numbers(t, "endTime")
		for i, start := range th.Markers.numbers(t, "startTime") {
			if ends[i] < start || start < 0 {
				t.Errorf("thread %s: marker %d from %v to %v", th.Name, i, start, ends[i])
			}
		}
	}
	return p
}

func TestDemo(t *testing.T) {
	src := synthetic.Demo()
	p := load(t, src)
	tab, err := weigh.Collect(src, weigh.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var ms float64
	for _, th := range p.Threads {
		for _, w := range th.Samples.numbers(t, "weight") {
			ms += w
		}
	}
	if want := float64(tab.Total[weigh.CPU]) / 1e6; ms < want-1e-6 || ms > want+1e-6 {
		t.Errorf("samples weigh %v ms, the recording's CPU time is %v", ms, want)
	}
	s := &p.Shared
	frames := s.StackTable.refs(t, "frame", 1<<20)
	prefixes := s.StackTable.refs(t, "prefix", 1<<20)
	funcs := s.FrameTable.refs(t, "func", 1<<20)
	names := s.FuncTable.refs(t, "name", 1<<20)
	stack := func(i int) string {
		var out []string
		for ; i >= 0; i = prefixes[i] {
			out = append([]string{s.StringArray[names[funcs[frames[i]]]]}, out...)
		}
		return strings.Join(out, ";")
	}
	found := false
	for _, th := range p.Threads {
		for _, at := range th.Samples.refs(t, "stack", 1<<20) {
			found = found || th.Name == "app" && stack(at) == "_start;main;compute;inner"
		}
		if th.Name != "worker" {
			continue
		}
		var data []struct{ Type, Object, Owner, Releaser string }
		if err := json.Unmarshal(th.Markers["data"], &data); err != nil {
			t.Fatal(err)
		}
		name := s.StringArray[th.Markers.refs(t, "name", 1<<20)[0]]
		category := p.Meta.Categories[th.Markers.refs(t, "category", 9)[0]].Name
		if name != "pthread_mutex_lock" || data[0].Type != "Wait" || data[0].Owner != "app 4000" || data[0].Releaser != "app 4000" || category != "Waiting for a lock" {
			t.Errorf("the worker's first wait: %s %+v, %s", name, data[0], category)
		}
		if start, end := th.Markers.numbers(t, "startTime")[0], th.Markers.numbers(t, "endTime")[0]; start != 3 || end != 8.1 {
			t.Errorf("from %v to %v ms", start, end)
		}
	}
	if !found {
		t.Error("the main thread has no sample in _start;main;compute;inner")
	}
}

func TestOddInput(t *testing.T) {
	for name, src := range synthetic.Odd(20_000) {
		t.Run(name, func(t *testing.T) { load(t, src) })
	}
}

func TestReaderGoesAway(t *testing.T) {
	if err := Write(synthetic.Gone{}, synthetic.Demo()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}
