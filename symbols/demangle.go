package symbols

// This file owns the readable form of names.

import (
	"strings"
	"sync"

	"github.com/ianlancetaylor/demangle"
)

const (
	maxMangled  = 32 << 10 // bytes; longer names are shown cut, not demangled
	maxReadable = 1024     // bytes of a name that is shown
	// A name with template arguments up to this length keeps them: vector<int>::push_back says more than
	// vector::push_back. Longer ones lose all of them, since the noise then hides the name.
	keepTemplates = 64
)

// namer makes linkage names readable, each once: demangling costs more than finding the name. It may be used from
// several goroutines.
type namer struct {
	isGo bool

	mu   sync.Mutex
	done map[string]string
}

// Bounds of what a namer remembers.
const (
	maxNames      = 1 << 20
	maxRemembered = 4 << 10 // bytes of one name
)

func (n *namer) forget() {
	n.mu.Lock()
	n.done = nil
	n.mu.Unlock()
}

func (n *namer) readable(linkage string) string {
	if !mangled(linkage) || len(linkage) > maxRemembered {
		return readable(linkage, n.isGo)
	}
	n.mu.Lock()
	s, ok := n.done[linkage]
	n.mu.Unlock()
	if ok {
		return s
	}
	s = readable(linkage, n.isGo)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.done == nil || len(n.done) >= maxNames {
		n.done = map[string]string{}
	}
	n.done[linkage] = s
	return s
}

// readable returns the short form of a linkage name: demangled, without parameters, return type and hash, with
// template arguments only while the whole stays short, and without the suffixes that compilers give to parts and
// clones of a function (in Go programs dots are part of a name and stay).
func readable(linkage string, isGo bool) string {
	// The symbol tables of libraries append versions: memcpy@@GLIBC_2.14.
	if i := strings.IndexByte(linkage, '@'); i > 0 && !strings.HasSuffix(linkage, "@plt") {
		linkage = linkage[:i]
	}
	return shorten(linkage, isGo)
}

// shorten does the work of readable on a name without version; name@plt is demangled in front of the mark.
func shorten(linkage string, isGo bool) string {
	if name, ok := strings.CutSuffix(linkage, "@plt"); ok && mangled(name) {
		return shorten(name, isGo) + "@plt"
	}
	if !mangled(linkage) {
		if isGo {
			return cut(linkage)
		}
		return cut(trimClone(linkage))
	}
	if len(linkage) > maxMangled {
		return cut(linkage)
	}
	// A limit of 2^14 bytes stops names that explode while they are printed.
	opts := []demangle.Option{demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones, demangle.NoABITags, demangle.MaxLength(14)}
	s, err := demangle.ToString(linkage, opts...)
	if err != nil {
		return cut(linkage)
	}
	if len(s) > keepTemplates && strings.Contains(s, "<") {
		if short, err := demangle.ToString(linkage, append(opts, demangle.NoTemplateParams)...); err == nil && short != "" {
			s = short
		}
	}
	if strings.HasPrefix(linkage, "_R") { // what is left of type arguments that are gone
		s = strings.ReplaceAll(strings.ReplaceAll(s, "::<>", ""), "<>", "")
	}
	// LLVM's suffix of promoted locals stays behind a Rust name as " (.llvm.123)".
	if i := strings.Index(s, " (.llvm."); i > 0 {
		s = s[:i]
	}
	if s == "" { // the crate of no name, for one
		s = linkage
	}
	return cut(s)
}

func mangled(s string) bool {
	return strings.HasPrefix(s, "_Z") || strings.HasPrefix(s, "_R") || strings.HasPrefix(s, "___Z")
}

// cut bounds what is shown; the whole name stays in Linkage.
func cut(s string) string {
	if len(s) <= maxReadable {
		return s
	}
	return strings.ToValidUTF8(s[:maxReadable], "") + "…"
}

// cloneMarks are what GCC and LLVM put between a function's name and a number.
var cloneMarks = []string{"cold", "part", "isra", "constprop", "lto_priv", "llvm"}

// trimClone removes suffixes such as .cold, .part.0 and .constprop.3.isra.0.
func trimClone(s string) string {
	for {
		t := s
		i := strings.LastIndexByte(t, '.')
		if i > 0 && i+1 < len(t) && strings.Trim(t[i+1:], "0123456789") == "" {
			t = t[:i]
			i = strings.LastIndexByte(t, '.')
		}
		if i <= 0 {
			return s
		}
		known := false
		for _, m := range cloneMarks {
			known = known || t[i+1:] == m
		}
		if !known {
			return s
		}
		s = t[:i]
	}
}
