package testprog

// oddstacks_test.go: stacks that are not a thread's own, are too deep to be kept whole, or are broken: whole where they
// can be, with a word on it where not.

import (
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// oddStack is the stack of an allocation.
type oddStack struct {
	flags   trace.Flags
	stack   []string // functions, leaf first; "…" for frames left out
	omitted uint64
	how     []trace.How
}

// recordOddStacks returns what was recorded of src/oddstacks.c, by the sizes that it asks for.
func recordOddStacks(t *testing.T, program string) map[uint64]oddStack {
	src := record(t, "-e", "alloc", "--alloc-period", "1", "--", program)
	at := map[uint64]oddStack{}
	if err := trace.Events(src, func(e *trace.Event) error {
		if e.Kind != trace.KindAlloc || e.Size < 100_000 || e.Size > 100_009 {
			return nil
		}
		s := oddStack{flags: e.Flags}
		for id := e.Stack; id != 0; id = src.Node(id).Parent {
			n, name := src.Node(id), "?"
			if n.How == trace.HowMark {
				s.omitted, name = n.Addr.Off, "…"
			} else if f := src.Symbols(id); len(f) > 0 {
				name = f[0].Func
			}
			s.stack, s.how = append(s.stack, name), append(s.how, n.How)
		}
		at[e.Size] = s
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestOddStacks(t *testing.T) {
	program := Build(t, "oddstacks", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
	at := recordOddStacks(t, program)
	// A program does not wait for its unwind tables for ever: on a loaded machine it may have run without them.
	for range 30 {
		if ordinary, ok := at[100_000]; ok && !slices.Contains(ordinary.how, trace.HowFP) && ordinary.flags&trace.FlagStackCut == 0 {
			break
		}
		t.Log("once more: the program's tables came too late")
		at = recordOddStacks(t, program)
	}
	const deep, whole = "deep", trace.Flags(0)
	for _, c := range []struct {
		name  string
		size  uint64
		deep  int // frames of deep, those left out included
		has   []string
		flags trace.Flags // of how whole it is
	}{
		{"alternate stack", 100_001, 2001, []string{"ask", "…", "main"}, trace.FlagStackOmitted},
		{"alternate stack, disarmed", 100_002, 21, []string{"ask", "on_usr1", "raised_in", "main"}, whole},
		{"coroutine", 100_003, 21, []string{"ask", "body"}, whole},
		{"alternate stack over a coroutine", 100_004, 21, []string{"ask", "on_usr1", "raised_in", "body"}, whole},
		{"stack of the program", 100_005, 21, []string{"ask", "on_own_stack"}, whole},
		{"100,000 frames", 100_006, 100_001, []string{"ask", "…", "very_deep"}, trace.FlagStackOmitted},
		{"no address", 100_007, 0, []string{"ask", "broken"}, trace.FlagStackCut},
		{"an address that is no code", 100_008, 0, []string{"ask", "broken"}, trace.FlagStackCut},
		{"one", 100_009, 0, []string{"ask", "broken"}, trace.FlagStackCut},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, ok := at[c.size]
			if !ok {
				t.Fatal("was not recorded")
			}
			next := 0
			for _, f := range s.stack {
				if next < len(c.has) && f == c.has[next] {
					next++
				}
			}
			n := int(s.omitted) // where frames are left out, only deep has so many
			for _, f := range s.stack {
				if f == deep {
					n++
				}
			}
			if next < len(c.has) || n != c.deep {
				t.Errorf("%d times deep, want %d; wanted in this order %q:\n%q", n, c.deep, c.has, s.stack)
			}
			if got := s.flags & (trace.FlagStackCut | trace.FlagStackOmitted); got != c.flags {
				t.Errorf("flags %b, want %b:\n%q", got, c.flags, s.stack)
			}
			if c.flags == whole && (s.flags&trace.FlagStackGuessed != 0 || slices.Contains(s.how, trace.HowFP)) {
				t.Errorf("guessed: %q %v", s.stack, s.how)
			}
		})
	}
}
