package symbols

// This file owns Resolver: which file stands for a module, and what of it is used.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hbtrace/hbtrace/trace"
)

const (
	defaultDebugDir = "/usr/lib/debug"
	maxNotes        = 1000
	maxUnitNotes    = 3 // problems told of per module; the rest is counted
	deletedSuffix   = " (deleted)"
)

// Options say where a Resolver looks. The zero value looks at this mount namespace and at /usr/lib/debug.
type Options struct {
	DebugDirs []string // directories of separate debug files; nil means /usr/lib/debug
	Root      string   // prefix for the paths of another mount namespace, such as /proc/PID/root; "" none
	// Open opens a file in place of os.Open; nil means the operating system, regular files only. It may be called
	// from several goroutines.
	Open func(path string) (ReaderAtCloser, error)
	// Cache is a directory where answers are kept from run to run; "" none. See [CacheDir].
	Cache string
	// Stop being closed ends downloads; nil: they end by themselves.
	Stop <-chan struct{}
	// Kept opens the very file that was mapped as module m, whatever its path stands for by now; nil where it was not
	// kept, and then the path is opened.
	Kept func(m trace.Module) ReaderAtCloser
	// Code opens what a process wrote about the code in its memory m, a module of kind trace.ModuleAnon, best first.
	// The Resolver closes the files. nil: nothing is known of such code.
	Code func(m trace.Module) []CodeFile
}

// Resolver finds and caches debug information of modules. It is safe for concurrent use; different modules are
// resolved in parallel, and so are the units of one; two calls for one module wait for each other.
type Resolver struct {
	o       Options
	servers *debuginfod // nil: the environment names none

	mu      sync.Mutex
	mods    map[trace.ModuleID]*module
	notes   []string
	noted   map[string]bool
	dropped int // notes beyond maxNotes
	closed  bool

	saved atomic.Bool // something was written to the cache
}

// module is what is known of one module. m is immutable after Add; mu guards the rest.
type module struct {
	m trace.Module

	mu     sync.Mutex
	loaded bool // images are open
	ready  bool // the rest is read from them
	closed bool
	cache  *cacheFile // nil: none
	names  namer
	images []*image
	main   *image     // of images: the mapped file; nil it could not be had
	extra  *image     // of images: its debug file; nil none
	syms   *symtab    // nil: none
	vars   *symtab    // of variables; nil: not asked for yet, or none
	dw     *dwarfInfo // nil: none
	gotab  *goTable   // nil: none, or there is DWARF

	problems atomic.Int64 // with parts of the debug information; Notes reads it without mu
}

// NewResolver returns a Resolver that knows no modules yet.
func NewResolver(o Options) *Resolver {
	if o.DebugDirs == nil {
		o.DebugDirs = []string{defaultDebugDir}
	}
	return &Resolver{o: o, servers: newDebuginfod(os.Getenv, o.Stop), mods: map[trace.ModuleID]*module{}, noted: map[string]bool{}}
}

// Add learns a module. If m.BuildID is empty the build id is read from the file now, so that a later replacement is
// noticed; [Resolver.Module] gives it back. A file that cannot be read is a note, not an error. The error is about
// the call: a closed Resolver, no id, or an id that stands for another module already.
func (r *Resolver) Add(m trace.Module) error {
	if m.ID == 0 {
		return fmt.Errorf("adding module %s: it has no id", m.Path)
	}
	if m.Kind == trace.ModuleELF && m.BuildID == "" {
		m.BuildID = r.fileBuildID(m)
	}
	m.BuildID = strings.ToLower(m.BuildID)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("adding module %s: resolver is closed", m.Path)
	}
	if old := r.mods[m.ID]; old != nil {
		if old.m.Path == m.Path && old.m.BuildID == m.BuildID {
			return nil
		}
		return fmt.Errorf("adding module %s: id %d is %s already", m.Path, m.ID, old.m.Path)
	}
	r.mods[m.ID] = &module{m: m}
	return nil
}

// fileBuildID reads the build id of a module's file; "" when there is none.
func (r *Resolver) fileBuildID(m trace.Module) string {
	if strings.HasSuffix(m.Path, deletedSuffix) || !filepath.IsAbs(m.Path) {
		return "" // what is at the path now need not be what was recorded
	}
	path := r.rooted(m.Path)
	f, err := r.open(path)
	if err != nil {
		r.note("module %s: %v", m.Path, err)
		return ""
	}
	defer f.Close()
	id, err := BuildID(f)
	if err != nil && !errors.Is(err, ErrNoBuildID) {
		r.note("module %s: %v", m.Path, err)
	}
	return id
}

