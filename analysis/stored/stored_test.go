package stored

import (
	"bytes"
	"math"
	"testing"

	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

type source struct {
	trace.Source
	summary []byte
}

func (s source) Summary() []byte { return s.summary }

func TestOf(t *testing.T) {
	plain := synthetic.New(0, 1)
	if got := Of(plain, 1, Facts); got[0] != nil {
		t.Errorf("a recording that has nothing stored has %q", got[0])
	}
	all := Encode(
		Part{Facts, 1, []byte("facts")},
		Part{Profile, 2, []byte("profile")},
		Part{Number(99), 1, []byte("later")},
		Part{Chains, 1, nil},
	)
	for _, tt := range []struct {
		what          string
		summary       []byte
		version       uint64
		facts, chains []byte
	}{
		{"all", all, 1, []byte("facts"), []byte{}},
		{"another version", all, 3, nil, nil},
		{"nothing", nil, 1, nil, nil},
		{"another format", append([]byte{format + 1}, all[1:]...), 1, nil, nil},
		{"cut in the first part", all[:5], 1, nil, nil},
		{"cut behind it", all[:9], 1, []byte("facts"), nil},
	} {
		got := Of(source{plain, tt.summary}, tt.version, Facts, Chains)
		for i, want := range [][]byte{tt.facts, tt.chains} {
			if !bytes.Equal(got[i], want) || (got[i] == nil) != (want == nil) {
				t.Errorf("%s: part %d is %q, want %q", tt.what, i, got[i], want)
			}
		}
	}
}

// TestCoding: what was written is read, and every shorter or longer string of bytes is refused.
func TestCoding(t *testing.T) {
	type values struct {
		u    uint64
		i    int64
		b    bool
		s    uint16
		text []string
	}
	code := func(c *Coding, v *values) {
		c.Uint(&v.u)
		c.Int(&v.i)
		c.Bool(&v.b)
		Small(c, &v.s)
		List(c, &v.text, func(s *string) { c.String(s) })
		c.End()
	}
	want := values{math.MaxUint64, math.MinInt64, true, math.MaxUint16, []string{"", "a", "", "a", "bb"}}
	w := &Coding{}
	code(w, &want)
	read := func(p []byte) (values, error) {
		var v values
		c := &Coding{P: p, Reading: true}
		code(c, &v)
		return v, c.Err
	}
	got, err := read(w.P)
	if err != nil || got.u != want.u || got.i != want.i || !got.b || got.s != want.s || len(got.text) != len(want.text) {
		t.Fatalf("read %+v, %v; want %+v", got, err, want)
	}
	for i, s := range want.text {
		if got.text[i] != s {
			t.Errorf("string %d is %q, want %q", i, got.text[i], s)
		}
	}
	for n := range len(w.P) {
		if _, err := read(w.P[:n]); err == nil {
			t.Errorf("%d bytes of %d are enough", n, len(w.P))
		}
	}
	if _, err := read(append(bytes.Clone(w.P), 0)); err == nil {
		t.Error("a byte too many is none too many")
	}
}
