package collector

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/unwind"
)

// libc is a file that tables are kept of.
func libc(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("needs sleep, for the C library that it is linked to")
	}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		t.Skipf("ldd %s: %v", path, err)
	}
	for _, f := range strings.Fields(string(out)) {
		if strings.HasPrefix(f, "/") && strings.Contains(f, "libc.") {
			return f
		}
	}
	t.Skipf("%s is not linked to a C library: %s", path, out)
	return ""
}

// keep is one session's look at a file: its table, and whether it had to be compiled.
func keep(t *testing.T, dir, path string) (blob []byte, compiled bool) {
	t.Helper()
	k := &keptTables{store: tableStore(dir)}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, name, err := k.table(f)
	if err != nil {
		t.Fatal(err)
	}
	k.later(name, 8)
	k.save(append(make([]byte, 8), table.Blob()...))
	return table.Blob(), name.path != ""
}

func compileTable(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := unwind.Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	return table.Blob()
}

func kept(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestKeptTables: the second session finds what the first compiled, and whatever happened to the files in between, tables are those
// of the file.
func TestKeptTables(t *testing.T) {
	path := libc(t)
	want := compileTable(t, path)
	dir := filepath.Join(t.TempDir(), "cache")
	check := func(what string, compiled bool) {
		t.Helper()
		blob, did := keep(t, dir, path)
		if !bytes.Equal(blob, want) {
			t.Errorf("%s: another table", what)
		}
		if did != compiled {
			t.Errorf("%s: compiled: %v, want %v", what, did, compiled)
		}
		if files := kept(t, dir); len(files) != 1 {
			t.Errorf("%s: files %q, want one", what, files)
		}
	}
	check("first", true)
	check("second", false)
	file := kept(t, dir)[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for what, b := range map[string][]byte{"empty": nil, "rubbish": []byte("rubbish"), "cut": whole[:len(whole)/2], "one bit": flipped,
		"of an older version": append([]byte("hbtunw00"), whole[8:]...)} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		check(what, true)
		check(what+", mended", false)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	check("anybody could have written it", true)
	check("written anew", false)
}

// TestKeptTablesOfChangedFile: a file that was changed and has its build id still gets its own table.
func TestKeptTablesOfChangedFile(t *testing.T) {
	path := libc(t)
	dir := t.TempDir()
	if _, compiled := keep(t, dir, path); !compiled {
		t.Fatal("found in an empty directory")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section(".eh_frame")
	frames := b[s.Offset:][:s.Size]
	i := bytes.Index(frames, []byte{0x41, 0x0e, 0x10}) // advance 1, CFA at 16: a function that pushes one register first
	if i < 0 {
		t.Skip("this C library has no function that pushes a register first")
	}
	frames[i+2] = 0x18
	changed := filepath.Join(t.TempDir(), "libc.so.6")
	if err := os.WriteFile(changed, b, 0o644); err != nil {
		t.Fatal(err)
	}
	want := compileTable(t, changed)
	if bytes.Equal(want, compileTable(t, path)) {
		t.Fatal("the change makes no difference")
	}
	for _, compiled := range []bool{true, false} {
		if blob, did := keep(t, dir, changed); did != compiled || !bytes.Equal(blob, want) {
			t.Errorf("compiled %v, want %v; its own table: %v", did, compiled, bytes.Equal(blob, want))
		}
	}
	if blob, did := keep(t, dir, path); did || bytes.Equal(blob, want) {
		t.Error("the file as it was has lost its table")
	}
}

// TestNotKept: small files, files without build id, no directory, one that cannot be written.
func TestNotKept(t *testing.T) {
	path := libc(t)
	want := compileTable(t, path)
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", blocked, "/proc/nothing"} {
		for range 2 {
			if blob, compiled := keep(t, dir, path); !bytes.Equal(blob, want) || dir != "" && !compiled {
				t.Errorf("directory %q: compiled %v; the table is right: %v", dir, compiled, bytes.Equal(blob, want))
			}
		}
	}
	dir := t.TempDir()
	keep(t, dir, compile(t, "busy"))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	note := f.Section(".note.gnu.build-id")
	if note == nil {
		t.Skip("this C library has no build id")
	}
	clear(b[note.Offset:][:note.Size])
	nameless := filepath.Join(t.TempDir(), "libc.so.6")
	if err := os.WriteFile(nameless, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if blob, _ := keep(t, dir, nameless); !bytes.Equal(blob, want) {
		t.Error("without build id: another table")
	}
	if files := kept(t, dir); len(files) != 0 {
		t.Errorf("kept %q", files)
	}
}

// TestSessionsKeepTables: what a session publishes is the same from kept tables, and a recording leaves them behind.
func TestSessionsKeepTables(t *testing.T) {
	libc(t) // or there is nothing to keep
	dir := t.TempDir()
	t.Setenv("HBTRACE_UNWIND_CACHE", dir)
	if _, r, _ := recordIn(t, Options{Command: []string{"sleep", "0"}}); len(r.Processes()) != 1 {
		t.Fatalf("%d processes", len(r.Processes()))
	}
	if len(kept(t, dir)) == 0 {
		t.Fatal("a recording kept no tables")
	}
	child := exec.Command("cat")
	in, err1 := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2, child.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	if _, err := in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it runs, with its libraries
		t.Fatal(err)
	}
	publish := func() (*tables, []unwind.Module) {
		ts, err := newTables(1, new(notes))
		if err != nil {
			t.Fatal(err)
		}
		ts.publish(child.Process.Pid, 0, 1)
		return ts, ts.lists[0].modules
	}
	warm, list := publish()
	defer warm.close()
	if len(warm.keep.fresh) != 0 {
		t.Errorf("compiled, though kept: %v", warm.keep.fresh)
	}
	t.Setenv("HBTRACE_UNWIND_CACHE", "off")
	cold, want := publish()
	defer cold.close()
	if len(list) == 0 || len(list) != len(want) {
		t.Fatalf("%d modules, %d without kept tables", len(list), len(want))
	}
	for i := range list {
		a, err1 := unwind.Open(warm.mem[list[i].Table:])
		b, err2 := unwind.Open(cold.mem[want[i].Table:])
		if err1 != nil || err2 != nil || !bytes.Equal(a.Blob(), b.Blob()) || list[i].Lo != want[i].Lo || list[i].Bias != want[i].Bias {
			t.Errorf("module %d: %+v and %+v (%v, %v)", i, list[i], want[i], err1, err2)
		}
	}
}
