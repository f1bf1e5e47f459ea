package symbols

// IFUNCs: what chooses an implementation, the implementations, and the stubs that lead to the chosen one.

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"
)

// stubs returns what the addresses of a file's PLT sections are called.
func stubs(t testing.TB, r *Resolver, file string) map[string]bool {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 {
		t.Skip("PLT stubs are named on x86-64 only")
	}
	found := map[string]bool{}
	for _, s := range f.Sections {
		if !strings.HasPrefix(s.Name, ".plt") && s.Name != ".iplt" {
			continue
		}
		for a := s.Addr; a < s.Addr+s.Size; a++ {
			for _, fr := range one(r, a) {
				found[fr.Func] = true
			}
		}
	}
	return found
}

func TestIFUNC(t *testing.T) {
	for _, args := range [][]string{{"-g"}, {"-fno-pie", "-no-pie"}, {"-fPIE", "-pie"}, {"-static"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			file := compile(t, "gcc", "ifunc.c", append([]string{"-O2"}, args...)...)
			r := open(t, Options{DebugDirs: []string{}}, file)
			for _, name := range []string{"twice_plain", "twice_wide", "thrice_plain"} {
				if got := one(r, symbolAt(t, file, name)); len(got) == 0 || got[len(got)-1].Func != name {
					t.Errorf("implementation %s: got %+v", name, got)
				}
			}
			// What chooses has two names, its own and that of what it chooses.
			for own, of := range map[string]string{"choose_twice": "twice", "choose_thrice": "thrice"} {
				if got := one(r, symbolAt(t, file, own)); len(got) == 0 || got[len(got)-1].Func != own && got[len(got)-1].Func != of {
					t.Errorf("%s: got %+v", own, got)
				}
			}
			found := stubs(t, r, file)
			for _, want := range []string{"twice@plt", "thrice@plt"} {
				if !found[want] {
					t.Errorf("no stub %s; have %v", want, found)
				}
			}
		})
	}
}

// TestLibcIFUNC: libc calls its own memcpy, strlen, … through stubs without a symbol; they and what chooses are named.
func TestLibcIFUNC(t *testing.T) {
	libc := "/lib/x86_64-linux-gnu/libc.so.6"
	f, err := elf.Open(libc)
	if err != nil {
		t.Skipf("no glibc at %s: %v", libc, err)
	}
	defer f.Close()
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, Options{DebugDirs: []string{}}, libc)
	chosen := 0
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != sttGNUIfunc {
			continue
		}
		chosen++
		var aliases []string
		for _, o := range syms {
			if o.Value == s.Value && o.Section != elf.SHN_UNDEF {
				aliases = append(aliases, o.Name)
			}
		}
		if got := one(r, s.Value); len(got) != 1 || !slices.Contains(aliases, got[0].Func) {
			t.Errorf("what chooses %s: got %+v", s.Name, got)
		}
	}
	found := stubs(t, r, libc)
	for _, want := range []string{"memcpy@plt", "strlen@plt", "memset@plt"} {
		if !found[want] {
			t.Errorf("no stub %s; have %v", want, found)
		}
	}
	if chosen < 20 {
		t.Errorf("%d IFUNCs: libc has more", chosen)
	}
}
