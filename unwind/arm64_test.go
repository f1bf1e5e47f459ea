package unwind

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// agreesArm64 holds a rule against readelf's row, as agrees does.
func agreesArm64(r Rule, row interpRow) (ok, expressible bool) {
	number := func(s string) int32 { n, _ := strconv.Atoi(s); return int32(n) }
	if row.signal {
		return r.Kind == Signal, true
	}
	if row.cfa == "exp" || row.fp == "exp" || row.ra == "exp" || strings.HasPrefix(row.ra, "v") || strings.HasPrefix(row.ra, "x") {
		return r.Kind == Other, false
	}
	at := strings.IndexAny(row.cfa, "+-")
	if at < 0 {
		return false, true
	}
	reg, off := row.cfa[:at], number(row.cfa[at:])
	saved := strings.HasPrefix(row.ra, "c")
	switch {
	case !saved && r.Kind == End: // readelf does not tell undefined from untouched
		return true, true
	case !saved && reg != "sp": // the CFA by a register, the return address in another
		return r.Kind == Other, false
	case !saved:
		ok = r.Kind == Link && (r.Base == 30 || r.Base == 15) && r.Off == off // some of glibc's helpers return by x15
	case reg == "sp":
		ok = r.Kind == SP && r.Off == off && r.Add == number(row.ra[1:])
	case reg == "x29":
		ok = r.Kind == FP && r.Off == off && r.Add == number(row.ra[1:])
	default:
		ok = r.Kind == Reg && r.Off == off && r.Add == number(row.ra[1:])
	}
	if strings.HasPrefix(row.fp, "c") {
		return ok && r.FPKind == FPCFA && r.FPOff == number(row.fp[1:]), true
	}
	return ok && r.FPKind == FPSame, true
}

// TestArm64RowsAgainstReadelf does for arm64's libraries what TestEveryRowAgainstReadelf does for this machine's.
func TestArm64RowsAgainstReadelf(t *testing.T) {
	if _, err := exec.LookPath("readelf"); err != nil {
		t.Skip("needs readelf (binutils)")
	}
	var files []string
	for _, name := range []string{"libc.so.6", "ld-linux-aarch64.so.1", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"} {
		if path, err := filepath.EvalSymlinks("/usr/aarch64-linux-gnu/lib/" + name); err == nil {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		t.Skip("needs arm64's libraries (libc6-arm64-cross)")
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := os.Open(path)
			if err != nil {
				t.Skip(err)
			}
			defer f.Close()
			table, err := Compile(f)
			if err != nil {
				t.Fatal(err)
			}
			if table.head.Machine != uint32(elf.EM_AARCH64) {
				t.Fatalf("a table for machine %d", table.head.Machine)
			}
			var compared, wrong, inexpressible, packed, ends int
			for _, row := range interpret(t, path) {
				if row.lo >= row.hi {
					continue
				}
				compared++
				for _, pc := range []uint64{row.lo, row.hi - 4} {
					r := table.Lookup(pc)
					ok, expressible := agreesArm64(r, row)
					if !expressible {
						inexpressible++
					}
					if r.Kind == End {
						ends++
					}
					if r.word() != wordSlow {
						packed++
					}
					if !ok {
						if wrong++; wrong <= 10 {
							t.Errorf("%#x: %s, readelf says %+v", pc, r, row)
						}
					}
				}
			}
			t.Logf("%d rows of readelf, %d of the table, %d ends of rows wrong, %d inexpressible, %d outermost, %.0f %% packed",
				compared, table.Stats.Rows, wrong, inexpressible, ends, 100*float64(packed)/float64(max(1, 2*compared)))
			if compared < 100 || table.Stats.Bad > 0 || ends > compared/100 || inexpressible > compared/50 {
				t.Errorf("%d rows compared, %d outermost, %d inexpressible, %d records could not be read", compared, ends, inexpressible, table.Stats.Bad)
			}
		})
	}
}

// TestArm64Walks runs testdata/arm64.c under qemu, with return addresses that are signed.
func TestArm64Walks(t *testing.T) {
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip("needs qemu-aarch64 (qemu-user)")
	}
	program := build(t, "aarch64-linux-gnu-gcc", "testdata/arm64.c", "arm64", "-std=gnu11", "-static", "-fno-optimize-sibling-calls",
		"-mbranch-protection=standard", "-Wno-unused-const-variable")
	p := startInside(t, nil, qemu, "-cpu", "max", program)
	select {
	case err := <-p.exited:
		t.Logf("%s", tail(p.output.String()))
		if err != nil {
			t.Errorf("%v", err)
		}
		if !strings.Contains(p.output.String(), "signed 1") {
			t.Error("return addresses were not signed")
		}
	case <-time.After(5 * time.Minute):
		t.Fatalf("it does not end: %s", tail(p.output.String()))
	}
}
