// The libraries that a program's loader would map, found as ld.so(8) describes, without running it.

package doctor

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type library struct {
	name string // as DT_NEEDED gives it
	path string
}

type closure struct {
	found   []library
	missing []string
}

// maxLibraries bounds the walk over what may be a hostile file.
const maxLibraries = 1024

// resolve follows DT_NEEDED breadth first, as the loader does. It does not know what dlopen will bring.
func resolve(path string, file *elf.File) closure {
	var c closure
	seen := map[string]bool{}
	type pending struct {
		name string
		dirs []string
	}
	system := systemDirs(interpreterOf(file))
	var queue []pending
	push := func(path string, f *elf.File) {
		names, err := f.ImportedLibraries()
		if err != nil {
			return
		}
		dirs := append(runPaths(path, f), system...)
		for _, n := range names {
			queue = append(queue, pending{n, dirs})
		}
	}
	push(path, file)
	for len(queue) > 0 && len(seen) < maxLibraries {
		next := queue[0]
		queue = queue[1:]
		if seen[next.name] {
			continue
		}
		seen[next.name] = true
		found, f := openIn(next.name, next.dirs, file)
		if f == nil {
			c.missing = append(c.missing, next.name)
			continue
		}
		c.found = append(c.found, library{next.name, found})
		push(found, f)
		f.Close()
	}
	return c
}

// openIn skips what is of another class or machine, as the loader does.
func openIn(name string, dirs []string, like *elf.File) (string, *elf.File) {
	if strings.Contains(name, "/") {
		dirs = []string{""}
	}
	for _, d := range dirs {
		path := filepath.Join(d, name)
		f, err := elf.Open(path)
		if err != nil {
			continue
		}
		if f.Class == like.Class && f.Machine == like.Machine {
			return path, f
		}
		f.Close()
	}
	return "", nil
}

// runPaths is DT_RPATH (where there is no DT_RUNPATH), $LD_LIBRARY_PATH, DT_RUNPATH, with $ORIGIN expanded.
func runPaths(path string, f *elf.File) []string {
	origin := filepath.Dir(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		origin = filepath.Dir(real)
	}
	expand := strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin, "$LIB", "lib", "${LIB}", "lib", "$PLATFORM", "x86_64", "${PLATFORM}", "x86_64")
	read := func(tag elf.DynTag) (dirs []string) {
		values, err := f.DynString(tag)
		if err != nil {
			return nil
		}
		for _, v := range values {
			for _, d := range strings.Split(v, ":") {
				if d != "" {
					dirs = append(dirs, expand.Replace(d))
				}
			}
		}
		return dirs
	}
	run := read(elf.DT_RUNPATH)
	var dirs []string
	if len(run) == 0 {
		dirs = read(elf.DT_RPATH)
	}
	for _, d := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	return append(dirs, run...)
}

func systemDirs(interp string) []string {
	var dirs []string
	if base := filepath.Base(interp); strings.HasPrefix(base, "ld-musl") {
		list := strings.TrimSuffix(base, ".so.1") + ".path"
		b, err := os.ReadFile(filepath.Join("/etc", list))
		if err == nil {
			dirs = strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' || r == ':' })
		}
		// libc itself is the loader; Debian keeps it apart from glibc's directories
		dirs = append(dirs, "/lib", "/usr/local/lib", "/usr/lib", "/usr/lib/x86_64-linux-musl", "/lib/x86_64-linux-musl")
		return dirs
	}
	dirs = loaderConf("/etc/ld.so.conf", 0)
	return append(dirs, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

// loaderConf reads ld.so.conf and what it includes. The cache is made from these directories.
func loaderConf(path string, depth int) (dirs []string) {
	file, err := os.Open(path)
	if err != nil || depth > 4 {
		return nil
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		l, _, _ := strings.Cut(s.Text(), "#")
		words := strings.Fields(l)
		switch {
		case len(words) == 0:
		case words[0] == "include":
			for _, pattern := range words[1:] {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(path), pattern)
				}
				matches, _ := filepath.Glob(pattern) // only error: a malformed pattern, which ldconfig ignores too
				for _, m := range matches {
					dirs = append(dirs, loaderConf(m, depth+1)...)
				}
			}
		default:
			dirs = append(dirs, words[0])
		}
	}
	return dirs
}

// glibcNeeded is the highest GLIBC_x.y that the program asks for.
func glibcNeeded(file *elf.File) (version string) {
	needs, err := file.DynamicVersionNeeds()
	if err != nil {
		return ""
	}
	for _, n := range needs {
		for _, d := range n.Needs {
			version = higher(version, d.Dep)
		}
	}
	return version
}

// glibcInstalled is the highest GLIBC_x.y that the libc found defines.
func glibcInstalled(c closure) (version string) {
	for _, l := range c.found {
		if l.name != "libc.so.6" {
			continue
		}
		f, err := elf.Open(l.path)
		if err != nil {
			return ""
		}
		defer f.Close()
		versions, err := f.DynamicVersions()
		if err != nil {
			return ""
		}
		for _, v := range versions {
			version = higher(version, v.Name)
		}
	}
	return version
}

// higher compares a version with a symbol version's name; names that are no GLIBC_x.y count for nothing.
func higher(version, symbolVersion string) string {
	v, ok := strings.CutPrefix(symbolVersion, "GLIBC_")
	if !ok || v == "" || v[0] < '0' || v[0] > '9' {
		return version
	}
	if version == "" || versionLess(version, v) {
		return v
	}
	return version
}

func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(as) || i < len(bs); i++ {
		x, y := part(as, i), part(bs, i)
		if x != y {
			return x < y
		}
	}
	return false
}

func part(s []string, i int) int {
	if i >= len(s) {
		return 0
	}
	n, err := strconv.Atoi(s[i])
	if err != nil {
		return 0
	}
	return n
}

func (l library) String() string { return fmt.Sprintf("%s (%s)", l.name, l.path) }
