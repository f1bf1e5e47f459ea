package symbols

// This file owns what is remembered from run to run: for each build of a module the answers that were given before.
//
// An answer holds for a range of addresses, those of the same line of the same inlined calls, so that the next recording
// of a program, whose samples fall elsewhere in the same functions, finds most of them. What is kept is named after the
// build id and after the files that the answers came from: a debug package that is installed later begins anew.
//
// A file is read whole, proved by a checksum, and replaced by a new one under its name: of two processes that do so at once
// one wins, and nobody reads half of anything. Whatever is wrong with it, it is as if it were not there.

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	// cacheMagic changes with the format, and with anything that changes names: the demangler, the rules of shortening.
	cacheMagic      = "hbtsym02"
	cacheHead       = len(cacheMagic) + 4
	maxCacheFile    = 64 << 20
	maxCacheBytes   = 256 << 20 // of all files
	cacheAfterSweep = 192 << 20
	maxCacheRecords = 1 << 20 // of one file
	maxCacheFiles   = 1 << 16 // that a sweep looks at
	cacheSuffix     = ".sym"
)

// CacheDir is where answers are kept between runs: the directory that HBTRACE_SYMBOL_CACHE names, else hbtrace/symbols in
// XDG_CACHE_HOME or ~/.cache; "" (nothing is kept) when HBTRACE_SYMBOL_CACHE is "off" or there is no such place.
func CacheDir() string {
	switch v := os.Getenv("HBTRACE_SYMBOL_CACHE"); v {
	case "":
	case "off", "0", "no":
		return ""
	default:
		return v
	}
	base, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(base) {
		return ""
	}
	return filepath.Join(base, "hbtrace", "symbols")
}

// cached is one answer: these functions are at every address of [lo, hi).
type cached struct {
	lo, hi uint64
	frames []trace.SymFrame // nil: nothing is there
	used   bool             // by this process
}

// cacheFile is the answers for one build of a module. A nil one knows nothing and keeps nothing.
type cacheFile struct {
	path  string
	known []cached // by lo, disjoint
	fresh bool     // some are not in the file
}

// openCache reads what is known of a module whose files are images.
func (r *Resolver) openCache(m *module) *cacheFile {
	id := m.m.BuildID
	if r.o.Cache == "" || !isBuildID(id) || len(id) < 16 {
		return nil
	}
	h := crc32.NewIEEE()
	for _, im := range m.images {
		fmt.Fprintf(h, "%s %d %v %v\n", im.buildID, im.size, im.hasDebugInfo(), im.hasSymtab())
	}
	c := &cacheFile{path: filepath.Join(r.o.Cache, id[:2], fmt.Sprintf("%s-%08x%s", id[2:], h.Sum32(), cacheSuffix))}
	f, err := openRegular(c.path)
	if err != nil {
		return c
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxCacheFile+1))
	if err != nil || len(b) > maxCacheFile {
		return c
	}
	c.known = decodeCache(b)
	if len(c.known) > 0 {
		now := time.Now()
		_ = os.Chtimes(c.path, now, now) // sweep takes those first that were not used for long
	}
	return c
}

// find returns the answer for an address; ok is false when there is none.
func (c *cacheFile) find(addr uint64) (frames []trace.SymFrame, ok bool) {
	if c == nil {
		return nil, false
	}
	i, exact := slices.BinarySearchFunc(c.known, addr, func(k cached, a uint64) int { return cmp.Compare(k.lo, a) })
	if !exact {
		i--
	}
	if i < 0 || addr >= c.known[i].hi {
		return nil, false
	}
	c.known[i].used = true
	return c.known[i].frames, true
}

// add keeps answers. Where they overlap older ones, the older ones stay.
func (c *cacheFile) add(more []cached) {
	if c == nil || len(more) == 0 {
		return
	}
	c.fresh = true
	all := append(c.known, more...)
	slices.SortStableFunc(all, func(a, b cached) int { return cmp.Compare(a.lo, b.lo) })
	c.known = all[:0]
	for _, k := range all {
		if n := len(c.known); k.lo < k.hi && (n == 0 || c.known[n-1].hi <= k.lo) {
			c.known = append(c.known, k)
		}
	}
	if len(c.known) > maxCacheRecords {
		c.known = slices.DeleteFunc(c.known, func(k cached) bool { return !k.used })
	}
	if len(c.known) > maxCacheRecords {
		c.known = c.known[:maxCacheRecords]
	}
}

