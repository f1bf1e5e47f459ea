package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDurationFlag(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"10": 10 * time.Second, "0.5": 500 * time.Millisecond, "10s": 10 * time.Second, "250ms": 250 * time.Millisecond,
		"1m30s": 90 * time.Second, "20us": 20 * time.Microsecond, "0": 0,
	} {
		var d durationFlag
		if err := d.Set(s); err != nil || d.value != want || !d.given {
			t.Errorf("%s: %v, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "x", "-1", "-1s", "NaN", "Inf", "1e300", "10 parsecs"} {
		var d durationFlag
		if err := d.Set(s); err == nil || d.given {
			t.Errorf("%q was taken as %v", s, d.value)
		}
	}
	d := durationFlag{needsUnit: true}
	if d.Set("5") == nil || d.Set("0") != nil || d.Set("5us") != nil {
		t.Error("units required, and not")
	}
}

func TestSizeFlag(t *testing.T) {
	for s, want := range map[string]uint64{
		"1": 1, "512": 512, "1K": 1024, "1k": 1024, "64M": 64 << 20, "2G": 2 << 30, "3KB": 3072, "3KiB": 3072, "7B": 7,
	} {
		var z sizeFlag
		if err := z.Set(s); err != nil || z.value != want {
			t.Errorf("%s: %d, %v", s, z.value, err)
		}
	}
	for _, s := range []string{"", "K", "B", "-1", "1.5M", "1T", "99999999999G", "18446744073709551615"} {
		var z sizeFlag
		if err := z.Set(s); err == nil {
			t.Errorf("%q was taken as %d", s, z.value)
		}
	}
	for want, v := range map[string]uint64{"64M": 64 << 20, "1536K": 1536 << 10, "1000": 1000, "": 0, "1G": 1 << 30} {
		if got := (&sizeFlag{value: v}).String(); got != want {
			t.Errorf("%d: %s, want %s", v, got, want)
		}
	}
}

func TestEventsFlag(t *testing.T) {
	var e eventsFlag
	if err := e.Set("lock,cpu,lock"); err != nil || !slices.Equal(e.chosen, []string{"cpu", "lock"}) {
		t.Errorf("%v, %v", e.chosen, err)
	}
	for _, s := range []string{"", "cpu,", "gpu"} {
		if e.Set(s) == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestExpand(t *testing.T) {
	at := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]string{
		"app": "app", "a-%p": "a-12", "%h/%t": "a_b/20250102T030405", "100%%": "100%", "%p%p": "1212",
	} {
		if got, err := expand(in, 12, "a/b", at); err != nil || got != want {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"%", "a%q", "%%%"} {
		if got, err := expand(in, 12, "h", at); err == nil {
			t.Errorf("%s: %q", in, got)
		}
	}
}

func TestTrimSuffix(t *testing.T) {
	for in, want := range map[string]string{"a.hbt": "a", "a.pb.gz": "a", "a": "a", "d/.hbt": "d/.hbt", "a.perfetto-trace": "a", "a.txt": "a.txt"} {
		if got := trimSuffix(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{"a/b.hbt": "a/b.hbt", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$x": "'$x'"} {
		if got := shellWord(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestComplainIsOneLine(t *testing.T) {
	var b bytes.Buffer
	complain(&b, errors.Join(errors.New("first\r\nsecond"), errors.New("third")))
	if got := b.String(); got != "hbtrace: first; second; third\n" {
		t.Errorf("%q", got)
	}
}

// TestWriteFileWholeOrNot: a failure leaves the old file and nothing next to it, success replaces it.
func TestWriteFileWholeOrNot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	content := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	put := func(s string, err error) error {
		return writeFile(path, nil, func(w io.Writer) error {
			io.WriteString(w, s)
			return err
		})
	}
	if err := put("one", nil); err != nil || content() != "one" {
		t.Fatalf("%v, %q", err, content())
	}
	if err := put(strings.Repeat("x", 1<<20), errors.New("gone wrong")); err == nil || !strings.Contains(err.Error(), "gone wrong") || content() != "one" {
		t.Errorf("%v, %d bytes", err, len(content()))
	}
	if err := put("two", nil); err != nil || content() != "two" {
		t.Errorf("%v, %q", err, content())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestNumbersInFlags: what is no number is told in words that say which flag it was given to.
func TestNumbersInFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"run -F abc -- true", "hbtrace: -F, --freq abc: it is not a whole number: see hbtrace run --help\n"},
		{"report -n 1e3 a.hbt", "hbtrace: -n, --top 1e3: it is not a whole number: see hbtrace report --help\n"},
		{"run -F 99999999999999999999 -- true", "hbtrace: -F, --freq 99999999999999999999: it is too large: see hbtrace run --help\n"},
	} {
		var stdout, stderr strings.Builder
		if code := execute(strings.Fields(tt.args), &stdout, &stderr); code != ownFailure || stderr.String() != tt.want {
			t.Errorf("%s: %d, %q, want %q", tt.args, code, &stderr, tt.want)
		}
	}
}
