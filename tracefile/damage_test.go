package tracefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// chunked is a small recording in many sections, as a recorder that flushes often writes it.
func chunked(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hbt")
	src := sample(60)
	w, err := Create(path, src.Meta())
	if err != nil {
		t.Fatal(err)
	}
	id := trace.StackID(0)
	n := 0
	err = trace.Events(src, func(e *trace.Event) error {
		for ; id < e.Stack; id++ {
			if err := w.PutNodes(id+1, []trace.Node{src.Node(id + 1)}); err != nil {
				return err
			}
		}
		th := src.Threads()[e.Thread-1]
		th.Samples = uint64(n) // an upsert that shows how far it got
		if err := w.PutThread(&th); err != nil {
			return err
		}
		if n++; n%10 == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return w.PutEvent(e)
	})
	if err == nil {
		err = w.Close(src.Stats())
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// use calls everything on a reader and returns the events; it must never panic, and stacks must end.
func use(r *Reader) (list []trace.Event, err error) {
	err = trace.Events(r, func(e *trace.Event) error { list = append(list, *e); return nil })
	for _, e := range list {
		for id, depth := e.Stack, 0; id != 0; id = r.Node(id).Parent {
			if depth++; depth > r.Nodes()+1 {
				panic("endless stack")
			}
			r.Symbols(id)
		}
	}
	r.AddressesWithoutSymbols()
	r.Meta()
	r.Stats()
	r.Processes()
	r.Threads()
	r.Modules()
	return list, err
}

// layout lists the sections of a whole file.
func layout(t testing.TB, data []byte) []indexEntry {
	t.Helper()
	s := sections{sectionReader: sectionReader{f: bytes.NewReader(data), size: int64(len(data))}}
	s.find("x")
	if !s.closed || s.damage != nil {
		t.Fatalf("not a whole file: %v", s.notes)
	}
	return append(s.index, indexEntry{sectionFooter, s.whole, 0})
}

// eventsBefore is how many events lie in sections that end at or before end.
func eventsBefore(l []indexEntry, end int64) (n int) {
	for i, s := range l[:len(l)-1] {
		if s.kind == sectionEvents && l[i+1].off <= end {
			n += int(s.count)
		}
	}
	return n
}

func TestTruncatedAnywhere(t *testing.T) {
	data := chunked(t)
	whole, err := open("x", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	all, err := use(whole)
	if err != nil || !whole.Stats().Complete {
		t.Fatalf("the whole file: %v, %+v", err, whole.Stats())
	}
	l := layout(t, data)
	if len(l) < 15 {
		t.Fatalf("only %d sections: the test tests little", len(l))
	}
	metaEnd := l[1].off
	for n := range len(data) {
		r, err := open("x", bytes.NewReader(data[:n]), int64(n))
		if int64(n) < metaEnd {
			if err == nil || errors.As(err, new(*CorruptError)) {
				t.Fatalf("cut to %d bytes: error %v, want one that says that nothing is there", n, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		list, err := use(r)
		if err != nil {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		want := eventsBefore(l, int64(n))
		if len(list) != want || want > 0 && list[want-1] != all[want-1] {
			t.Fatalf("cut to %d bytes: %d events, want %d", n, len(list), want)
		}
		// The last boundary at or before n is where the file ends being whole.
		end := int64(0)
		for _, s := range l {
			if s.off <= int64(n) {
				end = s.off
			}
		}
		note := fmt.Sprintf("whole up to offset %d of %d", end, n)
		st := r.Stats()
		if st.Complete || !strings.Contains(strings.Join(st.Notes, "\n"), note) {
			t.Fatalf("cut to %d bytes: complete %v, notes %q, want %q", n, st.Complete, st.Notes, note)
		}
		if want > 0 && r.Meta().EndNs == 0 {
			t.Fatalf("cut to %d bytes: no end", n)
		}
	}
}

func TestZeroTail(t *testing.T) {
	data := chunked(t)
	l := layout(t, data)
	for _, keep := range []int64{l[5].off, l[5].off + 10, l[6].off} {
		torn := append(bytes.Clone(data[:keep]), make([]byte, 10_000)...)
		r, err := open("x", bytes.NewReader(torn), int64(len(torn)))
		if err != nil {
			t.Fatal(err)
		}
		// Zeros from a section's start on are a crash; a header that is half there is damage.
		if _, err := use(r); (err != nil) != (keep == l[5].off+10) {
			t.Errorf("zeros from %d on: %v", keep, err)
		}
	}
	// The machine died after the file had its length and before it had its last bytes.
	torn := bytes.Clone(data[:l[6].off])
	clear(torn[l[6].off-3:])
	r, err := open("x", bytes.NewReader(torn), int64(len(torn)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := use(r); err != nil || r.whole != l[5].off {
		t.Errorf("last section torn: %v, whole up to %d, want %d", err, r.whole, l[5].off)
	}
}

// TestBitFlips damages every fifth bit in turn, every one where HBTRACE_STRESS is set: everything in front of the
// damaged section is still read, and the damage is noticed.
func TestBitFlips(t *testing.T) {
	data := chunked(t)
	l := layout(t, data)
	whole, _ := open("x", bytes.NewReader(data), int64(len(data)))
	all, _ := use(whole)
	step := 5 // every byte is hit, and every bit of some
	if os.Getenv("HBTRACE_STRESS") != "" {
		step = 1
	}
	for _, closed := range []bool{true, false} {
		in := data
		if !closed {
			in = data[:l[len(l)-1].off]
		}
		for bit := 0; bit < len(in)*8; bit += step {
			bad := bytes.Clone(in)
			bad[bit/8] ^= 1 << (bit % 8)
			off := int64(bit / 8)
			r, err := open("x", bytes.NewReader(bad), int64(len(bad)))
			if err != nil {
				if off >= l[1].off {
					t.Fatalf("closed %v, bit %d of byte %d: %v", closed, bit%8, off, err)
				}
				continue
			}
			if off < fileHeaderBytes {
				t.Fatalf("bit %d of byte %d in the header went unnoticed", bit%8, off)
			}
			list, err := use(r)
			least := 0
			for i, s := range l[:len(l)-1] {
				if s.kind == sectionEvents && l[i+1].off <= off {
					least += int(s.count)
				}
			}
			if len(list) < least {
				t.Fatalf("closed %v, byte %d: %d events, want at least %d (%v)", closed, off, len(list), least, err)
			}
			for i := range list {
				if list[i] != all[i] {
					t.Fatalf("closed %v, byte %d: event %d differs", closed, off, i)
				}
			}
			noticed := err != nil || !r.Stats().Complete
			if !noticed {
				t.Fatalf("closed %v: bit %d of byte %d went unnoticed", closed, bit%8, off)
			}
			var ce *CorruptError
			if err != nil && (!errors.As(err, &ce) || ce.Offset > off) {
				t.Fatalf("closed %v, byte %d: error %v", closed, off, err)
			}
		}
	}
}

func TestNotARecording(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, data string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	future := []byte(appendFileHeader(nil))
	binary.LittleEndian.PutUint32(future[8:], 7)
	binary.LittleEndian.PutUint32(future[12:], crc(future[:12]))
	broken := appendFileHeader(nil)
	broken[9] ^= 4
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "none"), "no such file"},
		{dir, "a directory"},
		{fifo, "not a regular file"},
		{put("empty", ""), "it is empty"},
		{put("short", "\x89HB"), "within its header"},
		{put("text", "hello, this is text"), "not an hbtrace recording"},
		{put("gz", "\x1f\x8b\x08"), "gzip"},
		{put("elf", "\x7fELF\x02\x01\x01"), "ELF"},
		{put("future", string(future)), "version 7, this hbtrace reads version 1"},
		{put("broken", string(broken)), "header section at offset 0: its checksum"},
		{put("header", string(appendFileHeader(nil))), "before any whole section"},
		{put("text-mode", strings.ReplaceAll(string(appendFileHeader(nil)), "\r\n", "\n")), "not an hbtrace"},
	} {
		r, err := Open(c.path)
		if err == nil {
			r.Close()
			t.Errorf("%s: opened", c.path)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want the path and %q in one line", c.path, err, c.want)
		}
	}
	for path, want := range map[string]string{
		dir: "a directory", fifo: "not a regular file", filepath.Join(dir, "no", "x"): "no such file",
	} {
		if _, err := Create(path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("creating %s: %v, want %q", path, err, want)
		}
	}
}

// TestForeignSections: sections of kinds and fields of structs that this version does not know are skipped.
func TestForeignSections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.hbt")
	w, err := Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.put(200, 3, []byte("from the future")); err != nil {
		t.Fatal(err)
	}
	var meta []byte
	add := func(name string, form byte, value ...byte) {
		meta = appendBytes(meta, name)
		meta = append(append(meta, form), value...)
	}
	add("Shiny", formUint, 9)
	add("Host", formBytes, 1, 'h')
	add("Shinier", formBytes, 2, 'x', 'y')
	add("CPUs", formBytes, 1, 'z') // known, in another form
	add("Freq", formInt, 8)
	add("Shiniest", formInt, 8)
	if err := w.put(sectionMeta, 1, appendBytes(nil, meta)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path)
	m := r.Meta()
	if m.Host != "h" || m.Freq != 4 || m.CPUs != 0 {
		t.Errorf("meta = %+v", m)
	}
	if st := r.Stats(); !st.Complete || len(st.Notes) != 1 || !strings.Contains(st.Notes[0], "1 sections of kinds") {
		t.Errorf("stats = %+v", st)
	}
}

// TestOtherVersions: a section of a version that is not read ends the reading, with a line that says which way to go.
func TestOtherVersions(t *testing.T) {
	for version, want := range map[uint8]string{
		sectionEvents.newest() + 1: "it was written by a newer version: it has version 4",
		sectionEvents.oldest() - 1: "it was written by an older version: it has version 2, which this hbtrace no longer reads",
	} {
		data := plain(t)
		var off int64
		for _, s := range layout(t, data) {
			if s.kind == sectionEvents {
				off = s.off
			}
		}
		data[off+1] = version
		r, err := open("x", bytes.NewReader(fixChecksums(data)), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		list, err := use(r)
		want = fmt.Sprintf("recording x cannot be read to its end: events section at offset %d: %s", off, want)
		if len(list) != 0 || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%d events, error %v, want %q", len(list), err, want)
		}
	}
}

// TestReadingAgain: a reading that ends early leaves nothing behind that later ones lack. It ends where the last
// section, which nobody looks at, has been decoded already.
func TestReadingAgain(t *testing.T) {
	data := chunked(t)
	r, err := open("x", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var last, all int
	for _, s := range r.index {
		if s.kind == sectionEvents {
			last = int(s.count)
			all += last
		}
	}
	enough := errors.New("enough")
	for range 3 * workerBatches {
		n := 0
		err := trace.Events(r, func(*trace.Event) error {
			if n++; n < all-last {
				return nil
			}
			for range 1000 {
				runtime.Gosched()
			}
			return enough
		})
		if n != all-last || err != enough {
			t.Fatalf("%d events, %v; wanted %d", n, err, all-last)
		}
	}
	n := 0
	if err := trace.Events(r, func(*trace.Event) error { n++; return nil }); n != all || err != nil {
		t.Errorf("%d events, %v; wanted %d", n, err, all)
	}
}
