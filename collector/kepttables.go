// Unwind tables kept from run to run (package diskcache), by build id and by what they are made of: the file is still read to the last
// byte of its call frame information, so that a file that was changed and kept its build id gets its own table.
package collector

import (
	"debug/elf"
	"fmt"
	"io"
	"sync"

	"github.com/hbtrace/hbtrace/diskcache"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/unwind"
)

const (
	maxTableFile    = 32 << 20
	maxTableBytes   = 128 << 20 // of all files
	tablesAfterKept = 96 << 20
	// minKeptFrames is how many bytes of call frame information are worth a file: fewer are compiled in less than a millisecond, and
	// programs that are built all day long are mostly smaller.
	minKeptFrames = 32 << 10
)

func tableStore(dir string) diskcache.Store {
	return diskcache.Store{Dir: dir, Suffix: ".unw", MaxFile: maxTableFile, Limit: maxTableBytes, Kept: tablesAfterKept}
}

// keptTables are those of earlier sessions and what this one adds to them. Its methods may be called from several goroutines.
type keptTables struct {
	store diskcache.Store

	mu    sync.Mutex
	fresh []freshTable
}

// keptName is where a table is kept; the zero one: nowhere, or it is there already.
type keptName struct {
	path string
	key  unwind.Key
}

type freshTable struct {
	name keptName
	at   uint64 // in the session's region
}

// table is the table of an ELF file, and where it is to be kept if it was compiled now.
func (k *keptTables) table(f io.ReaderAt) (*unwind.Table, keptName, error) {
	e, err := elf.NewFile(f)
	if err != nil {
		return nil, keptName{}, fmt.Errorf("compile unwind table: %w", err)
	}
	in, err := unwind.ReadInput(e)
	if err != nil {
		return nil, keptName{}, err
	}
	var name keptName
	if in.Bytes() >= minKeptFrames && k.store.Dir != "" {
		if id, err := symbols.BuildID(f); err == nil {
			name.key = in.Key()
			name.path = k.store.Path(id, fmt.Sprintf("%x", name.key[:8])) // the whole key is in the file
		}
	}
	if b := k.store.Read(name.path); b != nil {
		if t, err := unwind.OpenCached(b, name.key); err == nil {
			k.store.Used(name.path)
			return t, keptName{}, nil
		}
	}
	t, err := in.Compile()
	return t, name, err
}

// later has a table of the session's region kept when the session ends: not while a program waits for others.
func (k *keptTables) later(name keptName, at uint64) {
	if name.path == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fresh = append(k.fresh, freshTable{name, at})
}

// save keeps them; region is the session's. That one cannot be kept costs the next session its time, and nothing else.
func (k *keptTables) save(region []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.fresh {
		t, err := unwind.Open(region[f.at:])
		if err == nil {
			err = k.store.Write(f.name.path, t.Cached(f.name.key))
		}
		if err != nil {
			break // no room, or not ours to write: the others would fare no better
		}
	}
	if len(k.fresh) > 0 {
		k.store.Sweep()
	}
	k.fresh = nil
}
