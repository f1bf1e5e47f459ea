// Putting the agent on disk, where the loaders of programs of any user can find and trust it.
//
// The directory is named for its content and its owner, made whole and then renamed into place, so that it is
// never seen half written. What exists is used only after its owner, modes and bytes have been checked: in a
// directory such as /tmp anybody may have made it. A file that is there is never written again (it is mapped
// into running programs, which would die of SIGBUS), and nothing is deleted when a session ends: programs that
// outlive it may still start others with it.
//
// For the same reason it lies where nobody else can make the directory again once a cleaner of old files has taken it: such a
// program would load what it finds there. The directories that anybody may write to come last, for systems without others.
package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Deliver puts the agent into a directory that every user can read and returns what LD_PRELOAD is to name. The
// path has no spaces or colons, which would split it, but ends in "$PLATFORM", which the loader expands.
func Deliver() (preload string, err error) {
	f, err := files()
	if err != nil {
		return "", err
	}
	return deliver(f, Hash(), Bases())
}

// Bases are the directories to try, the best first. They need not be there.
func Bases() []string {
	return append(private(os.Geteuid(), os.Getenv), "/tmp", "/var/tmp", "/dev/shm")
}

// private are those in which only this user and root can make anything: root's programs become other users, who have to
// read them; others' do not.
func private(uid int, env func(string) string) (b []string) {
	if uid == 0 {
		return []string{"/run/hbtrace", "/var/lib/hbtrace"}
	}
	if d := env("XDG_CACHE_HOME"); d != "" {
		b = append(b, filepath.Join(d, "hbtrace"))
	} else if d := env("HOME"); d != "" {
		b = append(b, filepath.Join(d, ".cache", "hbtrace"))
	}
	if d := env("XDG_RUNTIME_DIR"); d != "" {
		b = append(b, filepath.Join(d, "hbtrace"))
	}
	return b
}

// names that are tried in one base: squatters and damage cost one each.
const namesPerBase = 4

func deliver(files map[string][]byte, hash string, bases []string) (string, error) {
	var errs []error
	for _, base := range bases {
		if strings.ContainsAny(base, " :$\t\n") || !filepath.IsAbs(base) {
			errs = append(errs, fmt.Errorf("%s: a loader cannot be given a path with spaces, colons or dollars", base))
			continue
		}
		if err := checkBase(base); err != nil {
			errs = append(errs, err)
			continue
		}
		for n := range namesPerBase {
			dir := filepath.Join(base, fmt.Sprintf("hbtrace-%d-%s", os.Geteuid(), hash))
			if n > 0 {
				dir += fmt.Sprintf("-%d", n)
			}
			err := place(dir, files)
			if err == nil {
				return filepath.Join(dir, preloadName), nil
			}
			errs = append(errs, err)
			if !errors.Is(err, errUntrusted) {
				break // the next name in this base would fail in the same way
			}
		}
	}
	return "", fmt.Errorf("put the agent where programs can load it (one of %s has to be writable and not mounted noexec): %w", strings.Join(bases, ", "), errors.Join(errs...))
}

// errUntrusted: something is there that is not ours, or not what we would have written.
var errUntrusted = errors.New("not trusted")

// checkBase refuses directories in which others could replace ours.
func checkBase(base string) error {
	fi, err := os.Stat(base)
	if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(base, "/hbtrace") {
		if err := os.MkdirAll(base, 0o755); err != nil {
			return err
		}
		os.Chmod(base, 0o755) // the umask may be anything
		fi, err = os.Stat(base)
	}
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir() || !ok:
		return fmt.Errorf("%s: not a directory", base)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s: belongs to user %d", base, st.Uid)
	case fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%s: others can rename what is in it (writable and not sticky)", base)
	}
	return nil
}

// place makes dir hold the files, or proves that it does.
func place(dir string, files map[string][]byte) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := create(dir, files); err != nil {
			return err
		}
	}
	return verify(dir, files)
}

func create(dir string, files map[string][]byte) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".hbtrace-new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // what the rename took away is not there any more
	for name, content := range files {
		if err := writeFile(filepath.Join(tmp, name), content); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil { // MkdirTemp made it 0700, and umask may be anything
		return err
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil // or somebody was first: verify tells
}

func writeFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o755)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(0o755), f.Close())
}

// verify trusts dir when it and each file are ours, cannot be written by others, can be read by all, hold what
// they should and can be mapped for execution. A file that a cleaner of old files took is put back.
func verify(dir string, files map[string][]byte) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := ours(dir, fi, fs.ModeDir); err != nil {
		return err
	}
	now := time.Now()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := verifyFile(path, content)
		if errors.Is(err, fs.ErrNotExist) {
			if err = putBack(path, content); err == nil {
				err = verifyFile(path, content)
			}
		}
		if err != nil {
			return err
		}
		os.Chtimes(path, now, now) // keeps cleaners of old files away; without it they are put back
	}
	os.Chtimes(dir, now, now)
	return nil
}

func putBack(path string, content []byte) error {
	tmp := fmt.Sprintf("%s.new-%d", path, os.Getpid())
	if err := writeFile(tmp, content); err != nil {
		os.Remove(tmp)
		return err
	}
	return os.Rename(tmp, path)
}

func verifyFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%s is a symbolic link: %w", path, errUntrusted)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if err := ours(path, fi, 0); err != nil {
		return err
	}
	if fi.Size() != int64(len(content)) {
		return fmt.Errorf("%s has %d bytes, the agent has %d: %w", path, fi.Size(), len(content), errUntrusted)
	}
	got := make([]byte, len(content))
	if _, err := f.ReadAt(got, 0); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if !bytes.Equal(got, content) {
		return fmt.Errorf("%s differs from the agent: %w", path, errUntrusted)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("%s cannot be mapped for execution (mounted noexec?): %w", path, err)
	}
	return unix.Munmap(mem)
}

func ours(path string, fi fs.FileInfo, kind fs.FileMode) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case fi.Mode().Type() != kind || !ok:
		return fmt.Errorf("%s is of another type (%v): %w", path, fi.Mode(), errUntrusted)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d: %w", path, st.Uid, errUntrusted)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others (%v): %w", path, fi.Mode(), errUntrusted)
	case fi.Mode().Perm()&0o555 != 0o555:
		return fmt.Errorf("%s cannot be read by all (%v): %w", path, fi.Mode(), errUntrusted)
	}
	return nil
}
