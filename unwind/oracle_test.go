package unwind

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every row of real files against readelf, which interprets call frame information on its own.

// interpRow is a line of readelf --debug-dump=frames-interp: from pc on, up to the next row or the FDE's end.
type interpRow struct {
	lo, hi     uint64
	cfa        string
	fp, sp, ra string
	signal     bool
}

var (
	interpCIE = regexp.MustCompile(`^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ CIE "([^"]*)"`)
	// "r9 (r9)" is one value
	interpAlias = regexp.MustCompile(` \(r[a-z0-9]+\)`)
	interpFDE   = regexp.MustCompile(`^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)`)
)

// interpret runs readelf over a file.
func interpret(t testing.TB, path string) []interpRow {
	t.Helper()
	cmd := exec.Command("readelf", "--debug-dump=frames-interp", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var rows []interpRow
	signal := map[string]bool{}
	var end uint64
	var isSignal, inFDE bool
	var columns []string
	open := -1 // row whose end is not known yet
	closeAt := func(pc uint64) {
		if open >= 0 {
			rows[open].hi = pc
		}
		open = -1
	}
	hex := func(s string) uint64 { n, _ := strconv.ParseUint(s, 16, 64); return n }
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := interpCIE.FindStringSubmatch(line); m != nil {
			closeAt(end)
			signal[strings.TrimLeft(m[1], "0")] = strings.Contains(m[2], "S")
			inFDE, columns = false, nil
			continue
		}
		if m := interpFDE.FindStringSubmatch(line); m != nil {
			closeAt(end)
			isSignal = signal[strings.TrimLeft(m[1], "0")]
			end, inFDE = hex(m[3]), true
			columns = []string{"LOC", "CFA", "ra"} // when no heading follows
			// An FDE without instructions has its CIE's rows, which are not printed.
			continue
		}
		if !inFDE {
			continue
		}
		// "r9 (r9)" is one value
		if strings.Contains(line, "ZERO terminator") {
			closeAt(end)
			inFDE = false
			continue
		}
		f := strings.Fields(interpAlias.ReplaceAllString(line, ""))
		if len(f) < 2 {
			continue
		}
		if f[0] == "LOC" {
			columns = f
			continue
		}
		if len(f) != len(columns) {
			continue
		}
		pc := hex(f[0])
		closeAt(pc)
		row := interpRow{lo: pc, hi: end, signal: isSignal, fp: "u", sp: "u"}
		for i, name := range columns {
			switch name {
			case "CFA":
				row.cfa = f[i]
			case "rbp", "x29":
				row.fp = f[i]
			case "rsp", "sp":
				row.sp = f[i]
			case "ra":
				row.ra = f[i]
			}
		}
		rows = append(rows, row)
		open = len(rows) - 1
	}
	closeAt(end)
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Logf("readelf %s: %v", path, err)
	}
	return rows
}

