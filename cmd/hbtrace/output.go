// Files that are written whole or not at all.

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hbtrace/hbtrace/outfile"
	"golang.org/x/sys/unix"
)

// outputBuffer is large because exports are written once, front to back.
const outputBuffer = 256 << 10

// writeFile calls write for what is to become path; "-" is stdout. The old file stays until the new one is
// complete: a failure, or the death of this process, leaves it as it was and nothing next to it.
func writeFile(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "-" {
		return buffered(stdout, write)
	}
	path, there, err := outfile.Resolve(path) // what a link points to is to be replaced, not the link
	if err == nil && there != nil {
		err = there.Ours()
	}
	mode := outfile.Mode
	switch {
	case err != nil:
		return fmt.Errorf("writing: %w", err)
	case there == nil:
	case there.IsDir():
		return fmt.Errorf("%s: is a directory: name a file in it", path)
	case !there.Mode().IsRegular():
		return writeDevice(path, write) // a pipe or a device cannot be replaced
	default:
		mode = there.Mode().Perm() // as its owner wants it
	}
	f, named, err := unnamed(path)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, bare(err))
	}
	defer f.Close()
	if err := buffered(f, write); err != nil {
		if named != "" {
			os.Remove(named)
		}
		return fmt.Errorf("writing %s: %w", path, bare(err))
	}
	if mode != outfile.Mode {
		f.Chmod(mode) // a file system without modes is no reason to fail
	}
	if err := install(f, named, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, bare(err))
	}
	return nil
}

func buffered(w io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(w, outputBuffer)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}

// writeDevice writes into what is there. A pipe that nobody reads is an error, not a reason to wait: the program that
// was recorded has ended, and its status is waited for.
func writeDevice(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("writing %s: it is a pipe that nobody reads: remove it, or start its reader first", path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, bare(err))
	}
	if err := errors.Join(buffered(f, write), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, bare(err))
	}
	return nil
}

// unnamed opens a file in path's directory that has no name yet, so that it vanishes with this process; where
// the file system has no such files it has the name that is returned.
func unnamed(path string) (f *os.File, named string, err error) {
	dir := filepath.Dir(path)
	f, err = os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, outfile.Mode)
	if err == nil {
		return f, "", nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOENT) {
		return nil, "", err
	}
	named = besides(path)
	f, err = os.OpenFile(named, os.O_RDWR|os.O_CREATE|os.O_EXCL, outfile.Mode)
	return f, named, err
}

// install gives f path's name in one step. Replacing needs a name to rename from.
func install(f *os.File, named, path string) error {
	if named == "" {
		named = besides(path)
		os.Remove(named) // of a process that had our pid and died between the two steps
		if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, named, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
	}
	if err := os.Rename(named, path); err != nil {
		os.Remove(named)
		return err
	}
	return nil
}

func besides(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.part", filepath.Base(path), os.Getpid()))
}

// bare is an error without the path and system call that the caller already names.
func bare(err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: free some space or choose another place", err)
	}
	return err
}
