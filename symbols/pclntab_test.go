package symbols

// Go programs linked with -s -w: names, lines and inlined calls as their DWARF has them.

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// goProgram builds testdata/golang for each way of linking. The first result has DWARF.
func goProgram(t *testing.T, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	cmd := append([]string{"build", "-C", "testdata/golang", "-trimpath", "-o", out}, args...)
	run(t, "go", append(cmd, ".")...)
	return out
}

func TestStrippedGo(t *testing.T) {
	for _, mode := range []struct {
		name string
		args []string
		cgo  string
	}{
		{"static", nil, "0"},
		{"pie", []string{"-buildmode=pie"}, "0"},
		{"cgo", []string{"-tags=usecgo"}, "1"},
		{"cgo-pie", []string{"-tags=usecgo", "-buildmode=pie"}, "1"},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Setenv("CGO_ENABLED", mode.cgo)
			full := goProgram(t, mode.args...)
			bare := goProgram(t, append(mode.args, "-ldflags=-s -w")...)
			// Linking without symbols may move the text: addresses are compared by function and offset.
			r := open(t, Options{}, full)
			s := open(t, Options{}, bare)
			shift := s.goText(t) - r.goText(t)
			addrs := goAddrs(t, full)
			moved := make([]uint64, len(addrs))
			for i, a := range addrs {
				moved[i] = a + shift
			}
			want, got := r.Resolve(1, addrs), s.Resolve(1, moved)
			right, wrong, inlined := 0, 0, 0
			for i := range addrs {
				if want[i] == nil || want[i][len(want[i])-1].File == "" {
					continue
				}
				if len(got[i]) == 0 {
					wrong++
					continue
				}
				if w, g := want[i][len(want[i])-1].Func, got[i][len(got[i])-1].Func; goPlain(w) != goPlain(g) {
					t.Fatalf("%#x: function %s, want %s", addrs[i], g, w)
				}
				if slices.EqualFunc(want[i], got[i], func(a, b trace.SymFrame) bool {
					return goPlain(a.Func) == goPlain(b.Func) && a.Line == b.Line && filepath.Base(a.File) == filepath.Base(b.File)
				}) {
					right++
				} else if wrong++; wrong <= 5 {
					t.Logf("%#x:\n got %+v\nwant %+v", addrs[i], got[i], want[i])
				}
				if len(got[i]) > 1 {
					inlined++
				}
			}
			t.Logf("%d addresses as in DWARF, %d not, %d with inlined calls", right, wrong, inlined)
			// DWARF has no inlined call where only the prologue of it is, and lines of prologues differ.
			if right < 1000 || inlined < 100 || wrong*50 > right {
				t.Errorf("%d right, %d wrong, %d with inlined calls", right, wrong, inlined)
			}
		})
	}
}

// goPlain takes the type arguments out of a name: DWARF spells shapes where the table has dots.
func goPlain(s string) string {
	var b []byte
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
			continue
		}
		if depth == 0 {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// goText is where a program's Go code begins, as its own table has it.
func (r *Resolver) goText(t *testing.T) uint64 {
	t.Helper()
	m := r.locked(1)
	defer m.mu.Unlock()
	tab, err := openGoTable(m.images[0])
	if err != nil || tab == nil {
		t.Fatal(tab, err)
	}
	return tab.text
}

// goAddrs picks addresses of the program's own package and of the runtime.
func goAddrs(t *testing.T, file string) []uint64 {
	t.Helper()
	r := open(t, Options{}, file)
	m := r.locked(1)
	defer m.mu.Unlock()
	tab, err := openGoTable(m.images[0])
	if err != nil {
		t.Fatal(err)
	}
	var addrs []uint64
	for i := range tab.n {
		if i%7 == 0 || i > tab.n-40 {
			for a := tab.entry(i); a < tab.entry(i+1); a += 9 {
				addrs = append(addrs, tab.text+a)
			}
		}
	}
	return addrs
}

func FuzzGoTable(f *testing.F) {
	f.Add(seedGoTable(f), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		tab := &goTable{order: binary.LittleEndian, quantum: 1, names: b, cutab: b, files: b, pctab: b, funcs: b, tree: b, funcFixed: 44}
		tab.n = min(len(b)/8-1, 100)
		if tab.n < 1 {
			return
		}
		for _, fr := range tab.frames(addr % (1 << 16)) {
			if fr.Func == "" || fr.Line < 0 {
				t.Fatalf("%+v", fr)
			}
		}
	})
}

func seedGoTable(t testing.TB) []byte {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil || len(b) < 1<<16 {
		t.Fatal(err)
	}
	return b[4096 : 4096+512]
}
