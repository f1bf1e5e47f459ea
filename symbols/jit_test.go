package symbols

// Names of code that a process made: perf maps and jitdumps, whole, cut and hostile.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// codeNames resolves addresses with the files' contents.
func codeNames(t testing.TB, addrs []uint64, pid int, files ...[]byte) (names []string, r *Resolver) {
	t.Helper()
	r = NewResolver(Options{Code: func(m trace.Module) (out []CodeFile) {
		for i, b := range files {
			out = append(out, CodeFile{Name: fmt.Sprint("file ", i), PID: pid, File: io.NopCloser(bytes.NewReader(b))})
		}
		return out
	}})
	defer r.Close()
	if err := r.Add(trace.Module{ID: 1, Path: "[anon]", Kind: trace.ModuleAnon, Proc: 1}); err != nil {
		t.Fatal(err)
	}
	for _, fs := range r.Resolve(1, addrs) {
		if len(fs) > 1 || len(fs) == 1 && (fs[0].Func == "" || fs[0].Line < 0) {
			t.Fatalf("frames make no sense: %+v", fs)
		}
		n := ""
		if len(fs) == 1 {
			n = fs[0].Func
			if fs[0].File != "" {
				n += fmt.Sprintf(" at %s:%d", fs[0].File, fs[0].Line)
			}
		}
		names = append(names, n)
	}
	return names, r
}

func TestPerfMap(t *testing.T) {
	long := strings.Repeat("x", maxCodeLine+10)
	for _, c := range []struct {
		name string
		file string
		addr uint64
		want string
		note string
	}{
		{"plain", "1000 10 foo\n", 0x100f, "foo", ""},
		{"before", "1000 10 foo\n", 0xfff, "", ""},
		{"behind", "1000 10 foo\n", 0x1010, "", ""},
		{"name with spaces", "1000 10 foo bar(int, char)\n", 0x1000, "foo bar(int, char)", ""},
		{"0x is written by some", "0x1000 0x10 foo\n", 0x1000, "foo", ""},
		{"last line without end may be cut", "1000 10 foo\n1010 10 ba", 0x1010, "", "1 entries"},
		{"cut in its numbers", "1000 10 foo\n1010 1", 0x1010, "", "1 entries"},
		{"empty", "", 0x1000, "", ""},
		{"no name", "1000 10\n1000 10 \n", 0x1000, "", "2 entries"},
		{"rubbish between", "1000 10 foo\nrubbish\n\x00\xff\n1010 10 bar\n", 0x1010, "bar", "2 entries"},
		{"negative size", "1000 -10 foo\n", 0x1000, "", "1 entries"},
		{"size 0", "1000 0 foo\n", 0x1000, "", "1 entries"},
		{"over all memory", "0 ffffffffffffffff evil\n1000 10 foo\n", 0x1000, "foo", "1 entries"},
		{"wraps around", "ffffffffffffff00 1000 evil\n", 0x10, "", "1 entries"},
		{"line without end", "1000 10 foo\n1000 10 " + long + "\n2000 10 bar\n", 0x2000, "bar", "1 entries"},
		{"the same again", "1000 10 foo\n1000 10 foo\n", 0x1000, "foo", ""},
		{"address used again: both", "1000 10 foo\n1000 10 bar\n", 0x1000, "bar or foo", ""},
		{"overlapping: where alone, alone", "1000 10 foo\n1008 10 bar\n", 0x1004, "foo", ""},
		{"overlapping: both", "1000 10 foo\n1008 10 bar\n", 0x1008, "bar or foo", ""},
		{"many", "1000 10 a\n1000 10 b\n1000 10 c\n1000 10 d\n1000 10 e\n", 0x1000, "e or d or c or 2 more", ""},
		{"V8: name, file and line", "1000 10 LazyCompile:*fib /a b/x.js:3:12\n", 0x1000, "fib at /a b/x.js:3", ""},
		{"V8: one function in two tiers", "1000 10 JS:~fib file:///x.js:3:12\n1000 10 JS:*fib file:///x.js:3:12\n", 0x1000, "fib at /x.js:3", ""},
		{"V8: nameless", "1000 10 Function:~ /x.js:3:12\n", 0x1000, "(anonymous) at /x.js:3", ""},
		{"V8: without a place", "1000 10 LazyCompile:~fib\n", 0x1000, "fib", ""},
		{"V8: only the kind", "1000 10 JS:\n", 0x1000, "JS:", ""},
		{"V8: builtin", "1000 10 Builtin:StringAdd\n", 0x1000, "Builtin:StringAdd", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, r := codeNames(t, []uint64{c.addr}, 0, []byte(c.file))
			if names[0] != c.want {
				t.Errorf("%q, want %q", names[0], c.want)
			}
			checkNotes(t, r, c.note)
		})
	}
	t.Run("two files", func(t *testing.T) {
		names, _ := codeNames(t, []uint64{0x1000, 0x1000, 0x2000}, 0, []byte("1000 10 foo\n"), []byte("2000 10 bar\n"))
		if fmt.Sprint(names) != "[foo foo bar]" {
			t.Errorf("%q", names)
		}
	})
}

