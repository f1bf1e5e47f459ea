//go:build !blockbufmodel

package blockbuf

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutants are the mistakes that this algorithm invites: most were found by somebody's model checker in the paper's
// text as it stands. Each is one edit of the source; the explorer must find a run in which it does harm.
var mutants = []struct {
	name, file string
	edits      []string // old, new
	scenarios  string   // which to explore
}{
	{"allocate in a later use of the block", "write.go", []string{
		"if posOf(a) == posOf(cur) && lowOf(a)+need <= b.cap {", "if lowOf(a)+need <= b.cap {",
	}, "stale/late"},
	{"allocate beyond the end", "write.go", []string{
		"if m.alloc.cas(a, a+need) {", "if m.alloc.add(need) != 0 {",
	}, "share/late$"},
	{"claim without compare-and-swap", "advance.go", []string{
		"return lowOf(c) == b.cap && m.conf.cas(c, pack(posOf(c), claimed))",
		"if lowOf(c) == b.cap { m.conf.store(pack(posOf(c), claimed)); return true }; return false",
	}, "shrink/paper"},
	{"claim what is not confirmed", "advance.go", []string{
		"return lowOf(c) == b.cap && m.conf.cas(", "return lowOf(c) <= b.cap && m.conf.cas(",
	}, "share/late$"},
	{"open a position that was given up", "advance.go", []string{
		"if posOf(before) >= pos {\n\t\tb.closeBlock", "if false {\n\t\tb.closeBlock",
	}, "seal/late"},
	{"swing the slot's word without compare-and-swap", "advance.go", []string{
		"if s.word.cas(cur, pack(pos, block)) {", "if s.word.store(pack(pos, block)); true {",
	}, "share/late$"},
	{"close without compare-and-swap", "advance.go", []string{
		"if m.alloc.cas(a, pack(pos, b.cap)) {", "if m.alloc.store(pack(pos, b.cap)); true {",
	}, "seal/late"},
	{"close the other's block when the race for the slot was lost", "advance.go", []string{
		"b.closeBlock(block, pos, s) // another writer", "b.closeLagging(s, pos, before); b.closeBlock(block, pos, s) // another writer",
	}, "share/late$"},
	{"load Allocated before Confirmed", "reader.go", []string{
		"m := &v.metas[block]\n\tc := m.conf.load()", "m := &v.metas[block]\n\tearly := m.alloc.load()\n\tc := m.conf.load()",
		"a := m.alloc.load()\n\tif posOf(a) != pos { // not open yet", "a := early\n\tif posOf(a) != pos { // not open yet",
	}, "look/late"},
	{"no second look after the copy", "reader.go", []string{
		"c := v.metas[block].conf.load()\n\tif posOf(c) != pos", "c := pack(pos, 0)\n\tif posOf(c) != pos",
	}, "overwrite/late"},
	{"take any bytes for a header", "word.go", []string{
		"return h&(flagReserved|tagMask) == header(tag, 0)", "return h&flagReserved != 0",
	}, "overwrite/late"},
	{"show records before they are committed", "reader.go", []string{
		"if h&flagCommitted == 0 {", "if false {",
	}, "look/late"},
	{"shrink without claiming", "resize.go", []string{
		"if k, err = b.claim(&b.slots[0]); err == nil {",
		"if k = b.inRing(lowOf(b.ctl.cursor.load())); err == nil {",
	}, "shrink/late"},
	{"leave shrunk blocks in the ring", "resize.go", []string{
		"b.metas[k].next.store(after)", "_ = after",
	}, "regrow/late"},
	{"new blocks for one turn only", "resize.go", []string{
		"b.metas[k].next.store(add[0])\n\t\treturn", "return",
	}, "grow/late"},
}

// model runs the explorer, which has the code in another build.
func model(t *testing.T, overlay, scenarios, states string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the package again and explores it: not with -short")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command: ", err)
	}
	args := []string{"test", "-tags", "blockbufmodel", "-count=1", "-timeout=60m", "-run", "^TestExplore$/" + scenarios, "-v"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "HBTRACE_MODEL_STATES="+states)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestModel explores the first states of each scenario; with HBTRACE_STRESS all states.
func TestModel(t *testing.T) {
	states := "3000"
	if os.Getenv("HBTRACE_STRESS") != "" {
		states = "0"
	}
	out, err := model(t, "", "", states)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "states, complete: ") {
		t.Fatalf("nothing was explored:\n%s", out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "states, complete: ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// TestMutants checks the explorer: with any one precaution taken out it must fail, and say why. Without
// HBTRACE_STRESS it does so for a few.
func TestMutants(t *testing.T) {
	for i, m := range mutants {
		if os.Getenv("HBTRACE_STRESS") == "" && i%6 != 2 {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			src, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			mutant := string(src)
			for i := 0; i < len(m.edits); i += 2 {
				if n := strings.Count(mutant, m.edits[i]); n != 1 {
					t.Fatalf("%s has %d times %q: bring the mutant up to date", m.file, n, m.edits[i])
				}
				mutant = strings.Replace(mutant, m.edits[i], m.edits[i+1], 1)
			}
			dir := t.TempDir()
			mutated := filepath.Join(dir, m.file)
			if err := os.WriteFile(mutated, []byte(mutant), 0o600); err != nil {
				t.Fatal(err)
			}
			original, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(list, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := model(t, list, m.scenarios, "300000")
			if err == nil {
				t.Fatalf("the explorer finds nothing wrong with it:\n%s", out)
			}
			_, why, found := strings.Cut(out, "model: ")
			if !found {
				t.Fatalf("it failed in another way: %v\n%s", err, out)
			}
			why, _, _ = strings.Cut(why, "\n")
			t.Logf("found: %.200s", why)
		})
	}
}
