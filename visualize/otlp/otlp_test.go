package otlp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// load decodes with the published descriptors and checks what the specification asks beyond them.
func load(t *testing.T, src trace.Source) *profiles.ProfilesData {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, src); err != nil {
		t.Fatal(err)
	}
	d := &profiles.ProfilesData{}
	if err := proto.Unmarshal(b.Bytes(), d); err != nil {
		t.Fatal(err)
	}
	// What the descriptors do not know stays behind as unknown fields, and is written again.
	var unknown func(m proto.Message)
	unknown = func(m proto.Message) {
		if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
			t.Errorf("%T has %d bytes of unknown fields", m, n)
		}
	}
	dict := d.Dictionary
	if dict == nil || len(d.ResourceProfiles) != 1 || len(d.ResourceProfiles[0].ScopeProfiles) != 1 {
		t.Fatalf("%v", d)
	}
	unknown(d)
	unknown(dict)
	zero := func(what string, n int, m proto.Message) {
		if n == 0 || proto.Size(m) != 0 {
			t.Errorf("the first of %d %s is not the zero value", n, what)
		}
	}
	if len(dict.StringTable) == 0 || dict.StringTable[0] != "" {
		t.Fatal("the first string is not empty")
	}
	zero("mappings", len(dict.MappingTable), dict.MappingTable[0])
	zero("locations", len(dict.LocationTable), dict.LocationTable[0])
	zero("functions", len(dict.FunctionTable), dict.FunctionTable[0])
	zero("attributes", len(dict.AttributeTable), dict.AttributeTable[0])
	zero("stacks", len(dict.StackTable), dict.StackTable[0])
	if l := dict.LinkTable; len(l) != 1 || len(l[0].TraceId) != 16 || len(l[0].SpanId) != 8 {
		t.Errorf("links %v", l)
	}
	in := func(what string, i int32, n int) {
		if i < 0 || int(i) >= n {
			t.Fatalf("%s %d of %d", what, i, n)
		}
	}
	attributes := func(of []int32) {
		keys := map[int32]bool{}
		for _, i := range of {
			in("attribute", i, len(dict.AttributeTable))
			k := dict.AttributeTable[i].KeyStrindex
			if keys[k] {
				t.Errorf("attribute %q is there twice", dict.StringTable[k])
			}
			keys[k] = true
		}
	}
	for _, m := range dict.MappingTable {
		unknown(m)
		in("string", m.FilenameStrindex, len(dict.StringTable))
		attributes(m.AttributeIndices)
	}
	for _, f := range dict.FunctionTable {
		unknown(f)
		for _, i := range []int32{f.NameStrindex, f.SystemNameStrindex, f.FilenameStrindex} {
			in("string", i, len(dict.StringTable))
		}
	}
	for _, l := range dict.LocationTable {
		unknown(l)
		in("mapping", l.MappingIndex, len(dict.MappingTable))
		for _, x := range l.Lines {
			in("function", x.FunctionIndex, len(dict.FunctionTable))
		}
	}
	for _, a := range dict.AttributeTable {
		unknown(a)
		in("string", a.KeyStrindex, len(dict.StringTable))
	}
	for _, s := range dict.StackTable {
		for _, i := range s.LocationIndices {
			in("location", i, len(dict.LocationTable))
		}
	}
	for _, p := range d.ResourceProfiles[0].ScopeProfiles[0].Profiles {
		unknown(p)
		attributes(p.AttributeIndices)
		for _, s := range p.Samples {
			unknown(s)
			in("stack", s.StackIndex, len(dict.StackTable))
			attributes(s.AttributeIndices)
			if len(s.Values) != 1 || s.StackIndex == 0 {
				t.Errorf("sample %v", s)
			}
		}
	}
	return d
}

func TestDemo(t *testing.T) {
	src := synthetic.Demo()
	d := load(t, src)
	tab, err := weigh.Collect(src, weigh.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dict := d.Dictionary
	str := func(i int32) string { return dict.StringTable[i] }
	all := d.ResourceProfiles[0].ScopeProfiles[0].Profiles
	if str(all[0].SampleType.TypeStrindex) != "cpu" || str(all[0].SampleType.UnitStrindex) != "nanoseconds" {
		t.Errorf("the first profile is %v", all[0].SampleType)
	}
	seen := map[string]bool{}
	for _, p := range all {
		name := str(p.SampleType.TypeStrindex)
		seen[name] = true
		v, err := weigh.ParseValue(name)
		if err != nil {
			continue // by holder
		}
		var sum int64
		for _, s := range p.Samples {
			sum += s.Values[0]
		}
		if sum != tab.Total[v] || p.DurationNano == 0 {
			t.Errorf("%s: %d, the recording has %d; lasts %d", name, sum, tab.Total[v], p.DurationNano)
		}
	}
	for _, want := range []string{"cpu", "blocked", "delay", "alloc_space", "held_delay"} {
		if !seen[want] {
			t.Errorf("no profile of %s", want)
		}
	}
	stacks := map[string]int64{}
	attributes := map[string]bool{}
	for _, s := range all[0].Samples {
		var names []string
		for _, l := range dict.StackTable[s.StackIndex].LocationIndices {
			for _, x := range dict.LocationTable[l].Lines {
				names = append(names, str(dict.FunctionTable[x.FunctionIndex].NameStrindex))
			}
		}
		slices.Reverse(names)
		stacks[strings.Join(names, ";")] += s.Values[0]
		for _, i := range s.AttributeIndices {
			a := dict.AttributeTable[i]
			attributes[fmt.Sprintf("%s=%v%v", str(a.KeyStrindex), a.Value.GetStringValue(), a.Value.GetIntValue())] = true
		}
	}
	if stacks["_start;main;compute;inner"] != 3_000_000 {
		t.Errorf("stacks %v", stacks)
	}
	for _, want := range []string{"thread.name=worker0", "thread.id=4000", "process.pid=4000", "process.executable.name=app0", "hbtrace.state=running0"} {
		if !attributes[want] {
			t.Errorf("no %s in %v", want, attributes)
		}
	}
}

func TestOddInput(t *testing.T) {
	for name, src := range synthetic.Odd(2_000) {
		t.Run(name, func(t *testing.T) { load(t, src) })
	}
}

func TestReaderGoesAway(t *testing.T) {
	if err := Write(synthetic.Gone{}, synthetic.Demo()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}
