package speedscope

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// file is what speedscope's schema allows in a file, of what is written.
type file struct {
	Schema string `json:"$schema"`
	Shared struct {
		Frames []struct {
			Name *string
			File string
		}
	}
	Profiles []struct {
		Type, Name, Unit     string
		StartValue, EndValue *int64
		Samples              [][]int
		Weights              []int64
	}
	Name, Exporter     string
	ActiveProfileIndex int
}

// load reads a file as strictly as the schema asks, and checks what the schema cannot say.
func load(t *testing.T, src trace.Source) *file {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, src); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	f := &file{}
	if err := d.Decode(f); err != nil {
		t.Fatal(err)
	}
	if f.Schema != "https://www.speedscope.app/file-format-schema.json" || len(f.Profiles) == 0 || f.ActiveProfileIndex >= len(f.Profiles) {
		t.Errorf("schema %q, %d profiles, active %d", f.Schema, len(f.Profiles), f.ActiveProfileIndex)
	}
	for i, fr := range f.Shared.Frames {
		if fr.Name == nil || *fr.Name == "" {
			t.Errorf("frame %d has no name", i)
		}
	}
	for _, p := range f.Profiles {
		if p.Type != "sampled" || p.Name == "" || p.StartValue == nil || *p.StartValue != 0 || p.EndValue == nil || p.Samples == nil || p.Weights == nil {
			t.Errorf("profile %+v", p)
			continue
		}
		if !slices.Contains([]string{"none", "nanoseconds", "bytes"}, p.Unit) {
			t.Errorf("%s: unit %q", p.Name, p.Unit)
		}
		if len(p.Samples) != len(p.Weights) {
			t.Errorf("%s: %d samples, %d weights", p.Name, len(p.Samples), len(p.Weights))
		}
		var sum int64
		for i, s := range p.Samples {
			if sum += p.Weights[i]; sum < 0 {
				sum = math.MaxInt64
			}
			if len(s) == 0 || p.Weights[i] <= 0 {
				t.Errorf("%s: stack %v weighs %d", p.Name, s, p.Weights[i])
			}
			for _, f2 := range s {
				if f2 < 0 || f2 >= len(f.Shared.Frames) {
					t.Errorf("%s: frame %d of %d", p.Name, f2, len(f.Shared.Frames))
				}
			}
		}
		if sum != *p.EndValue {
			t.Errorf("%s: weights sum to %d, the profile to %d", p.Name, sum, *p.EndValue)
		}
	}
	return f
}

func TestWeights(t *testing.T) {
	src := synthetic.Demo()
	f := load(t, src)
	tab, err := weigh.Collect(src, weigh.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"CPU time": tab.Total[weigh.CPU], "blocked time": tab.Total[weigh.Blocked], "bytes allocated": tab.Total[weigh.AllocSpace]}
	found := 0
	for _, p := range f.Profiles {
		if w, ok := want[p.Name]; ok {
			found++
			if *p.EndValue != w || w == 0 {
				t.Errorf("%s: %d, the recording has %d", p.Name, *p.EndValue, w)
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d profiles", found, len(want))
	}
	// root first, inlined functions and the hooked one at the end
	stacks := map[string]int64{}
	for i, s := range f.Profiles[0].Samples {
		var names []string
		for _, k := range s {
			names = append(names, *f.Shared.Frames[k].Name)
		}
		stacks[strings.Join(names, ";")] = f.Profiles[0].Weights[i]
	}
	if stacks["_start;main;compute;inner"] != 3_000_000 {
		t.Errorf("%v", stacks)
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