var amd64Names = []string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// agrees holds a rule against readelf's row. expressible is false where the row is of a kind that rules leave out.
func agrees(r Rule, row interpRow) (ok, expressible bool) {
	number := func(s string) int32 { n, _ := strconv.Atoi(s); return int32(n) }
	if row.ra == "u" {
		return r.Kind == End, true
	}
	if row.signal {
		return r.Kind == Signal, true
	}
	moved := strings.HasPrefix(row.ra, "r")
	if row.ra != "c-8" && !moved || row.sp != "u" && row.sp != "s" {
		return r.Kind == Other, false
	}
	if row.cfa == "exp" { // readelf does not say which
		if r.Kind == Other {
			return true, false
		}
		ok = r.Kind == PLT || r.Kind == Deref || r.Kind == Reg || r.Kind == SP || r.Kind == FP
	} else {
		at := strings.IndexAny(row.cfa, "+-")
		if at < 0 {
			return false, true
		}
		reg, off := slices.Index(amd64Names, row.cfa[:at]), number(row.cfa[at:])
		switch {
		case moved:
			if r.Kind == Other {
				return true, false
			}
			link := slices.Index(amd64Names, row.ra)
			if link < 0 { // by number
				link = int(number(row.ra[1:]))
			}
			ok = r.Kind == Link && reg == 7 && r.Off == off && int(r.Base) == link
		case reg == 7:
			ok = r.Kind == SP && r.Off == off
		case reg == 6:
			ok = r.Kind == FP && r.Off == off
		default:
			ok = r.Kind == Reg && int(r.Base) == reg && r.Off == off
		}
	}
	switch {
	case row.fp == "exp":
		if r.Kind == Other {
			return true, false
		}
		ok = ok && (r.FPKind == FPFP || r.FPKind == FPSP)
	case row.fp == "u" || row.fp == "s":
		ok = ok && r.FPKind == FPSame
	case strings.HasPrefix(row.fp, "c"):
		ok = ok && r.FPKind == FPCFA && r.FPOff == number(row.fp[1:])
	case strings.HasPrefix(row.fp, "r"):
		reg := slices.Index(amd64Names, row.fp)
		if reg < 0 {
			reg = int(number(row.fp[1:]))
		}
		ok = ok && r.FPKind == FPReg && int(r.FPOff) == reg
	default:
		ok = false
	}
	return ok, true
}

// realFiles are ELF files of this machine, whatever of them is there.
func realFiles(t testing.TB) []string {
	var files []string
	seen := map[string]bool{}
	for _, pattern := range []string{
		"/lib*/*-linux-gnu/libc.so.6", "/lib*/*-linux-gnu/ld-linux-*.so.*", "/lib*/*-linux-gnu/libm.so.6", "/usr/lib*/*-linux-gnu/libstdc++.so.6",
		"/usr/lib*/*-linux-gnu/libgcc_s.so.1", "/usr/lib*/*-linux-gnu/libcrypto.so.?", "/usr/lib*/*-linux-gnu/libgcrypt.so.20",
		"/usr/lib*/*-linux-gnu/libsqlite3.so.0", "/usr/bin/python3", "/usr/bin/redis-server", "/usr/bin/gdb", "/usr/sbin/nginx",
		"/usr/bin/bash", "/usr/bin/perl", "/lib64/libc.so.6", "/usr/lib64/libstdc++.so.6",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range matches {
			if real, err := filepath.EvalSymlinks(m); err == nil && !seen[real] {
				seen[real] = true
				files = append(files, real)
			}
		}
	}
	return files
}

// TestEveryRowAgainstReadelf: at the first and last pc of every row that readelf interprets, the table has
// the same CFA, frame pointer and return address, or Other, and Other only where rules leave the kind out.
func TestEveryRowAgainstReadelf(t *testing.T) {
	if _, err := exec.LookPath("readelf"); err != nil {
		t.Skip("needs readelf (binutils)")
	}
	files := realFiles(t)
	if len(files) == 0 {
		t.Skip("none of the libraries and programs that it compares is here")
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
			if table.Stats.Source != ".eh_frame" {
				t.Skipf("rows come from %s", table.Stats.Source)
			}
			rows := interpret(t, path)
			var compared, wrong, inexpressible int
			for _, row := range rows {
				if row.lo >= row.hi {
					continue
				}
				compared++
				for _, pc := range []uint64{row.lo, row.hi - 1} {
					r := table.Lookup(pc)
					ok, expressible := agrees(r, row)
					if !expressible {
						inexpressible++
					}
					if !ok {
						if wrong++; wrong <= 10 {
							t.Errorf("%#x: %s, readelf says %+v", pc, r, row)
						}
					}
				}
			}
			t.Logf("%d rows of readelf, %d of the table, %d ends of rows wrong, %d inexpressible", compared, table.Stats.Rows, wrong, inexpressible)
			if compared < table.Stats.FDEs {
				t.Errorf("readelf interpreted %d rows, the file has %d FDEs", compared, table.Stats.FDEs)
			}
			if table.Stats.Bad > 0 {
				t.Errorf("%d records could not be read", table.Stats.Bad)
			}
		})
	}
}
