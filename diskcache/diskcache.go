// Package diskcache keeps files from run to run: what was worked out of a build of a module before, named after its build id.
//
// A file is written next to its place and renamed into it, so that of two processes that do so at once one wins and nobody reads half
// of anything; nothing is locked. Only files of this user that nobody else may write are read, and nothing is written into a
// directory of somebody else's. What a file holds, and how it is proved, is the caller's: whatever is wrong with one, it is as if it
// were not there, and that none can be written is no loss.
package diskcache

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFiles is how many files a sweep looks at.
const maxFiles = 1 << 16

// Dir is where files of a kind are kept: the directory that the environment variable names, else hbtrace/kind in XDG_CACHE_HOME or
// ~/.cache; "" (nothing is kept) when the variable is "off", "0" or "no", or there is no such place.
func Dir(variable, kind string) string {
	switch v := os.Getenv(variable); v {
	case "":
	case "off", "0", "no":
		return ""
	default:
		return v
	}
	base, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(base) {
		return ""
	}
	return filepath.Join(base, "hbtrace", kind)
}

// Store is a directory of such files. The zero one keeps nothing.
type Store struct {
	Dir     string
	Suffix  string // of its files' names
	MaxFile int64  // bytes of one file
	Limit   int64  // bytes of all files: beyond it Sweep deletes
	Kept    int64  // bytes that a Sweep which deletes leaves at most
}

// IsBuildID says whether files can be named after it: hex digits, enough of them to tell builds apart.
func IsBuildID(id string) bool {
	return len(id) >= 16 && len(id) <= 128 && strings.Trim(id, "0123456789abcdef") == ""
}

// Path is the place of the file for a module with that build id and of that variant; "" when the store keeps nothing of it.
func (s Store) Path(buildID, variant string) string {
	if s.Dir == "" || !IsBuildID(buildID) {
		return ""
	}
	return filepath.Join(s.Dir, buildID[:2], buildID[2:]+"-"+variant+s.Suffix)
}

// Read is what the file holds; nil when there is none that can be trusted.
func (s Store) Read(path string) []byte {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !ours(st) || st.Size() > s.MaxFile {
		return nil
	}
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil
	}
	return b
}

// ours says whether it is a file that nobody but this user can have written.
func ours(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.Mode().IsRegular() && int(sys.Uid) == os.Geteuid() && st.Mode().Perm()&0o022 == 0
}

// Used says that a file was of use: a Sweep takes those first that were not for longest.
func (s Store) Used(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}

// Write makes b the content of the file. More than MaxFile is not kept.
func (s Store) Write(path string, b []byte) error {
	if path == "" || int64(len(b)) > s.MaxFile {
		return nil
	}
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "new-*"+s.Suffix)
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// makeDir makes a directory of ours. Under sudo the home can be somebody else's, where directories of ours would be in the way: what
// is there already must be root's or this user's, and dir this user's in the end.
func makeDir(dir string) error {
	if uid, err := owner(dir); err == nil {
		if uid != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d", dir, uid)
		}
		return nil
	}
	for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
		uid, err := owner(up)
		if err != nil && up != filepath.Dir(up) {
			continue
		}
		if err != nil {
			return err
		}
		if uid != 0 && uid != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d", up, uid)
		}
		return os.MkdirAll(dir, 0o700)
	}
}

func owner(path string) (uid int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, err
	}
	return int(st.Uid), nil
}

// Sweep deletes what was not used for longest, when the files are more than Limit bytes, until they are at most Kept.
func (s Store) Sweep() {
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	var total int64
	subs, err := os.ReadDir(s.Dir)
	if err != nil {
		return
	}
	for _, sub := range subs {
		if !sub.IsDir() || len(sub.Name()) != 2 {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(s.Dir, sub.Name()))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), s.Suffix) || len(files) >= maxFiles {
				continue
			}
			st, err := e.Info()
			if err != nil || !st.Mode().IsRegular() {
				continue
			}
			files = append(files, file{filepath.Join(s.Dir, sub.Name(), e.Name()), st.Size(), st.ModTime()})
			total += st.Size()
		}
	}
	if total <= s.Limit && len(files) < maxFiles {
		return
	}
	slices.SortFunc(files, func(a, b file) int { return a.used.Compare(b.used) })
	left := len(files)
	for _, f := range files {
		if total <= s.Kept && left < maxFiles {
			return
		}
		if os.Remove(f.path) == nil {
			total -= f.size
		}
		left--
	}
}
