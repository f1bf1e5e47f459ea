package symbols

// This file owns what is remembered from run to run: for each build of a module the answers that were given before.
//
// An answer holds for a range of addresses, those of the same line of the same inlined calls, so that the next recording
// of a program, whose samples fall elsewhere in the same functions, finds most of them. What is kept is named after the
// build id and after the files that the answers came from: a debug package that is installed later begins anew.
//
// A file (package diskcache) is proved by a checksum. Whatever is wrong with it, it is as if it were not there.

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/hbtrace/hbtrace/diskcache"
	"github.com/hbtrace/hbtrace/trace"
)

const (
	// cacheMagic changes with the format, and with anything that changes names: the demangler, the rules of shortening.
	cacheMagic      = "hbtsym03"
	cacheHead       = len(cacheMagic) + 4
	maxCacheFile    = 64 << 20
	maxCacheBytes   = 256 << 20 // of all files
	cacheAfterSweep = 192 << 20
	maxCacheRecords = 1 << 20 // of one file
	cacheSuffix     = ".sym"
)

// CacheDir is where answers are kept between runs (diskcache.Dir): HBTRACE_SYMBOL_CACHE turns it off or moves it.
func CacheDir() string { return diskcache.Dir("HBTRACE_SYMBOL_CACHE", "symbols") }

func cacheStore(dir string) diskcache.Store {
	return diskcache.Store{Dir: dir, Suffix: cacheSuffix, MaxFile: maxCacheFile, Limit: maxCacheBytes, Kept: cacheAfterSweep}
}

// cached is one answer: these functions are at every address of [lo, hi).
type cached struct {
	lo, hi uint64
	frames []trace.SymFrame // nil: nothing is there
	used   bool             // by this process
}

// cacheFile is the answers for one build of a module. A nil one knows nothing and keeps nothing.
type cacheFile struct {
	store diskcache.Store
	path  string
	known []cached // by lo, disjoint
	fresh bool     // some are not in the file
}

// openCache reads what is known of a module whose files are images.
func (r *Resolver) openCache(m *module) *cacheFile {
	h := crc32.NewIEEE()
	for _, im := range m.images {
		fmt.Fprintf(h, "%s %d %v %v\n", im.buildID, im.size, im.hasDebugInfo(), im.hasSymtab())
	}
	c := &cacheFile{store: cacheStore(r.o.Cache)}
	if c.path = c.store.Path(m.m.BuildID, fmt.Sprintf("%08x", h.Sum32())); c.path == "" {
		return nil
	}
	if c.known = decodeCache(c.store.Read(c.path)); len(c.known) > 0 {
		c.store.Used(c.path)
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
	return c.store.Write(c.path, encodeCache(c.known))
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
