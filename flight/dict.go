// The dictionary: what events refer to by number.
//
// The file is a header and records: length uint32, CRC-32C uint32 of what follows, kind uint8, payload. A later record
// of one number replaces an earlier one. A torn record at the end is ignored: whoever writes dies at any moment.

package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

const (
	dictMagic = "hbtdict1"

	dictMeta    = 'M'
	dictProcess = 'p'
	dictThread  = 't'
	dictModule  = 'm'
	dictNodes   = 'n' // for each: id, parent, module, off as uvarints, how uint8

	dictHeader    = 9
	nodesPerEntry = 4096
	maxDictEntry  = 16 << 20
	maxNode       = 1 << 27 // no stack table is larger
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dictWriter appends to a dictionary file.
type dictWriter struct {
	f       *os.File
	size    int64
	pending []byte // records that are not written yet
	nodes   []byte // of the record of nodes in the making
	count   int    // in nodes
	scratch []byte
}

func createDict(path string) (*dictWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the dictionary: %w", err)
	}
	return &dictWriter{f: f, pending: []byte(dictMagic)}, nil
}

func (d *dictWriter) record(kind byte, payload []byte) {
	at := len(d.pending)
	d.pending = append(d.pending, 0, 0, 0, 0, 0, 0, 0, 0, kind)
	d.pending = append(d.pending, payload...)
	binary.LittleEndian.PutUint32(d.pending[at:], uint32(1+len(payload)))
	binary.LittleEndian.PutUint32(d.pending[at+4:], crc32.Checksum(d.pending[at+8:], castagnoli))
}

// putItem takes a struct into the dictionary.
func putItem[T tracefile.Item](d *dictWriter, kind byte, v *T) {
	d.scratch = tracefile.AppendItem(d.scratch[:0], v)
	d.record(kind, d.scratch)
}

func (d *dictWriter) putNode(id trace.StackID, n trace.Node) {
	d.nodes = binary.AppendUvarint(d.nodes, uint64(id))
	d.nodes = binary.AppendUvarint(d.nodes, uint64(n.Parent))
	d.nodes = binary.AppendUvarint(d.nodes, uint64(n.Addr.Module))
	d.nodes = binary.AppendUvarint(d.nodes, n.Addr.Off)
	d.nodes = append(d.nodes, byte(n.How))
	if d.count++; d.count == nodesPerEntry {
		d.endNodes()
	}
}

func (d *dictWriter) endNodes() {
	if d.count > 0 {
		d.record(dictNodes, d.nodes)
		d.nodes, d.count = d.nodes[:0], 0
	}
}

// flush writes what was put. After an error the file ends in its last whole record.
func (d *dictWriter) flush() error {
	d.endNodes()
	if len(d.pending) == 0 {
		return nil
	}
	if _, err := d.f.WriteAt(d.pending, d.size); err != nil {
		return errors.Join(fmt.Errorf("writing the dictionary: %w", err), d.f.Truncate(d.size))
	}
	d.size += int64(len(d.pending))
	d.pending = d.pending[:0]
	if cap(d.pending) > 1<<20 {
		d.pending = nil
	}
	return nil
}

func (d *dictWriter) close() error { return d.f.Close() }

// dictionary is what a dictionary file says.
type dictionary struct {
	meta    trace.Meta
	procs   map[trace.ProcID]trace.Process
	threads map[trace.ThreadID]trace.Thread
	modules map[trace.ModuleID]trace.Module
	nodes   []trace.Node // by id; the zero Node: none
}

// readDict reads the dictionary of a session as it is at this moment.
func readDict(dir string) (*dictionary, error) {
	b, err := os.ReadFile(filepath.Join(dir, dictName))
	if err != nil {
		return nil, fmt.Errorf("reading the dictionary: %w", err)
	}
	if len(b) < len(dictMagic) || string(b[:len(dictMagic)]) != dictMagic {
		return nil, fmt.Errorf("reading the dictionary: %s is not one", filepath.Join(dir, dictName))
	}
	d := &dictionary{
		procs: map[trace.ProcID]trace.Process{}, threads: map[trace.ThreadID]trace.Thread{},
		modules: map[trace.ModuleID]trace.Module{},
	}
	hasMeta := false
	for p := b[len(dictMagic):]; len(p) >= dictHeader; {
		n := binary.LittleEndian.Uint32(p)
		if n == 0 || n > maxDictEntry || int(n) > len(p)-8 {
			break
		}
		body := p[8 : 8+n]
		if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(p[4:]) {
			break
		}
		p = p[8+n:]
		switch payload := body[1:]; body[0] {
		case dictMeta:
			d.meta = trace.Meta{}
			hasMeta = tracefile.DecodeItem(payload, &d.meta) == nil
		case dictProcess:
			takeItem(d.procs, payload, func(p *trace.Process) trace.ProcID { return p.ID })
		case dictThread:
			takeItem(d.threads, payload, func(t *trace.Thread) trace.ThreadID { return t.ID })
		case dictModule:
			takeItem(d.modules, payload, func(m *trace.Module) trace.ModuleID { return m.ID })
		case dictNodes:
			d.takeNodes(payload)
		}
	}
	if !hasMeta {
		return nil, errors.New("reading the dictionary: it ends before it says what is recorded")
	}
	return d, nil
}

func takeItem[T tracefile.Item, K comparable](m map[K]T, payload []byte, id func(*T) K) {
	var v T
	if tracefile.DecodeItem(payload, &v) == nil {
		m[id(&v)] = v
	}
}

func (d *dictionary) takeNodes(p []byte) {
	next := func() uint64 {
		v, n := binary.Uvarint(p)
		if n <= 0 {
			p = nil
			return 0
		}
		p = p[n:]
		return v
	}
	for len(p) > 0 {
		id := trace.StackID(next())
		n := trace.Node{Parent: trace.StackID(next()), Addr: trace.Addr{Module: trace.ModuleID(next()), Off: next()}}
		if len(p) == 0 || id == 0 || id > maxNode {
			return
		}
		n.How = trace.How(p[0])
		p = p[1:]
		if int(id) >= len(d.nodes) {
			d.nodes = append(d.nodes, make([]trace.Node, int(id)+1-len(d.nodes))...)
		}
		d.nodes[id] = n
	}
}