// save replaces the file. That it cannot is no loss.
func (c *cacheFile) save() error {
	if c == nil || !c.fresh {
		return nil
	}
	c.fresh = false
	b := encodeCache(c.known)
	if len(b) > maxCacheFile {
		return nil
	}
	dir := filepath.Dir(c.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Under sudo the home can be somebody else's: files of ours would be in the way there.
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return err
	}
	tmp, err := os.CreateTemp(dir, "new-*"+cacheSuffix)
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), c.path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// sweepCache deletes what was not used for longest, when the files are more than limit bytes, until they are at most to.
func sweepCache(dir string, limit, to int64) {
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	var total int64
	subs, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, s := range subs {
		if !s.IsDir() || len(s.Name()) != 2 {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(dir, s.Name()))
		if err != nil {
			continue
		}
		for _, e := range entries {
			st, err := e.Info()
			if err != nil || !st.Mode().IsRegular() || !strings.HasSuffix(e.Name(), cacheSuffix) || len(files) >= maxCacheFiles {
				continue
			}
			files = append(files, file{filepath.Join(dir, s.Name(), e.Name()), st.Size(), st.ModTime()})
			total += st.Size()
		}
	}
	if total <= limit && len(files) < maxCacheFiles {
		return
	}
	slices.SortFunc(files, func(a, b file) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if total <= to && len(files) < maxCacheFiles {
			return
		}
		if os.Remove(f.path) == nil {
			total -= f.size
		}
		files = files[:len(files)-1] // only their number counts from here on
	}
}

// encodeCache writes: magic, CRC-32 of the rest, strings, answers. Numbers are varints; addresses are differences.
func encodeCache(known []cached) []byte {
	index := map[string]uint64{}
	var strs, body []byte
	str := func(s string) {
		i, ok := index[s]
		if !ok {
			i = uint64(len(index))
			index[s] = i
			strs = append(binary.AppendUvarint(strs, uint64(len(s))), s...)
		}
		body = binary.AppendUvarint(body, i)
	}
	last := uint64(0)
	for _, k := range known {
		body = binary.AppendUvarint(body, k.lo-last)
		body = binary.AppendUvarint(body, k.hi-k.lo)
		body = binary.AppendUvarint(body, uint64(len(k.frames)))
		last = k.hi
		for _, f := range k.frames {
			str(f.Func)
			str(f.Linkage)
			str(f.File)
			body = binary.AppendUvarint(body, uint64(f.Line))
		}
	}
	out := make([]byte, cacheHead, cacheHead+len(strs)+len(body)+32)
	copy(out, cacheMagic)
	out = binary.AppendUvarint(out, uint64(len(index)))
	out = append(out, strs...)
	out = binary.AppendUvarint(out, uint64(len(known)))
	out = append(out, body...)
	binary.LittleEndian.PutUint32(out[len(cacheMagic):], crc32.ChecksumIEEE(out[cacheHead:]))
	return out
}

// decodeCache reads what encodeCache wrote; nil for anything else.
func decodeCache(b []byte) []cached {
	if len(b) < cacheHead || string(b[:len(cacheMagic)]) != cacheMagic || binary.LittleEndian.Uint32(b[len(cacheMagic):]) != crc32.ChecksumIEEE(b[cacheHead:]) {
		return nil
	}
	c := cursor{b: b, at: cacheHead}
	n := c.uleb()
	if n > uint64(c.left()) {
		return nil
	}
	strs := make([]string, n)
	for i := range strs {
		strs[i] = string(c.take(c.uleb()))
	}
	if n = c.uleb(); n > uint64(c.left()) || n > maxCacheRecords {
		return nil
	}
	known := make([]cached, 0, n)
	str := func() string {
		if i := c.uleb(); i < uint64(len(strs)) {
			return strs[i]
		}
		c.bad = true
		return ""
	}
	last := uint64(0)
	for range n {
		lo := last + c.uleb()
		hi := lo + c.uleb()
		k := c.uleb()
		if c.bad || lo < last || hi <= lo || k > maxInline || k > uint64(c.left()) {
			return nil
		}
		var fs []trace.SymFrame
		if k > 0 {
			fs = make([]trace.SymFrame, k)
		}
		for i := range fs {
			fs[i] = trace.SymFrame{Func: str(), Linkage: str(), File: str(), Line: int(c.uleb() & (1<<31 - 1)), Inlined: uint64(i)+1 < k}
			if fs[i].Func == "" {
				return nil
			}
		}
		known = append(known, cached{lo: lo, hi: hi, frames: fs})
		last = hi
	}
	if c.bad || c.left() != 0 {
		return nil
	}
	return known
}
