package symbols

// This file owns names of code that a process made while it ran, from what its runtime wrote about it: a perf map
// (/tmp/perf-PID.map: "START SIZE name", hexadecimal) or a jitdump (tools/perf/Documentation/jitdump-specification.txt in
// Linux).
//
// Such a file may be large and few of its functions are ever sampled, so it is streamed past the addresses that are
// asked for: memory depends on these alone. A runtime that frees code uses its addresses again; which function had one
// when it was sampled is not known afterwards, so such an address gets both names.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	maxCodeBytes = 4 << 30   // of one file
	maxCodeSize  = 128 << 20 // of one function: V8's whole range is as large
	maxCodeName  = 8 << 10   // bytes
	maxCodeLine  = 64 << 10
	maxCodeNames = 3        // of one address
	maxCodeKept  = 16 << 20 // bytes of names that moved code may need
	jitMagic     = 0x4a695444
)

// CodeFile is a perf map or a jitdump of the process whose memory a module of kind [trace.ModuleAnon] is.
type CodeFile struct {
	Name string // for notes
	PID  int    // that a jitdump has to be of: in its own pid namespace; 0 any
	File io.ReadCloser
}

// code collects names for addresses.
type code struct {
	addrs []uint64 // sorted, distinct
	names [][]trace.SymFrame
	more  []int // names beyond maxCodeNames
	bad   int   // entries that make no sense
}

// code names addrs, which are sorted and distinct, of a module without file.
func (r *Resolver) code(m *module, addrs []uint64) [][]trace.SymFrame {
	out := make([][]trace.SymFrame, len(addrs))
	if r.o.Code == nil {
		return out
	}
	c := &code{addrs: addrs, names: make([][]trace.SymFrame, len(addrs)), more: make([]int, len(addrs))}
	for _, f := range r.o.Code(m.m) {
		c.bad = 0
		err := guarded(func() {
			if err := c.read(f); err != nil {
				r.note("%s: %v", f.Name, err)
			}
		})
		if err != nil {
			r.note("%s: %v", f.Name, err)
		}
		if c.bad > 0 {
			r.note("%s: %d entries make no sense and were left out", f.Name, c.bad)
		}
		f.File.Close() // it was only read
	}
	for i := range addrs {
		if f := c.frame(i); f.Func != "" {
			out[i] = []trace.SymFrame{f}
		}
	}
	return out
}

// frame is what address i is called.
func (c *code) frame(i int) trace.SymFrame {
	n := c.names[i]
	switch len(n) {
	case 0:
		return trace.SymFrame{}
	case 1:
		return n[0]
	}
	slices.Reverse(n) // the one that was there last first
	var s []string
	for _, f := range n {
		s = append(s, f.Func)
	}
	all := strings.Join(s, " or ")
	if c.more[i] > 0 {
		all += fmt.Sprintf(" or %d more", c.more[i])
	}
	return trace.SymFrame{Func: cut(all), Linkage: cut(all)}
}

// add says that [lo, lo+size) is a function. An entry that no function can be is left out.
func (c *code) add(lo, size uint64, name []byte) {
	hi := lo + size
	if size == 0 || size > maxCodeSize || hi < lo || len(name) == 0 || len(name) > maxCodeName {
		c.bad++
		return
	}
	i, _ := slices.BinarySearch(c.addrs, lo)
	if i == len(c.addrs) || c.addrs[i] >= hi {
		return
	}
	f := codeName(strings.ToValidUTF8(string(name), "\uFFFD"))
	for ; i < len(c.addrs) && c.addrs[i] < hi; i++ {
		n := c.names[i]
		k := slices.IndexFunc(n, func(o trace.SymFrame) bool { return o.Func == f.Func && o.File == f.File && o.Line == f.Line })
		switch {
		case k >= 0:
			c.names[i] = append(slices.Delete(n, k, k+1), f)
		case len(n) < maxCodeNames:
			c.names[i] = append(n, f)
		default:
			c.more[i]++
			c.names[i] = append(slices.Delete(n, 0, 1), f)
		}
	}
}

// tiers are what V8 puts before the names of functions of JavaScript: which kind of code, and how far optimised.
var tiers = []string{"LazyCompile:", "Function:", "JS:", "Script:", "Eval:"}

