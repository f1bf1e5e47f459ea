// Names for a recording that was stored without them.

package naming

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// File looks up the names of a recording's addresses, and replaces it by one that has them. Debug files are searched
// here, by build id, wherever the program ran. It returns what could not be named, one line each. When anything goes
// wrong the recording is as it was.
func File(path string, o symbols.Options) (notes []string, err error) {
	in, err := tracefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if !in.Stats().Complete && in.Stats().Events == 0 {
		return nil, fmt.Errorf("%s holds no events", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("adding names to %s: %w", path, err)
	}
	tmp.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	w, err := tracefile.Create(tmp.Name(), in.Meta())
	if err != nil {
		return nil, err
	}
	var failed error
	put := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	copyAll(in, w, put)
	r := symbols.NewResolver(o)
	defer r.Close()
	res := Store(w, r, Input{Modules: in.Modules(), Addresses: addresses(in), Stop: o.Stop}, put)
	if res.Unfinished {
		put(errors.New("interrupted"))
	}
	st := *in.Stats()
	put(w.Close(&st))
	if failed != nil {
		return nil, fmt.Errorf("adding names to %s: %w", path, failed)
	}
	if st, e := os.Stat(path); e == nil {
		err = os.Chmod(tmp.Name(), st.Mode().Perm())
	}
	if err = errors.Join(err, os.Rename(tmp.Name(), path)); err != nil {
		return nil, fmt.Errorf("adding names to %s: %w", path, err)
	}
	return res.Notes, nil
}

// copyAll copies everything but names and statistics.
func copyAll(in *tracefile.Reader, w *tracefile.Writer, put func(error)) {
	for _, p := range in.Processes() {
		put(w.PutProcess(&p))
	}
	for _, m := range in.Modules() {
		put(w.PutModule(&m))
	}
	for _, t := range in.Threads() {
		put(w.PutThread(&t))
	}
	for id := trace.StackID(1); int(id) <= in.Nodes(); id++ {
		put(w.PutNode(id, in.Node(id)))
	}
	put(trace.Events(in, func(e *trace.Event) error { return w.PutEvent(e) }))
	put(w.Flush())
	// What has names already keeps them where none are found here.
	kept := map[trace.ModuleID]map[uint64][]trace.SymFrame{}
	for id := trace.StackID(1); int(id) <= in.Nodes(); id++ {
		if n := in.Node(id); n.Addr.Module != 0 {
			if frames := in.Symbols(id); len(frames) > 0 {
				if kept[n.Addr.Module] == nil {
					kept[n.Addr.Module] = map[uint64][]trace.SymFrame{}
				}
				kept[n.Addr.Module][n.Lookup()] = frames
			}
		}
	}
	for m, by := range kept {
		var addrs []uint64
		for a := range by {
			addrs = append(addrs, a)
		}
		slices.Sort(addrs)
		var frames [][]trace.SymFrame
		for _, a := range addrs {
			frames = append(frames, by[a])
		}
		put(w.PutSymbols(m, addrs, frames))
	}
}

// addresses lists the addresses of frames that have no name yet, by module.
func addresses(in *tracefile.Reader) map[trace.ModuleID][]uint64 {
	by := map[trace.ModuleID][]uint64{}
	for id := trace.StackID(1); int(id) <= in.Nodes(); id++ {
		if n := in.Node(id); n.How != trace.HowMark && n.Addr.Module != 0 && len(in.Symbols(id)) == 0 {
			by[n.Addr.Module] = append(by[n.Addr.Module], n.Lookup())
		}
	}
	return by
}