// Module returns what Add learned of a module, its build id included.
func (r *Resolver) Module(id trace.ModuleID) (trace.Module, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.mods[id]; m != nil {
		return m.m, true
	}
	return trace.Module{}, false
}

// Notes returns one line per problem so far: files that cannot be read or are not what was recorded, modules
// without symbols, debug information that makes no sense. Ask before Close.
func (r *Resolver) Notes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := slices.Clone(r.notes)
	var more []string
	for _, m := range r.mods {
		if k := m.problems.Load() - maxUnitNotes; k > 0 {
			more = append(more, fmt.Sprintf("module %s: %d more problems with its debug information", m.m.Path, k))
		}
	}
	slices.Sort(more)
	n = append(n, more...)
	if r.dropped > 0 {
		n = append(n, fmt.Sprintf("%d more notes on symbols", r.dropped))
	}
	return n
}

func (r *Resolver) note(format string, args ...any) {
	s := strings.ReplaceAll(cut(fmt.Sprintf(format, args...)), "\n", " ")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noted[s] {
		return
	}
	if len(r.notes) >= maxNotes {
		r.dropped++
		return
	}
	r.noted[s] = true
	r.notes = append(r.notes, s)
}

// noteUnlessMissing notes the error of a file that need not exist.
func (r *Resolver) noteUnlessMissing(path string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		r.note("debug file %s: %v: not used", path, err)
	}
}

// Close releases all files. Later calls to Resolve know nothing.
func (r *Resolver) Close() error {
	r.mu.Lock()
	r.closed = true
	mods := r.mods
	r.mods = map[trace.ModuleID]*module{}
	r.mu.Unlock()
	var errs []error
	for _, m := range mods {
		m.mu.Lock()
		errs = append(errs, m.release())
		m.closed = true
		m.mu.Unlock()
	}
	if r.saved.Swap(false) {
		cacheStore(r.o.Cache).Sweep()
	}
	return errors.Join(errs...)
}

// release closes the files of m and forgets what came from them. m.mu is held.
func (m *module) release() error {
	var errs []error
	for _, im := range m.images {
		errs = append(errs, im.close())
	}
	m.images, m.main, m.extra, m.syms, m.vars, m.dw, m.gotab = nil, nil, nil, nil, nil, nil, nil
	m.names.forget()
	return errors.Join(errs...)
}

