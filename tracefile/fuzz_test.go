package tracefile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

// FuzzOpen opens anything at all. Half of the inputs get checksums that fit, section by section, so that what is
// behind the checksums is reached too.
func FuzzOpen(f *testing.F) {
	data := chunked(f)
	f.Add(data, false)
	f.Add(data, true)
	f.Add(data[:len(data)/2], true)
	f.Add(plain(f), true)
	f.Add(summarised(f), true)
	again, _ := recycled(f, 400, 40)
	f.Add(again, true)
	if old, err := os.ReadFile("testdata/recording-v3.golden"); err == nil {
		f.Add(old, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, fix bool) {
		if fix {
			data = fixChecksums(data)
		}
		r, err := open("x", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		defer r.Close()
		list, _ := use(r)
		r.Summary()
		// What a decoder makes of a payload is bounded by what the payload may decompress to.
		if most := len(data) * maxRatio; len(list) > most || r.Nodes() > most || len(r.Processes())+len(r.Threads()) > most {
			t.Errorf("%d bytes became %d events and %d nodes", len(data), len(list), r.Nodes())
		}
	})
}

// summarised is a recording with a summary.
func summarised(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.hbt")
	if err := os.WriteFile(path, plain(t), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := AppendSummary(path, []byte("summary")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// plain is a recording whose sections are too small to be compressed, so that changed bytes mean something.
func plain(t testing.TB) []byte {
	t.Helper()
	f := &memFile{limit: 1 << 20}
	src := sample(4)
	w, err := newWriter(
		"x",
		f,
		&trace.Meta{Version: "v", Command: []string{"a"}, Hooks: map[trace.HookID]trace.HookInfo{3: {Name: "n"}}},
	)
	if err == nil {
		err = copyTo(w, src)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.data
}

// fixChecksums makes the checksums of the file header and of all sections that are found in sequence fit.
func fixChecksums(in []byte) []byte {
	data := bytes.Clone(in)
	le := func(p []byte, v uint32) { p[0], p[1], p[2], p[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24) }
	if len(data) < fileHeaderBytes {
		return data
	}
	copy(data, fileMagic)
	le(data[8:], fileVersion)
	le(data[12:], crc(data[:12]))
	for off := fileHeaderBytes; len(data)-off >= sectionHeaderBytes; {
		h := data[off : off+sectionHeaderBytes]
		body := data[off+sectionHeaderBytes:]
		n := uint64(h[4]) | uint64(h[5])<<8 | uint64(h[6])<<16 | uint64(h[7])<<24
		if n > uint64(len(body)) {
			le(h[4:], uint32(len(body)))
			n = uint64(len(body))
		}
		if h[2] == 0 {
			le(h[8:], uint32(n))
		}
		if sectionKind(h[0]) == sectionFooter && n >= trailerBytes {
			t := body[n-trailerBytes : n]
			le(t[8:], crc(t[:8]))
		}
		le(h[16:], crc(body[:n]))
		le(h[20:], crc(h[:20]))
		off += sectionHeaderBytes + int(n)
	}
	return data
}

func FuzzDecodeBatch(f *testing.F) {
	var b Batch
	for _, e := range []trace.Event{{}, fullEvent(1), fullEvent(-1), typical(0), typical(8), typical(1), typical(2)} {
		b.Add(&e)
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var d BatchDecoder
		var again Batch
		var list []trace.Event
		if d.Decode(p, func(e *trace.Event) error { list = append(list, *e); again.Add(e); return nil }) != nil ||
			len(list) == 0 {
			return
		}
		if len(list) > len(p) {
			t.Fatalf("%d bytes became %d events", len(p), len(list))
		}
		i := 0
		err := d.Decode(again.Bytes(), func(e *trace.Event) error {
			if *e != list[i] {
				t.Fatalf("%+v became %+v", list[i], *e)
			}
			i++
			return nil
		})
		if err != nil || i != len(list) {
			t.Fatalf("%d events of %d, %v", i, len(list), err)
		}
	})
}
