package symbols

// This file owns the search for separate debug files, and the proof that one belongs to a module.

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"
)

// open opens a file through the hook, or checks that it is a regular file.
func (r *Resolver) open(path string) (ReaderAtCloser, error) {
	if r.o.Open != nil {
		return r.o.Open(path)
	}
	return openRegular(path)
}

// openImage opens an ELF file through the hook, or checks that it is a regular file.
func (r *Resolver) openImage(path string) (*image, error) {
	f, err := r.open(path)
	if err != nil {
		return nil, err
	}
	im, err := newImage(path, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return im, nil
}

// debugDirs returns the directories of debug files: those of the recorded mount namespace, then ours.
func (r *Resolver) debugDirs() []string {
	var dirs []string
	if r.o.Root != "" {
		for _, d := range r.o.DebugDirs {
			dirs = append(dirs, filepath.Join(r.o.Root, d))
		}
	}
	return append(dirs, r.o.DebugDirs...)
}

// isBuildID says whether id can be part of a path.
func isBuildID(id string) bool {
	return len(id) >= 4 && len(id) <= 2*maxBuildID && strings.Trim(id, "0123456789abcdef") == ""
}

// byBuildID opens <dir>/.build-id/xx/yyyy.debug. Files that are there but are not of that build are noted.
func (r *Resolver) byBuildID(id string) *image {
	if !isBuildID(id) {
		return nil
	}
	for _, dir := range r.debugDirs() {
		path := filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug")
		im, err := r.openImage(path)
		if err != nil {
			r.noteUnlessMissing(path, err)
			continue
		}
		if im.buildID != id {
			r.note("debug file %s: build id %s, wanted %s: not used", path, orNone(im.buildID), id)
			im.close()
			continue
		}
		return im
	}
	return nil
}

// byDebugLink opens the file that main's .gnu_debuglink names, if its CRC is the one given there.
func (r *Resolver) byDebugLink(main *image, modulePath string) *image {
	link, err := main.debugSection("gnu_debuglink")
	if err != nil || link == nil {
		return nil
	}
	// The name, NUL, padding to 4, CRC-32 in the file's byte order.
	n := bytes.IndexByte(link, 0)
	at := (n + 4) &^ 3
	if n <= 0 || at+4 > len(link) {
		r.note("%s: .gnu_debuglink is malformed", main.path)
		return nil
	}
	name, want := string(link[:n]), main.elf.ByteOrder.Uint32(link[at:])
	if name != filepath.Base(name) || name == ".." || name == "." {
		r.note("%s: .gnu_debuglink names %q, which is no file name", main.path, name)
		return nil
	}
	dir := filepath.Dir(main.path)
	paths := []string{filepath.Join(dir, name), filepath.Join(dir, ".debug", name)}
	for _, d := range r.debugDirs() {
		paths = append(paths, filepath.Join(d, filepath.Dir(modulePath), name))
	}
	for _, path := range paths {
		if path == main.path {
			continue
		}
		im, err := r.openImage(path)
		if err != nil {
			r.noteUnlessMissing(path, err)
			continue
		}
		if err := checkDebugFile(im, main.buildID, want); err != nil {
			r.note("debug file %s: %v: not used", path, err)
			im.close()
			continue
		}
		return im
	}
	return nil
}

// checkDebugFile compares the CRC-32 of the whole file, and the build ids where both have one.
func checkDebugFile(im *image, buildID string, want uint32) error {
	if buildID != "" && im.buildID != "" && buildID != im.buildID {
		return fmt.Errorf("build id %s, wanted %s", im.buildID, buildID)
	}
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, io.NewSectionReader(im.f, 0, 1<<62)); err != nil {
		return err
	}
	if got := h.Sum32(); got != want {
		return fmt.Errorf("CRC %08x, wanted %08x", got, want)
	}
	return nil
}

// altFile opens the file that .gnu_debugaltlink of im names: what dwz moved out of several debug files.
// It returns nil, nil when im has no such section.
func (r *Resolver) altFile(im *image) (*image, error) {
	link, err := im.debugSection("gnu_debugaltlink")
	if err != nil || link == nil {
		return nil, err
	}
	n := bytes.IndexByte(link, 0)
	if n <= 0 || len(link)-n-1 > maxBuildID {
		return nil, fmt.Errorf(".gnu_debugaltlink is malformed")
	}
	name, id := string(link[:n]), hex.EncodeToString(link[n+1:])
	paths := []string{name}
	if !filepath.IsAbs(name) {
		paths = []string{filepath.Join(filepath.Dir(im.path), name)}
	} else if r.o.Root != "" {
		paths = []string{filepath.Join(r.o.Root, name), name}
	}
	for _, path := range paths {
		alt, err := r.openImage(path)
		if err != nil {
			r.noteUnlessMissing(path, err)
			continue
		}
		if alt.buildID == id {
			return alt, nil
		}
		r.note("debug file %s: build id %s, wanted %s: not used", path, orNone(alt.buildID), id)
		alt.close()
	}
	if alt := r.byBuildID(id); alt != nil {
		return alt, nil
	}
	if alt := r.fromServer(id, filepath.Base(name)); alt != nil {
		return alt, nil
	}
	return nil, fmt.Errorf("%s, which holds a part of the debug information, was not found", name)
}

func orNone(id string) string {
	if id == "" {
		return "none"
	}
	return id
}
