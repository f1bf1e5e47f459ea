// Package outfile opens the files that hbtrace writes where a user says: never through another user's link, never into
// another user's file. In a directory such as /tmp anybody may have put either under the name beforehand; hbtrace often runs
// as root. The kernel's fs.protected_symlinks, protected_regular and protected_fifos say nearly the same, where they are on.
//
// New files are their owner's alone, as perf's are: a recording shows what a program does and was started with.
package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mode is that of new files.
const Mode fs.FileMode = 0o600

// ErrForeign is what errors about links and files of other users are.
var ErrForeign = errors.New("not yours")

// Resolve follows the links that path ends in, and says what is there: nil, nothing yet. A link of another user than ours or
// root is an error. The error of a file of another user is left to who writes into it: [Info.Ours].
func Resolve(path string) (string, *Info, error) {
	for range 40 {
		fi, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil, nil
		}
		if err != nil {
			return path, nil, err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return path, nil, fmt.Errorf("%s: its owner is not known", path)
		}
		if fi.Mode().Type() != fs.ModeSymlink {
			return path, &Info{fi, st, path}, nil
		}
		if int(st.Uid) != os.Geteuid() && st.Uid != 0 {
			return path, nil, foreign(path, "a link", st.Uid)
		}
		if magic(path) { // /proc/self/fd/1: what is open there has been chosen by who opened it
			fi, err := os.Stat(path)
			if err != nil {
				return path, nil, err
			}
			st, _ = fi.Sys().(*syscall.Stat_t)
			return path, &Info{fi, st, ""}, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil, err
		}
		if !filepath.IsAbs(to) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // or its .. is another's
			if err != nil {
				return path, nil, err
			}
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return path, nil, fmt.Errorf("%s: %w", path, unix.ELOOP)
}

// magic links lead to what is open, not to a name.
func magic(path string) bool {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return err == nil && strings.HasPrefix(dir, "/proc/")
}

// Info is what is under a name.
type Info struct {
	fs.FileInfo
	st   *syscall.Stat_t
	name string // "": chosen by who opened it
}

// Ours is nil where writing into it, or in its place, harms nobody and tells nobody: our own files, and devices.
func (i *Info) Ours() error {
	if i.name == "" || i.st == nil {
		return nil
	}
	kind := i.Mode().Type()
	if int(i.st.Uid) == os.Geteuid() || kind&(fs.ModeDevice|fs.ModeCharDevice) != 0 || kind == fs.ModeDir {
		return nil
	}
	return foreign(i.name, "a file", i.st.Uid)
}

func foreign(path, what string, uid uint32) error {
	return fmt.Errorf("%s is %s of user %d: remove it, or choose another name: %w", path, what, uid, ErrForeign)
}

// Open makes the regular file at path, or opens the one that is there, for writing into it as it is.
func Open(path string) (*os.File, error) {
	path, info, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	how := os.O_WRONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if info == nil {
		how |= os.O_CREATE | os.O_EXCL
	} else if err := info.Ours(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, how, Mode)
	if err != nil {
		return nil, err
	}
	if err := opened(f, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// opened looks once more, at what was opened: the name may have changed hands since.
func opened(f *os.File, path string) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !fi.Mode().IsRegular():
		return fmt.Errorf("%s: it is not a regular file: name a file", path)
	case int(st.Uid) != os.Geteuid():
		return foreign(path, "a file", st.Uid)
	case st.Nlink > 1:
		return fmt.Errorf("%s has another name, too: remove it, or choose another name: %w", path, ErrForeign)
	}
	return nil
}