// dump makes a jitdump of process 7.
func dump(order binary.ByteOrder, records ...[]byte) []byte {
	b := make([]byte, 40)
	order.PutUint32(b, jitMagic)
	order.PutUint32(b[4:], 1)
	order.PutUint32(b[8:], 40)
	order.PutUint32(b[20:], 7)
	for _, r := range records {
		b = append(b, r...)
	}
	return b
}

func record(order binary.ByteOrder, id uint32, size int, words []uint64, rest string) []byte {
	b := make([]byte, 16+8)
	order.PutUint32(b, id)
	for _, w := range words {
		b = binary.BigEndian.AppendUint64(b, 0)
		order.PutUint64(b[len(b)-8:], w)
	}
	b = append(b, rest...)
	if size == 0 {
		size = len(b)
	}
	order.PutUint32(b[4:], uint32(size))
	return b
}

func load(order binary.ByteOrder, addr, size, index uint64, name string) []byte {
	return record(order, 0, 0, []uint64{addr, addr, size, index}, name+"\x00"+strings.Repeat("c", int(size)))
}

func TestJitDump(t *testing.T) {
	le := binary.LittleEndian
	foo, bar := load(le, 0x1000, 16, 1, "foo"), load(le, 0x2000, 16, 2, "bar")
	for _, c := range []struct {
		name string
		file []byte
		addr uint64
		want string
		note string
	}{
		{"plain", dump(le, foo, bar), 0x200f, "bar", ""},
		{"other byte order", dump(binary.BigEndian, load(binary.BigEndian, 0x1000, 16, 1, "foo")), 0x1000, "foo", ""},
		{"of another process", func() []byte { b := dump(le, foo); b[20] = 8; return b }(), 0x1000, "", "not used"},
		{"cut in a name", dump(le, foo, bar[:58]), 0x2000, "", "1 entries"},
		{"cut in code", dump(le, foo, bar[:70]), 0x2000, "bar", ""},
		{"unknown records", dump(le, record(le, 9, 0, []uint64{1, 2, 3}, "xyz"), foo), 0x1000, "foo", ""},
		{"debug information and its end", dump(le, record(le, 2, 0, []uint64{0x1000, 0}, ""), foo, record(le, 3, 16, nil, "")), 0x1000, "foo", ""},
		{"moved", dump(le, foo, record(le, 1, 0, []uint64{0x1000, 0x1000, 0x5000, 16, 1}, "")), 0x5004, "foo", ""},
		{"moved from nowhere", dump(le, foo, record(le, 1, 0, []uint64{0x1000, 0x1000, 0x5000, 16, 9}, "")), 0x5004, "", ""},
		{"a record of no size", dump(le, record(le, 0, 3, nil, ""), foo), 0x1000, "", "1 entries"},
		{"a name without end", dump(le, record(le, 0, 0, []uint64{0x3000, 0x3000, 16, 3}, "name"), foo), 0x1000, "foo", "1 entries"},
		{"less code than it says", dump(le, record(le, 0, 0, []uint64{0x3000, 0x3000, 160, 3}, "name\x00ccc"), foo), 0x3000, "", "1 entries"},
		{"cut header", dump(le)[:20], 0x1000, "", "header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, r := codeNames(t, []uint64{c.addr}, 7, c.file)
			if names[0] != c.want {
				t.Errorf("%q, want %q", names[0], c.want)
			}
			checkNotes(t, r, c.note)
		})
	}
}

func FuzzCode(f *testing.F) {
	f.Add([]byte("1000 10 foo\n1010 10 LazyCompile:*bar /x.js:1:2\n"))
	f.Add(dump(binary.LittleEndian, load(binary.LittleEndian, 0x1000, 16, 1, "foo"), record(binary.LittleEndian, 1, 0, []uint64{0x1000, 0x1000, 0x1100, 16, 1}, "")))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, _ := codeNames(t, smallAddrs(), 0, b)
		for _, n := range names {
			// Every name stands in the file, or is made of names that do.
			for _, part := range strings.Split(strings.Split(n, " at ")[0], " or ") {
				if part != "" && !strings.Contains(part, "\uFFFD") && !strings.HasSuffix(part, " more") && part != "(anonymous)" && !strings.HasSuffix(part, "…") && !bytes.Contains(b, []byte(part)) {
					t.Fatalf("%q is nowhere in the file", part)
				}
			}
		}
	})
}
