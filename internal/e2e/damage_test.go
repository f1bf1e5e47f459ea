package e2e

// damage_test.go: every view and export of a recording that is damaged, cut, or well-formed nonsense. None may
// panic, hang or take memory out of proportion.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/hbtrace/hbtrace/visualize/folded"
	"github.com/hbtrace/hbtrace/visualize/perfetto"
	"github.com/hbtrace/hbtrace/visualize/picture"
	"github.com/hbtrace/hbtrace/visualize/pprof"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// showing is one way to look at a recording.
type showing struct {
	name  string
	write func(io.Writer, trace.Source) error
}

func showings() []showing {
	var all []showing
	for _, view := range report.Views {
		all = append(all, showing{"report --" + string(view), func(w io.Writer, src trace.Source) error {
			return report.Write(w, src, view, report.Options{})
		}})
	}
	return append(all,
		showing{"report --json", func(w io.Writer, src trace.Source) error {
			return report.Write(w, src, report.ViewSummary, report.Options{JSON: true})
		}},
		showing{"export --pprof", func(w io.Writer, src trace.Source) error { return pprof.Write(w, src, pprof.Options{}) }},
		showing{"export --perfetto", func(w io.Writer, src trace.Source) error { return perfetto.Write(w, src, perfetto.Options{}) }},
		showing{"export --folded", func(w io.Writer, src trace.Source) error { return folded.Write(w, src, folded.Options{}) }},
		showing{"export --timeline-svg", func(w io.Writer, src trace.Source) error { return picture.Timeline(w, src, picture.Options{}) }},
		showing{"export --flame-svg", func(w io.Writer, src trace.Source) error { return picture.Flame(w, src, picture.FlameOptions{}) }},
	)
}

// What one look at a recording of a few 10 kB may cost at most: limits against runaways, not measurements.
const (
	mostTime  = time.Minute
	mostBytes = 256 << 20
)

// lookAtAll shows a recording in every way. Refusing it is right, and so is ending early with an error.
func lookAtAll(t *testing.T, what, path string) (opened bool) {
	t.Helper()
	r, err := tracefile.Open(path)
	if err != nil {
		return false
	}
	defer r.Close()
	for _, s := range showings() {
		func() {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			hung := time.AfterFunc(6*mostTime, func() { panic(fmt.Sprintf("%s of %s does not end", s.name, what)) })
			defer hung.Stop()
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s of %s: panic: %v", s.name, what, p)
				}
			}()
			err := s.write(io.Discard, r)
			runtime.ReadMemStats(&after)
			if took := time.Since(begun); took > mostTime {
				t.Errorf("%s of %s took %v (%v)", s.name, what, took, err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > mostBytes {
				t.Errorf("%s of %s allocated %d MB (%v)", s.name, what, n>>20, err)
			}
		}()
	}
	return true
}

// recordSmall is the bytes of a real recording with threads, locks, calls, allocations and several processes.
func recordSmall(t *testing.T) []byte {
	t.Helper()
	bash := testprog.LookPath(t, "bash", "bash")
	s := start(t, testprog.Command{Args: []string{bash, "-c", `"$0" 0.4; (exit 3); sleep 0.01`, demo(t)}})
	s.finish(t)
	s.openTrace(t)
	data, err := os.ReadFile(s.prefix + ".hbt")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDamageAnywhere flips bits of a real recording, and cuts it, at random places: checksums find most of it.
func TestDamageAnywhere(t *testing.T) {
	good := recordSmall(t)
	path := filepath.Join(t.TempDir(), "damaged.hbt")
	random := rand.New(rand.NewSource(1))
	opened := 0
	for i := range 500 {
		data := bytes.Clone(good)
		if i%5 == 4 {
			data = data[:random.Intn(len(data))]
		} else {
			for range 1 + i%3 {
				data[random.Intn(len(data))] ^= 1 << random.Intn(8)
			}
		}
		write(t, path, string(data))
		if lookAtAll(t, fmt.Sprintf("damage %d", i), path) {
			opened++
		}
	}
	if opened < 100 {
		t.Errorf("only %d of 500 damaged recordings could be opened at all", opened)
	}
}

// TestNonsenseWithGoodChecksums flips bits of what sections hold and gives them checksums that match: what a hostile
// or buggy writer would leave.
func TestNonsenseWithGoodChecksums(t *testing.T) {
	sections := unpack(t, recordSmall(t))
	path := filepath.Join(t.TempDir(), "nonsense.hbt")
	write(t, path, string(pack(sections)))
	if err := validate.File(path); err != nil {
		t.Fatalf("a recording that was taken apart and put together again, unchanged: %v", err)
	}
	random := rand.New(rand.NewSource(2))
	opened := 0
	for i := range 500 {
		changed := make([]section, len(sections))
		copy(changed, sections)
		for range 1 + i%4 {
			// each kind of section is met as often as the others, whatever their sizes
			n := random.Intn(len(changed))
			if len(changed[n].payload) == 0 {
				continue
			}
			p := bytes.Clone(changed[n].payload)
			switch at := random.Intn(len(p)); random.Intn(4) {
			case 0:
				p[at] = 0xff
			case 1: // as large a number as there can be
				copy(p[at:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
			case 2:
				p[at] = 0
			default:
				p[at] ^= 1 << random.Intn(8)
			}
			changed[n].payload = p
		}
		write(t, path, string(pack(changed)))
		if lookAtAll(t, fmt.Sprintf("nonsense %d", i), path) {
			opened++
		}
	}
	if opened < 50 {
		t.Errorf("only %d of 500 recordings could be opened at all", opened)
	}
}

// section is one section of a recording (docs/design/trace-file.md), decompressed.
type section struct {
	header  [24]byte
	payload []byte
}

const (
	fileHeaderBytes = 16
	kindFooter      = 9
)

// unpack splits a recording into its sections but the footer, without which a reader walks through the file.
func unpack(t *testing.T, data []byte) []section {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var all []section
	for at := fileHeaderBytes; at+24 <= len(data); {
		var s section
		copy(s.header[:], data[at:])
		stored := int(binary.LittleEndian.Uint32(s.header[4:]))
		if s.header[0] == kindFooter || at+24+stored > len(data) {
			break
		}
		s.payload = data[at+24 : at+24+stored]
		if s.header[2] == 1 {
			if s.payload, err = z.DecodeAll(s.payload, nil); err != nil {
				t.Fatalf("decompressing the section at %d: %v", at, err)
			}
		}
		all = append(all, s)
		at += 24 + stored
	}
	if len(all) < 7 {
		t.Fatalf("%d sections in the recording", len(all))
	}
	return all
}

// pack is the reverse of unpack; nothing is compressed.
func pack(sections []section) []byte {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	out := []byte("\x89HBT\r\n\x1a\n\x01\x00\x00\x00")
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
	for _, s := range sections {
		h := s.header
		h[2] = 0
		binary.LittleEndian.PutUint32(h[4:], uint32(len(s.payload)))
		binary.LittleEndian.PutUint32(h[8:], uint32(len(s.payload)))
		binary.LittleEndian.PutUint32(h[16:], crc32.Checksum(s.payload, castagnoli))
		binary.LittleEndian.PutUint32(h[20:], crc32.Checksum(h[:20], castagnoli))
		out = append(append(out, h[:]...), s.payload...)
	}
	return out
}
