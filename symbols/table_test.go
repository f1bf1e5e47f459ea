package symbols

// Tables: painting of ranges, choice among symbols, readable names.

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func bytesReader(b []byte) *bytes.Reader { return bytes.NewReader(b) }

func TestFlattenAgainstBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		spans := make([]span, rnd.IntN(20))
		for i := range spans {
			lo := rnd.Uint64N(60)
			spans[i] = span{lo, lo + rnd.Uint64N(20), int32(i)}
			if rnd.IntN(8) == 0 {
				spans[i].hi = rnd.Uint64N(60) // often empty or reversed
			}
		}
		all := append([]span(nil), spans...)
		m := flatten(spans)
		for a := uint64(0); a < 90; a++ {
			want := int32(-1)
			for _, s := range all {
				if a >= s.lo && a < s.hi {
					want = max(want, s.val)
				}
			}
			if got := m.find(a); got != want {
				t.Fatalf("%v at %d: got %d, want %d", all, a, got, want)
			}
		}
		for i := 1; i < len(m.start); i++ {
			if m.start[i-1] >= m.start[i] || m.val[i-1] == m.val[i] {
				t.Fatalf("not minimal: %v", m)
			}
		}
	}
}

func TestSymbolChoice(t *testing.T) {
	type sym struct {
		name     string
		lo, size uint64
		bind     uint8
		label    bool
	}
	for _, c := range []struct {
		name string
		syms []sym
		want map[uint64]string
	}{
		{"global beats weak beats local", []sym{{"l", 10, 5, 0, false}, {"g", 10, 5, 2, false}, {"w", 10, 5, 1, false}}, map[uint64]string{9: "", 10: "g", 14: "g", 15: ""}},
		{"fewer underscores", []sym{{"__read", 10, 5, 2, false}, {"read", 10, 5, 2, false}, {"_read", 10, 5, 2, false}}, map[uint64]string{12: "read"}},
		{"shorter, then first", []sym{{"fopen64", 10, 5, 2, false}, {"fopen", 10, 5, 2, false}, {"bopen", 10, 5, 2, false}}, map[uint64]string{12: "bopen"}},
		{"inner beats outer", []sym{{"outer", 10, 30, 2, false}, {"inner", 20, 5, 0, false}}, map[uint64]string{19: "outer", 20: "inner", 24: "inner", 25: "outer", 40: ""}},
		{"size 0 reaches to the next", []sym{{"a", 10, 0, 2, false}, {"b", 20, 4, 2, false}, {"c", 30, 0, 2, true}}, map[uint64]string{10: "a", 19: "a", 20: "b", 24: "", 30: "c", 99: "c", 100: ""}},
		{"size beats size 0 and labels", []sym{{"f", 10, 20, 0, false}, {"in_f", 15, 0, 2, true}}, map[uint64]string{16: "f", 29: "f", 30: ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tab symtab
			var strs []byte
			for _, s := range c.syms {
				y := symbol{lo: s.lo, hi: s.lo + s.size, name: uint32(len(strs)), nameLen: uint32(len(s.name)), bind: s.bind, typed: !s.label, sized: s.size > 0,
					underscore: uint8(len(s.name) - len(strings.TrimLeft(s.name, "_")))}
				if s.size == 0 {
					y.hi = 100
				}
				tab.syms = append(tab.syms, y)
				strs = append(append(strs, s.name...), 0)
			}
			tab.tabs = [][]byte{strs}
			tab.seal()
			for a, want := range c.want {
				if got, _ := tab.find(a); got != want {
					t.Errorf("at %d: got %q, want %q", a, got, want)
				}
			}
		})
	}
}

func TestReadable(t *testing.T) {
	long := "_ZNSt8_Rb_treeINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_St6vectorIiSaIiEEESt10_Select1stISB_ESt4lessIS5_ESaISB_EE24_M_get_insert_unique_posERS7_"
	for _, c := range []struct {
		in, want string
		isGo     bool
	}{
		{"main", "main", false},
		{"_Z3foov", "foo", false},
		{"_Z3foov.cold", "foo", false},
		{"_Z9foo", "_Z9foo", false},
		{"_ZN6shapes3BoxIiE4growEi", "shapes::Box<int>::grow", false},
		{long, "std::_Rb_tree::_M_get_insert_unique_pos", false},
		{"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad", false},
		{"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.123", "core::fmt::Formatter::pad", false},
		{"_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar", false},
		{"foo.part.0", "foo", false},
		{"foo.constprop.0.isra.0", "foo", false},
		{"foo.cold.12", "foo", false},
		{"foo.llvm.8812", "foo", false},
		{"memcpy@@GLIBC_2.14", "memcpy", false},
		{"_Z3foov@@V_1", "foo", false},
		{"puts@plt", "puts@plt", false},
		{"_Z3foov@plt", "foo@plt", false},
		{"@x", "@x", false},
		{"inner.0", "inner.0", false},
		{"foo.bar", "foo.bar", false},
		{".cold", ".cold", false},
		{"main.cold", "main.cold", true},
		{"main.(*T).part.0", "main.(*T).part.0", true},
		{"", "", false},
		{strings.Repeat("x", 5000), strings.Repeat("x", maxReadable) + "…", false},
	} {
		if got := readable(c.in, c.isGo); got != c.want {
			t.Errorf("readable(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestFileNames(t *testing.T) {
	b := func(ss ...string) (bs [][]byte) {
		for _, s := range ss {
			bs = append(bs, []byte(s))
		}
		return bs
	}
	for _, c := range []struct {
		name    string
		v5      bool
		compDir string
		dirs    [][]byte
		dir     uint64
		file    string
		want    string
	}{
		{"v4 in the unit's directory", false, "/src", b("", "inc"), 0, "a.c", "/src/a.c"},
		{"v4 relative", false, "/src", b("", "inc"), 1, "a.h", "/src/inc/a.h"},
		{"v4 absolute directory", false, "/src", b("", "/usr/include"), 1, "a.h", "/usr/include/a.h"},
		{"v5 in the unit's directory", true, "/src", b("/src", "inc"), 0, "a.c", "/src/a.c"},
		{"v5 relative", true, "/src", b("/src", "inc"), 1, "a.h", "/src/inc/a.h"},
		{"v5 mapped to a relative directory", true, "./iconvdata", b("./iconvdata", "../iconv"), 1, "loop.c", "iconv/loop.c"},
		{"v5 mapped, unit's directory", true, "./iconvdata", b("./iconvdata"), 0, "b.h", "iconvdata/b.h"},
		{"absolute file", true, "/src", b("/src"), 0, "/x/../y.c", "/y.c"},
		{"directory that is not there", false, "/src", b(""), 9, "a.c", "/src/a.c"},
		{"no name", false, "/src", b(""), 0, "", ""},
	} {
		tab := lineTable{compDir: c.compDir, v5: c.v5, dirs: c.dirs, files: []lineFile{{dir: c.dir, name: []byte(c.file)}}}
		if got := tab.fileName(0); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if got := tab.fileName(1); got != "" {
			t.Errorf("%s: file 1: got %q", c.name, got)
		}
	}
}
