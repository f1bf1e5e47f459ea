package symbols

// Mini debug info made as distributions make it, and damaged.

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// miniProgram strips a program and gives it .gnu_debugdata (gdb's manual, "MiniDebugInfo"), compressed with args.
func miniProgram(t *testing.T, args ...string) (full, mini string) {
	tool(t, "xz")
	full = compile(t, "gcc", "plain.c", "-O2", "-g")
	dir := t.TempDir()
	mini, table := filepath.Join(dir, "prog"), filepath.Join(dir, "table")
	run(t, "objcopy", "--only-keep-debug", full, table)
	run(t, "strip", "--strip-debug", table)
	run(t, "xz", append(args, table)...)
	run(t, "objcopy", "--strip-all", full, mini)
	run(t, "objcopy", "--add-section=.gnu_debugdata="+table+".xz", mini)
	return full, mini
}

func TestMiniDebugInfo(t *testing.T) {
	for _, args := range [][]string{{"-6"}, {"--check=sha256"}, {"--check=crc32", "-9"}, {"--block-size=4096"}, {"--check=none"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			full, mini := miniProgram(t, args...)
			r := open(t, Options{DebugDirs: []string{}}, mini)
			for _, name := range []string{"main", "visible"} {
				if got := one(r, symbolAt(t, full, name)); len(got) != 1 || got[0].Func != name || got[0].Line != 0 {
					t.Errorf("%s: got %+v", name, got)
				}
			}
			checkNotes(t, r, "")
		})
	}
}

func TestMiniDebugInfoDamaged(t *testing.T) {
	tool(t, "xz")
	plain := bytes.Repeat([]byte("symbols and strings "), 1000)
	cmd := exec.Command("xz", "-c", "--block-size=7000")
	cmd.Stdin = bytes.NewReader(plain)
	packed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := unxz(packed, len(plain)); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := unxz(packed, len(plain)-1); err == nil {
		t.Error("more than the limit came out")
	}
	// Whatever is changed or cut: an error, or what was packed.
	for i := range packed {
		b := bytes.Clone(packed)
		b[i] ^= 0x55
		if got, err := unxz(b, 1<<20); err == nil && !bytes.Equal(got, plain) {
			t.Fatalf("byte %d changed: other contents and no error", i)
		}
		if got, err := unxz(packed[:i], 1<<20); err == nil && !bytes.Equal(got, plain) {
			t.Fatalf("cut at %d: other contents and no error", i)
		}
	}
	_, mini := miniProgram(t, "-6")
	b, err := os.ReadFile(mini)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte(xzMagic))
	b[at+40] ^= 1
	if err := os.WriteFile(mini, b, 0o755); err != nil {
		t.Fatal(err)
	}
	r := open(t, Options{DebugDirs: []string{}}, mini)
	r.Resolve(1, []uint64{0x1000})
	checkNotes(t, r, ".gnu_debugdata")
}

// A few KB that expand to more than the limit take little more memory than the limit.
func TestUnxzBomb(t *testing.T) {
	cmd := exec.Command("xz", "-9", "-c")
	cmd.Stdin = io.LimitReader(zeros{}, maxMiniBytes+1<<20)
	bomb, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("needs xz")
	}
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = unxz(bomb, maxMiniBytes)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "expands to more") {
		t.Errorf("%d bytes that expand to %d: %v", len(bomb), maxMiniBytes+1<<20, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*maxMiniBytes {
		t.Errorf("%d MiB were allocated for a limit of %d", took>>20, maxMiniBytes>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func FuzzUnxz(f *testing.F) {
	f.Add([]byte(xzMagic + "\x00\x04\xe6\xd6\xb4F\x02\x00!\x01\x16\x00\x00\x00t/\xe5\xa3\x01\x00\x00a\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := unxz(b, 1<<20); err == nil && len(out) > 1<<20 {
			t.Fatalf("%d bytes", len(out))
		}
	})
}