// codeName splits what V8 writes, "LazyCompile:*name /file.js:3:12", so that a function is the same one in every tier.
func codeName(s string) trace.SymFrame {
	f := trace.SymFrame{Func: cut(s), Linkage: s}
	for _, t := range tiers {
		rest, ok := strings.CutPrefix(s, t)
		if !ok || rest == "" {
			continue
		}
		if strings.IndexByte("~^+*", rest[0]) >= 0 {
			rest = rest[1:]
		}
		name, at := rest, ""
		if i := strings.IndexByte(rest, ' '); i >= 0 {
			name, at = rest[:i], rest[i+1:]
		}
		file, line := at, 0
		if i := strings.LastIndexByte(file, ':'); i > 0 { // the column
			if k := strings.LastIndexByte(file[:i], ':'); k > 0 {
				if n, err := strconv.Atoi(file[k+1 : i]); err == nil && n >= 0 && n < 1<<31 {
					file, line = file[:k], n
				}
			}
		}
		if name == "" {
			name = "(anonymous)"
		}
		f.Func, f.File, f.Line = cut(name), strings.TrimPrefix(file, "file://"), line
		break
	}
	return f
}

func (c *code) read(f CodeFile) error {
	b := bufio.NewReaderSize(io.LimitReader(f.File, maxCodeBytes), maxCodeLine)
	head, err := b.Peek(40)
	if len(head) >= 4 {
		for _, o := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			if o.Uint32(head) == jitMagic {
				if len(head) < 40 {
					return fmt.Errorf("jitdump ends in its header: %w", err)
				}
				return c.readDump(f, b, o)
			}
		}
	}
	return c.readMap(b)
}

// readMap reads a perf map. A last line that has no end may be cut, and is left out.
func (c *code) readMap(b *bufio.Reader) error {
	for {
		line, err := b.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			c.bad++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = b.ReadSlice('\n')
			}
			if err == nil {
				continue
			}
		}
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				c.bad++
			}
			return nil
		}
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		lo, rest, ok1 := bytes.Cut(bytes.TrimLeft(line, " \t"), []byte(" "))
		size, name, ok2 := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
		start, err1 := hexNumber(lo)
		n, err2 := hexNumber(size)
		if !ok1 || !ok2 || err1 != nil || err2 != nil {
			if len(line) > 0 {
				c.bad++
			}
			continue
		}
		c.add(start, n, bytes.TrimSpace(name))
	}
}

func hexNumber(b []byte) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(string(b), "0x"), 16, 64)
}

// readDump reads a jitdump. Line numbers in it are not used: runtimes disagree on what their addresses count from (V8
// adds the size of the ELF header that perf inject will put before the code).
func (c *code) readDump(f CodeFile, b *bufio.Reader, o binary.ByteOrder) error {
	var head [40]byte
	if _, err := io.ReadFull(b, head[:]); err != nil {
		return err
	}
	if pid := int(o.Uint32(head[20:])); f.PID != 0 && pid != f.PID {
		return fmt.Errorf("is of process %d, not %d: not used", pid, f.PID)
	}
	if skip := int64(o.Uint32(head[8:])) - int64(len(head)); skip < 0 || skip > maxCodeLine {
		return errors.New("jitdump header makes no sense")
	} else if _, err := b.Discard(int(skip)); err != nil {
		return err
	}
	loaded := map[uint64][]byte{} // names of code by index, for moves
	kept := 0
	for {
		var h [16]byte
		if _, err := io.ReadFull(b, h[:]); err != nil {
			return nil // its end, or a record in the making
		}
		id, size := o.Uint32(h[:]), o.Uint32(h[4:])
		if size < 16 {
			c.bad++
			return nil // no more records can be found
		}
		left := int(size - 16)
		switch id {
		case 0: // JIT_CODE_LOAD: pid, tid, vma, address, size, index, name, code
			var r [40]byte
			if left < len(r)+1 {
				c.bad++
				break
			}
			if _, err := io.ReadFull(b, r[:]); err != nil {
				return nil
			}
			left -= len(r)
			addr, n, index := o.Uint64(r[16:]), o.Uint64(r[24:]), o.Uint64(r[32:])
			name, err := b.Peek(min(left, maxCodeName+1))
			end := bytes.IndexByte(name, 0)
			if end < 0 || uint64(left-end-1) < n && left-end-1 != 0 {
				if c.bad++; err != nil {
					return nil
				}
				break
			}
			if kept < maxCodeKept {
				loaded[index] = bytes.Clone(name[:end])
				kept += end + 64
			}
			c.add(addr, n, name[:end])
		case 1: // JIT_CODE_MOVE: pid, tid, vma, old, new, size, index
			var r [48]byte
			if left < len(r) {
				c.bad++
				break
			}
			if _, err := io.ReadFull(b, r[:]); err != nil {
				return nil
			}
			left -= len(r)
			if name, ok := loaded[o.Uint64(r[40:])]; ok {
				c.add(o.Uint64(r[24:]), o.Uint64(r[32:]), name)
			}
		}
		if _, err := b.Discard(left); err != nil {
			return nil
		}
	}
}
