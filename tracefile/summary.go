// Summaries: what a program that has read all events once leaves in the file for those that come later. A recording is
// closed by then, so a summary goes behind its footer, and a new footer that has both behind that: a file whose writer
// dies in between ends in the old footer and some bytes that are none of ours.
//
// This package does not know what is in a summary. It is one string of bytes, in sections of what one may hold.

package tracefile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hbtrace/hbtrace/outfile"
	"github.com/klauspost/compress/zstd"
)

// summarySectionBytes is how much of a summary a section has.
const summarySectionBytes = 1 << 20

// AppendSummary stores a summary in a recording that was closed and is whole, in place of the one that it has. When it
// cannot be written the recording is as it was.
func AppendSummary(path string, summary []byte) error {
	path, info, err := outfile.Resolve(path)
	if err == nil && info != nil {
		err = info.Ours() // another user's recording is read, and not written to
	}
	if err != nil {
		return fmt.Errorf("adding a summary to recording %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("adding a summary to recording %s: %w", path, err)
	}
	err = appendSummary(f, path, summary)
	return errors.Join(err, f.Close())
}

func appendSummary(f *os.File, path string, summary []byte) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("adding a summary to recording %s: another hbtrace writes to it", path)
	}
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("adding a summary to recording %s: %w", path, err)
	}
	r := sectionReader{f: f, size: st.Size()}
	index, _, err := readFooter(&r)
	if err != nil {
		return fmt.Errorf("adding a summary to recording %s: it is not whole: %w", path, err)
	}
	index = slices.DeleteFunc(index, func(s indexEntry) bool { return s.kind == sectionSummary })
	z, err := zstd.NewWriter(
		nil,
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false),
	)
	if err != nil {
		return fmt.Errorf("adding a summary to recording %s: making a compressor: %w", path, err)
	}
	defer z.Close()
	var out []byte
	for i := 0; i == 0 || len(summary) > 0; i++ {
		part := summary[:min(len(summary), summarySectionBytes)]
		summary = summary[len(part):]
		index = append(index, indexEntry{sectionSummary, st.Size() + int64(len(out)), uint32(i)})
		out = appendSection(out, sectionSummary, 1, i, part, z)
	}
	out = appendFooter(out, index, st.Size()+int64(len(out)))
	if _, err := f.WriteAt(out, st.Size()); err != nil {
		err = fmt.Errorf("adding a summary to recording %s: %w", path, err)
		return errors.Join(err, f.Truncate(st.Size()))
	}
	return nil
}

// Summary is what AppendSummary stored; nil where there is none. It speaks of the events of a whole file, so there is
// none either where the file is damaged: all sections are held against their checksums for that, which takes a
// fraction of a second a GB once the file is in memory.
func (r *Reader) Summary() []byte {
	var summary []byte
	if !r.closed || r.damage != nil {
		return nil
	}
	w := r.workers.take(r)
	defer r.workers.put(w)
	n := uint32(0)
	for _, s := range r.index {
		if s.kind != sectionSummary {
			continue
		}
		h, p, err := w.sectionReader.section(s)
		if err != nil || h.count != n {
			return nil
		}
		summary = append(summary, p...)
		n++
	}
	if n == 0 || !r.intact() {
		return nil
	}
	return summary
}

// intact says whether all sections of events have the checksums that they should have. Others were read.
func (r *Reader) intact() bool {
	var next atomic.Int64
	var bad atomic.Bool
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxWorkers) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w := r.workers.take(r)
			defer r.workers.put(w)
			for !bad.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(r.index) {
					return
				}
				if s := r.index[i]; s.kind == sectionEvents && w.sectionReader.check(s) != nil {
					bad.Store(true)
				}
			}
		}()
	}
	wg.Wait()
	return !bad.Load()
}