// locked returns a module with what its files have, its mu held; nil when it is not known or closed.
func (r *Resolver) locked(mod trace.ModuleID) *module {
	r.mu.Lock()
	m := r.mods[mod]
	r.mu.Unlock()
	if m == nil {
		return nil
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	if !m.loaded {
		m.loaded = true
		if err := guarded(func() { r.load(m) }); err != nil {
			r.note("module %s: %v", m.m.Path, err)
			m.dw = nil
		}
	}
	return m
}

// load finds the module's file and debug file. m.mu is held.
func (r *Resolver) load(m *module) {
	var main *image
	switch m.m.Kind {
	case trace.ModuleELF:
		main = r.openMain(m.m)
	case trace.ModuleVDSO:
		main = r.openOwnVDSO(m.m)
	default:
		return
	}
	if main != nil {
		m.images = append(m.images, main)
		m.names.isGo = main.isGo()
	}
	var extra *image
	if main == nil || !main.hasDebugInfo() || !main.hasSymtab() {
		if extra = r.byBuildID(m.m.BuildID); extra == nil && main != nil && m.m.Kind == trace.ModuleELF {
			extra = r.byDebugLink(main, strings.TrimSuffix(m.m.Path, deletedSuffix))
		}
		if extra == nil && m.m.Kind == trace.ModuleELF && (main == nil || !main.hasDebugInfo()) {
			extra = r.fromServer(m.m.BuildID, filepath.Base(m.m.Path))
		}
		if extra != nil {
			m.images = append(m.images, extra)
			m.names.isGo = m.names.isGo || extra.isGo()
		}
	}
	m.main, m.extra = main, extra
	if main != nil || extra != nil {
		m.cache = r.openCache(m)
	}
}

// prepare reads what the module's files have, once. m.mu is held.
func (r *Resolver) prepare(m *module) {
	if m.ready {
		return
	}
	m.ready = true
	if err := guarded(func() { r.readAll(m) }); err != nil {
		r.note("module %s: %v", m.m.Path, err)
		m.dw = nil
		m.problems.Add(1)
	}
}

func (r *Resolver) readAll(m *module) {
	main, extra := m.main, m.extra
	if main == nil && extra == nil {
		return
	}
	if main != nil && !main.hasSymtab() && (extra == nil || !extra.hasSymtab()) {
		mini, err := miniDebug(main)
		if err != nil {
			r.note("module %s: .gnu_debugdata: %v: not used", m.m.Path, err)
		}
		if mini != nil {
			m.images = append(m.images, mini)
		}
	}
	r.loadSymbols(m, main)
	r.loadDebugInfo(m, main, extra)
	if main != nil && main.isGo() && m.dw == nil {
		err := guarded(func() {
			var err error
			if m.gotab, err = openGoTable(main); err != nil {
				r.note("module %s: %v", m.m.Path, err)
			}
		})
		if err != nil {
			r.note("module %s: Go's function table: %v", m.m.Path, err)
		}
	}
	if !m.named() {
		r.note("module %s: no symbols: build it without stripping, or install its debug package", m.m.Path)
	}
}

// named says whether the module's files have names for addresses at all.
func (m *module) named() bool {
	return m.dw != nil || m.gotab != nil || m.syms != nil && len(m.syms.syms) > m.syms.stubs
}

func (r *Resolver) loadSymbols(m *module, main *image) {
	err := guarded(func() {
		t := &symtab{}
		for _, im := range m.images {
			if err := t.addImage(im); err != nil {
				r.note("module %s: %s: %v", m.m.Path, im.path, err)
			}
		}
		if main != nil {
			t.addPLT(main)
		}
		t.seal()
		m.syms = t
	})
	if err != nil {
		r.note("module %s: symbol table: %v", m.m.Path, err)
	}
}

func (r *Resolver) loadDebugInfo(m *module, main, extra *image) {
	im := extra
	if main != nil && main.hasDebugInfo() {
		im = main
	}
	if im == nil || !im.hasDebugInfo() {
		return
	}
	problem := func(err error) {
		if m.problems.Add(1) <= maxUnitNotes {
			r.note("module %s: debug information of %s: %v", m.m.Path, im.path, err)
		}
	}
	alt, err := r.altFile(im)
	if err != nil {
		problem(err)
	}
	if alt != nil {
		m.images = append(m.images, alt)
	}
	dw, err := openDWARF(im, alt, problem)
	if err != nil {
		r.note("module %s: debug information of %s: %v: using the symbol table alone", m.m.Path, im.path, err)
		return
	}
	if dw.hasSkeletons() {
		dw.splits = r.openSplitFiles(m, main, im, problem)
	}
	m.dw = dw
}

// openMain opens the file that was recorded; nil, with a note, when it cannot be had.
func (r *Resolver) openMain(m trace.Module) *image {
	path, deleted := strings.CutSuffix(m.Path, deletedSuffix)
	if r.o.Kept != nil {
		if f := r.o.Kept(m); f != nil {
			im, err := newImage(r.rooted(path), f)
			if err == nil && (m.BuildID == "" || im.buildID == m.BuildID) {
				return im
			}
			if err == nil {
				im.close()
			}
		}
	}
	if !filepath.IsAbs(path) {
		r.note("module %s: not a file: its path is relative", m.Path)
		return nil
	}
	if deleted && m.BuildID == "" {
		r.note("module %s: was deleted or replaced while it ran and has no build id: no names", m.Path)
		return nil
	}
	im, err := r.openImage(r.rooted(path))
	if err != nil {
		r.note("module %s: %v", m.Path, err)
		return nil
	}
	if m.BuildID != "" && im.buildID != m.BuildID {
		r.note("module %s: replaced since it was recorded (build id %s, now %s): its names are not used", m.Path, m.BuildID, orNone(im.buildID))
		im.close()
		return nil
	}
	return im
}

func (r *Resolver) openOwnVDSO(m trace.Module) *image {
	f, err := openVDSO()
	if err != nil {
		r.note("module %s: %v", m.Path, err)
		return nil
	}
	im, err := newImage("[vdso]", f)
	if err != nil {
		r.note("module %s: %v", m.Path, err)
		return nil
	}
	if m.BuildID != "" && im.buildID != m.BuildID {
		r.note("module %s: of another kernel (build id %s, here %s): its names are not known", m.Path, m.BuildID, orNone(im.buildID))
		im.close()
		return nil
	}
	return im
}

func (r *Resolver) rooted(path string) string {
	if r.o.Root == "" {
		return path
	}
	return filepath.Join(r.o.Root, path)
}
