package python

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tablesOf has an interpreter print the line table of every function of some modules, and the line of each of its instructions.
const tablesOf = `
import base64, dis, json, sys
def codes(code):
    yield code
    for c in code.co_consts:
        if hasattr(c, "co_code"):
            yield from codes(c)
import json.decoder, argparse, difflib, inspect
for m in (json.decoder, argparse, difflib, inspect):
    with open(m.__file__, encoding="utf-8") as f:
        top = compile(f.read(), m.__file__, "exec")
    for c in codes(top):
        table = c.co_linetable if sys.version_info >= (3, 10) else c.co_lnotab
        if sys.version_info >= (3, 10):
            lines = [[a // 2, b // 2, l] for a, b, l in c.co_lines() if l is not None]
        else:
            starts = list(dis.findlinestarts(c)) + [(len(c.co_code), 0)]
            lines = [[a // 2, b // 2, l] for (a, l), (b, _) in zip(starts, starts[1:])]
        print(json.dumps([sys.hexversion >> 16, c.co_firstlineno, base64.b64encode(table).decode(), lines]))
`

func TestLines(t *testing.T) {
	home, _ := os.UserHomeDir()
	var exes []string
	for _, pattern := range []string{"/usr/bin/python3", filepath.Join(home, ".pyenv/versions/3.*/bin/python3")} {
		found, _ := filepath.Glob(pattern)
		exes = append(exes, found...)
	}
	tables := 0
	for _, exe := range exes {
		if strings.Contains(exe, "/3.6.") || strings.Contains(exe, "/3.7.") {
			continue
		}
		out, err := exec.Command(exe, "-S", "-E", "-c", tablesOf).Output()
		if err != nil {
			t.Fatalf("%s: %v", exe, err)
		}
		for line := range bytes.Lines(out) {
			var v []any
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatal(err)
			}
			table, err := base64.StdEncoding.DecodeString(v[2].(string))
			if err != nil {
				t.Fatal(err)
			}
			tables++
			l := ReadLines(uint32(v[0].(float64)), int32(v[1].(float64)), table)
			for _, x := range v[3].([]any) {
				r := x.([]any)
				for unit := uint32(r[0].(float64)); unit < uint32(r[1].(float64)); unit++ {
					if got, want := l.Line(unit), int32(r[2].(float64)); got != want {
						t.Fatalf("%s: function at line %v: unit %d is in line %d, want %d", exe, v[1], unit, got, want)
					}
				}
			}
		}
	}
	if tables == 0 {
		t.Skip("there is no Python 3 here: apt-get install python3")
	}
	t.Logf("%d tables", tables)
}

func FuzzLines(f *testing.F) {
	f.Add(uint32(0x30b), int32(1), []byte{0xf0, 3, 1, 1, 1, 0x80, 0, 1})
	f.Add(uint32(0x30a), int32(1), []byte{2, 1, 4, 0x80, 6, 0xff})
	f.Add(uint32(0x308), int32(1), []byte{2, 1, 0, 1, 255, 0, 6, 0xff})
	f.Fuzz(func(t *testing.T, version uint32, first int32, table []byte) {
		l := ReadLines(version, first, table)
		for _, unit := range []uint32{0, 1, uint32(len(table)), 0xffffe, 1 << 31} {
			if n := l.Line(unit); n != first && (n < 0 || n > maxLine) {
				t.Errorf("unit %d is in line %d", unit, n)
			}
		}
	})
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		kind uint8
		in   string
		want string
	}{
		{1, "abc\xe9", "abcé"},
		{2, "a\x00\x0d\x54", "a\u540d"},
		{2, "\x00\xd8a\x00", "\uFFFDa"},
		{4, "\x00\xf6\x01\x00\xff\xff\xff\xff", "\U0001F600\uFFFD"},
		{4, "abc", ""},
		{7, "abc", ""},
		{0, "", ""},
	} {
		if got := Text([]byte(c.in), c.kind); got != c.want {
			t.Errorf("kind %d, %q: %q, want %q", c.kind, c.in, got, c.want)
		}
	}
}
