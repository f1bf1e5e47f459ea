// Which functions a program and its libraries call: wrapped by the agent, or known to block and not wrapped.

package doctor

import (
	"cmp"
	"debug/elf"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/hooks"
)

// Import is a function that the program or one of its libraries takes from another object.
type Import struct {
	Name string `json:"name"`
	// By are the base names of the importing objects, the program first.
	By []string `json:"by"`
	// Why is what blocks in it, for functions that are not wrapped.
	Why string `json:"why,omitempty"`
}

// blocking are functions that can sleep inside libc, where the call that sleeps is not seen: libc calls
// itself directly. From POSIX's list of functions that may block and glibc's manual.
var blocking = map[string]string{
	"fopen": "a FIFO or a network file", "fopen64": "a FIFO or a network file", "freopen": "a FIFO or a network file",
	"freopen64":          "a FIFO or a network file",
	"__io_uring_get_cqe": "asynchronous I/O", "aio_suspend64": "asynchronous I/O", "io_uring_submit_and_wait": "asynchronous I/O",
	"io_uring_wait_cqe": "asynchronous I/O", "lio_listio": "asynchronous I/O",
	"ioctl":              "device",
	"getentropy":         "entropy at boot",
	"sem_open":           "file",
	"pthread_tryjoin_np": "join",
	"gethostbyaddr":      "name look-up", "gethostbyaddr_r": "name look-up", "gethostbyname": "name look-up",
	"gethostbyname_r": "name look-up", "getnameinfo": "name look-up", "res_query": "name look-up", "res_search": "name look-up",
	"sigpause":             "signal",
	"tcflush":              "terminal",
	"__fgets_unlocked_chk": "the read inside", "__fread_unlocked_chk": "the read inside", "__isoc99_fscanf": "the read inside",
	"__isoc99_scanf": "the read inside", "fgetc_unlocked": "the read inside", "fgets_unlocked": "the read inside",
	"fscanf": "the read inside", "getc_unlocked": "the read inside", "getchar": "the read inside",
	"getchar_unlocked": "the read inside", "scanf": "the read inside",
	"fflush_unlocked": "the write inside", "fputc": "the write inside", "fputc_unlocked": "the write inside",
	"fputs_unlocked": "the write inside", "putc": "the write inside", "putc_unlocked": "the write inside",
	"putchar": "the write inside", "putchar_unlocked": "the write inside",
	"getpwnam": "user look-up", "getpwnam_r": "user look-up", "getpwuid": "user look-up", "getpwuid_r": "user look-up",
	"vfork": "waits for the child's exec",
}

func (p *Program) lookCalls(f *findings, base string, file *elf.File, c closure) {
	wrapped := map[string]hooks.Info{}
	for _, h := range hooks.Table {
		if h.Version != "syscall" && !h.Go() {
			wrapped[h.Name] = h
		}
	}
	hooked, unhooked := map[string][]string{}, map[string][]string{}
	failed := importsOf(base, file, wrapped, hooked, unhooked)
	for _, l := range c.found {
		lib, err := elf.Open(l.path)
		if err != nil {
			failed = append(failed, l.name)
			continue
		}
		// the C library's own imports are not the program's business
		if !isLibc(l.name) {
			failed = append(failed, importsOf(l.name, lib, wrapped, hooked, unhooked)...)
		}
		lib.Close()
	}
	p.Hooked, p.Unhooked = sorted(hooked), sorted(unhooked)
	if len(failed) > 0 {
		f.add(Note, "imports", "", "could not be read of %s", strings.Join(failed, ", "))
	}
	counts := map[hooks.Class]int{}
	for _, h := range p.Hooked {
		counts[wrapped[h.Name].Class]++
	}
	if len(p.Hooked) == 0 {
		f.add(Warn, "hooks", "CPU samples only: what it loads later (dlopen) may bring more", "it imports nothing that is wrapped")
	} else {
		locks := counts[hooks.ClassLock] + counts[hooks.ClassCond] + counts[hooks.ClassSem] + counts[hooks.ClassSync]
		f.add(OK, "hooks", "", "%s: %d of allocation, %d of waiting, %d of blocking calls", plural(len(p.Hooked), "wrapped function"),
			counts[hooks.ClassAlloc], locks, counts[hooks.ClassCall])
		for _, k := range []struct {
			name    string
			classes []hooks.Class
		}{
			{"hooked: memory", []hooks.Class{hooks.ClassAlloc}},
			{"hooked: waiting", []hooks.Class{hooks.ClassLock, hooks.ClassCond, hooks.ClassSem, hooks.ClassSync}},
			{"hooked: calls", []hooks.Class{hooks.ClassCall}},
		} {
			var names []string
			for _, h := range p.Hooked {
				if slices.Contains(k.classes, wrapped[h.Name].Class) {
					names = append(names, h.Name)
				}
			}
			if len(names) > 0 {
				f.add(OK, k.name, "", "%s", strings.Join(names, " "))
			}
		}
	}
	if len(p.Unhooked) > 0 {
		f.add(Note, "not hooked", "time in these is seen by sampling while it burns CPU, and as unknown while it sleeps",
			"%s", unhookedLine(p.Unhooked))
	}
	lookDirect(f, base, file, c)
	if own := ownAllocator(file, c); own != "" {
		f.add(Note, "allocator", "its calls through malloc and free are recorded; its own names are not", "%s", own)
	}
}

func isLibc(name string) bool {
	return strings.HasPrefix(name, "libc.") || strings.HasPrefix(name, "ld-") || strings.HasPrefix(name, "libpthread.") || strings.HasPrefix(name, "librt.")
}

// importsOf sorts one object's undefined functions into the two maps; it returns its name if they cannot be read.
func importsOf(name string, file *elf.File, wrapped map[string]hooks.Info, hooked, unhooked map[string][]string) (failed []string) {
	symbols, err := file.ImportedSymbols()
	if err == elf.ErrNoSymbols {
		return nil
	}
	if err != nil {
		return []string{name}
	}
	for _, s := range symbols {
		to := unhooked
		if _, ok := wrapped[s.Name]; ok {
			to = hooked
		} else if blocking[s.Name] == "" {
			continue
		}
		if by := to[s.Name]; len(by) == 0 || by[len(by)-1] != name {
			to[s.Name] = append(by, name)
		}
	}
	return nil
}

func sorted(m map[string][]string) []Import {
	var all []Import
	for name, by := range m {
		i := Import{Name: name, By: by}
		i.Why = blocking[name]
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Import) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// unhookedLine groups by reason, so that a dozen stdio names are one word of explanation.
func unhookedLine(list []Import) string {
	byWhy := map[string][]string{}
	var whys []string
	for _, i := range list {
		if byWhy[i.Why] == nil {
			whys = append(whys, i.Why)
		}
		byWhy[i.Why] = append(byWhy[i.Why], i.Name)
	}
	var parts []string
	for _, w := range whys {
		parts = append(parts, strings.Join(byWhy[w], " ")+" ("+w+")")
	}
	return strings.Join(parts, ", ")
}

// ownAllocator names an allocator other than libc's.
func ownAllocator(file *elf.File, c closure) string {
	for _, l := range c.found {
		for _, known := range []string{"jemalloc", "tcmalloc", "mimalloc", "tbbmalloc", "snmalloc", "rpmalloc"} {
			if strings.Contains(l.name, known) {
				return l.name
			}
		}
	}
	if symbols, err := file.DynamicSymbols(); err == nil {
		for _, s := range symbols {
			if s.Name == "malloc" && s.Section != elf.SHN_UNDEF {
				return "the program defines malloc itself"
			}
		}
	}
	return ""
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
