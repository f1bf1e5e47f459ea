package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// input reads what elfWith made.
func input(t testing.TB, file []byte) *Input {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	in, err := ReadInput(f)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func smallInput(t testing.TB) *Input {
	t.Helper()
	f := &frameBytes{addr: testFrames}
	cie := f.cie()
	f.fde(cie, testText+0x100, 0x40, 0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6)
	f.fde(cie, testText+0x900, 0x80, 0x41, 0x0e, 24, 0x42, 0x0e, 48)
	return input(t, elfWith(".eh_frame", f.b))
}

// TestCached: a table that was kept is the table, byte for byte, whichever file of this machine it is of.
func TestCached(t *testing.T) {
	files := realFiles(t)
	if len(files) == 0 {
		t.Skip("no library here")
	}
	seen := map[Key]string{}
	for _, path := range files {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in, err := ReadInput(f)
		if err != nil {
			t.Fatal(err)
		}
		k := in.Key()
		if other, ok := seen[k]; ok {
			t.Errorf("%s has the key of %s", path, other)
		}
		seen[k] = path
		table, err := in.Compile()
		if err != nil {
			t.Fatal(err)
		}
		kept, err := OpenCached(table.Cached(k), k)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if !bytes.Equal(kept.Blob(), table.Blob()) {
			t.Errorf("%s: another table", path)
		}
		again, err := ReadInput(f)
		if err != nil || again.Key() != k {
			t.Errorf("%s: another key when it is read again (%v)", path, err)
		}
	}
}

// TestKey: whatever a table depends on is in its key.
func TestKey(t *testing.T) {
	base := smallInput(t)
	for name, change := range map[string]func(in *Input){
		"frames":     func(in *Input) { in.from.data = bytes.Clone(in.from.data); in.from.data[len(in.from.data)-1] ^= 1 },
		"less":       func(in *Input) { in.from.data = in.from.data[:len(in.from.data)-1] },
		"address":    func(in *Input) { in.from.addr++ },
		"debug":      func(in *Input) { in.from.debug = true },
		"text":       func(in *Input) { in.text = []span{{in.text[0].lo, in.text[0].hi + 1}} },
		"more text":  func(in *Input) { in.text = append(slices.Clone(in.text), span{1, 2}) },
		"machine":    func(in *Input) { in.m = &arm64 },
		"its source": func(in *Input) { in.name = ".debug_frame" },
	} {
		in := *base
		if change(&in); in.Key() == base.Key() {
			t.Errorf("%s: the same key", name)
		}
	}
}

// TestCompilerSources: a source file of this package that keys do not know of could change tables unnoticed.
func TestCompilerSources(t *testing.T) {
	known, err := compilerSources.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range known {
		have = append(have, f.Name())
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || f == "modules.go" || f == "cached.go" {
			continue // neither makes tables
		}
		if !slices.Contains(have, f) {
			t.Errorf("%s is not among compilerSources", f)
		}
	}
}

// TestCachedDamage: any byte changed, any end cut off, another file's, another version's: an error each.
func TestCachedDamage(t *testing.T) {
	in := smallInput(t)
	k := in.Key()
	table, err := in.Compile()
	if err != nil {
		t.Fatal(err)
	}
	whole := table.Cached(k)
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		if _, err := OpenCached(b, k); err == nil {
			t.Fatalf("byte %d of %d changed: taken", i, len(whole))
		}
		if _, err := OpenCached(whole[:i], k); err == nil {
			t.Fatalf("cut to %d of %d bytes: taken", i, len(whole))
		}
	}
	if _, err := OpenCached(append(bytes.Clone(whole), make([]byte, 8)...), k); err == nil {
		t.Error("with more behind it: taken")
	}
	other := k
	other[0] ^= 1
	if _, err := OpenCached(whole, other); err == nil {
		t.Error("under another key: taken")
	}
	// One that somebody has proved afresh: what the agent would be misled by is seen nonetheless.
	for name, change := range map[string]func(b []byte, h *head){
		"a row's rule":      func(b []byte, h *head) { b[h.IDsOff+1] = 0xfe },
		"a rule elsewhere":  func(b []byte, h *head) { b[h.IDsOff+1] = idFar },
		"a row's place":     func(b []byte, h *head) { b[h.PCsOff+3] = 0xff },
		"the first row":     func(b []byte, h *head) { b[h.PCsOff] = 1 },
		"rows out of order": func(b []byte, h *head) { copy(b[h.PCsOff+4:h.PCsOff+6], b[h.PCsOff+2:]) },
		"the index":         func(b []byte, h *head) { b[h.IndexOff+4] = 0xff },
		"the index's end":   func(b []byte, h *head) { b[h.IndexOff+4*h.Buckets]-- },
		"a rule's kind":     func(b []byte, h *head) { b[h.RulesOff+ruleBytes] = byte(kinds) },
		"a packed rule":     func(b []byte, h *head) { b[h.WordsOff+4*(h.Rules-1)] ^= 8 },
		"where rules lie":   func(b []byte, h *head) { b[64] ^= 4 },
	} {
		bad := bytes.Clone(table.Blob())
		change(bad, &table.head)
		if _, err := OpenCached((&Table{blob: bad}).Cached(k), k); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestCachedInput: files that no table can be made of have no key either.
func TestCachedInput(t *testing.T) {
	path, err := os.Executable() // Go without cgo: no call frame information but, perhaps, .debug_frame
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range f.Sections {
		s.Type = elf.SHT_NOBITS
	}
	f.Progs = nil
	if _, err := ReadInput(f); !errors.Is(err, ErrNoCFI) {
		t.Errorf("%v, want %v", err, ErrNoCFI)
	}
}

// FuzzCached opens whatever table was proved.
func FuzzCached(f *testing.F) {
	in := smallInput(f)
	k := in.Key()
	table, err := in.Compile()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(table.Blob())
	f.Add(table.Cached(k))
	f.Fuzz(func(t *testing.T, blob []byte) {
		if _, err := OpenCached(blob, k); err == nil && !bytes.Equal(blob, table.Cached(k)) {
			t.Fatal("taken without proof")
		}
		got, err := OpenCached((&Table{blob: blob}).Cached(k), k)
		if err != nil {
			return
		}
		if !bytes.Equal(got.Blob(), blob) {
			t.Fatal("another table")
		}
		consistent(t, got)
		got.Each(func(lo, hi uint64, r Rule) {
			if r.Kind >= kinds || r.FPKind > FPReg {
				t.Fatalf("[%#x, %#x): %v", lo, hi, r)
			}
		})
	})
}

// TestManyRules: a table with more rules than a row's byte can name finds each, and what is wrong with those that lie elsewhere is seen.
func TestManyRules(t *testing.T) {
	const rules = 600
	f := &frameBytes{addr: testFrames}
	var code []byte
	for i := range rules {
		code = append(code, 0x41, 0x0e, byte(16+8*i)|0x80, byte((16+8*i)>>7)) // advance 1, CFA at 16 + 8i
	}
	f.fde(f.cie(), testText+0x100, rules+1, code...)
	in := input(t, elfWith(".eh_frame", f.b))
	table, err := in.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if table.Stats.Rules < rules || table.head.Far < rules-idFar || table.head.Far > rules {
		t.Fatalf("%d rules, %d of them elsewhere", table.Stats.Rules, table.head.Far)
	}
	consistent(t, table)
	for i := range rules {
		if r, want := table.Lookup(testText+0x101+uint64(i)), (Rule{Kind: SP, Off: int32(16 + 8*i)}); r.Kind != want.Kind || r.Off != want.Off {
			t.Fatalf("row %d: %v, want %v", i, r, want)
		}
	}
	k := in.Key()
	if _, err := OpenCached(table.Cached(k), k); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(b []byte, h *head){
		"of another row":          func(b []byte, h *head) { b[h.FarOff]++ },
		"no rule":                 func(b []byte, h *head) { b[h.FarOff+6] = 1 },
		"one that a byte can say": func(b []byte, h *head) { copy(b[h.FarOff+4:], []byte{3, 0, 0, 0}) },
		"of a row that has one":   func(b []byte, h *head) { b[h.IDsOff+h.Rows-2] = 3 },
	} {
		bad := bytes.Clone(table.Blob())
		change(bad, &table.head)
		if _, err := OpenCached((&Table{blob: bad}).Cached(k), k); err == nil {
			t.Errorf("%s: taken", name)
		}
		if opened, err := Open(bad); err == nil { // whatever it finds, it reads nothing outside
			opened.Each(func(uint64, uint64, Rule) {})
		}
	}
}
