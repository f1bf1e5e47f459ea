package report

import (
	"bytes"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// unread is a recording with a summary, whose events are not there to be read.
type unread struct {
	trace.Source
	summary []byte
	t       *testing.T
}

func (u unread) Summary() []byte { return u.summary }

func (u unread) Events(func(*trace.Event) error) error {
	u.t.Error("the events were read")
	return nil
}

// spoilt is a recording with a summary that cannot be used.
type spoilt struct {
	trace.Source
	summary []byte
}

func (s spoilt) Summary() []byte { return s.summary }

// TestStoredFacts: a table of stored facts is that of the events, byte for byte.
func TestStoredFacts(t *testing.T) {
	for name, src := range map[string]trace.Source{
		"demo": synthetic.Demo(), "long": synthetic.New(8_000, 9), "nothing": synthetic.New(0, 2), "server": server().Source(), "hostile": hostile().Source(),
	} {
		facts, err := Collect(src)
		if err != nil {
			t.Fatal(err)
		}
		summary := facts.Encode()
		for _, view := range Views {
			for _, o := range []Options{{}, {Width: 200, Top: 1 << 20}, {JSON: true}} {
				if chained(view, o) || view == ViewSelfCheck {
					continue
				}
				write := func(src trace.Source) string {
					var b bytes.Buffer
					if err := Write(&b, src, view, o); err != nil {
						t.Fatal(err)
					}
					return b.String()
				}
				want := write(src)
				if got := write(unread{src, summary, t}); got != want {
					t.Errorf("%s, %s, %+v: of stored facts\n%s\nof events\n%s", name, view, o, got, want)
				}
				if view != ViewThreads {
					continue
				}
				for i, p := range [][]byte{{}, summary[:len(summary)-1], slices.Concat(summary, []byte{0}), slices.Concat([]byte{storedVersion + 1}, summary[1:])} {
					if got := write(spoilt{src, p}); got != want {
						t.Errorf("%s: spoilt summary %d was used:\n%s", name, i, got)
					}
				}
			}
		}
	}
}

// FuzzStored takes anything for a summary: it is used or not, and no reason to fail.
func FuzzStored(f *testing.F) {
	src := synthetic.Demo()
	facts, err := Collect(src)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(facts.Encode())
	f.Add([]byte{storedVersion})
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, view := range []View{ViewSummary, ViewCPU, ViewAlloc, ViewThreads, ViewStorage} {
			var b bytes.Buffer
			if err := Write(&b, spoilt{src, p}, view, Options{}); err != nil {
				t.Errorf("%s: %v", view, err)
			}
		}
	})
}
