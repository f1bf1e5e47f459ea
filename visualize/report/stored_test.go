package report

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/stored"
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

func (u unread) EventBatches(f func([]trace.Event, func()) error) error {
	return trace.InBatches(u.each, f)
}

func (u unread) each(func(*trace.Event) error) error {
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
		facts, err := Collect(src, true)
		if err != nil {
			t.Fatal(err)
		}
		parts := facts.Parts()
		summary := stored.Encode(parts...)
		for _, view := range Views {
			for _, o := range []Options{{}, {Width: 200, Top: 1 << 20}, {JSON: true}} {
				if view == ViewSelfCheck {
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
				var b bytes.Buffer
				if err := facts.Write(&b, view, o); err != nil {
					t.Fatal(err)
				}
				if got := b.String(); got != want {
					t.Errorf("%s, %s, %+v: of facts\n%s\nof events\n%s", name, view, o, got, want)
				}
				if view != ViewThreads && view != ViewLocks {
					continue
				}
				spoil := func(change func(*stored.Part)) []byte {
					spoilt := slices.Clone(parts)
					for i := range spoilt {
						change(&spoilt[i])
					}
					return stored.Encode(spoilt...)
				}
				for i, p := range [][]byte{
					{}, summary[:1], summary[1:],
					spoil(func(p *stored.Part) { p.Bytes = p.Bytes[:len(p.Bytes)-1] }),
					spoil(func(p *stored.Part) { p.Bytes = slices.Concat(p.Bytes, []byte{0}) }),
					spoil(func(p *stored.Part) { p.Version++ }),
				} {
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
	src := synthetic.New(300, 4)
	facts, err := Collect(src, true)
	if err != nil {
		f.Fatal(err)
	}
	parts := facts.Parts()
	f.Add(parts[0].Bytes, parts[1].Bytes)
	f.Add([]byte{1}, []byte{})
	f.Fuzz(func(t *testing.T, facts, chains []byte) {
		p := stored.Encode(stored.Part{Number: stored.Facts, Version: storedVersion, Bytes: facts},
			stored.Part{Number: stored.Chains, Version: storedVersion, Bytes: chains})
		for _, view := range []View{ViewSummary, ViewCPU, ViewBlocked, ViewLocks, ViewAlloc, ViewThreads, ViewStorage} {
			for _, o := range []Options{{Width: 80, Top: 20}, {JSON: true}} {
				got := newFacts(spoilt{src, p})
				if !got.stored(chained(view)) {
					continue
				}
				if err := got.write(io.Discard, view, o); err != nil {
					t.Errorf("%s: %v", view, err)
				}
			}
		}
	})
}
