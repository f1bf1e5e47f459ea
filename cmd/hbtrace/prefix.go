// The names of output files: -o PREFIX with %p, %h and %t.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What is appended to the prefix.
const (
	suffixTrace    = ".hbt"
	suffixPprof    = ".pb.gz"
	suffixPerfetto = ".perfetto-trace"
)

// expand replaces %p by the pid, %h by the host's name, %t by the time as 20060102T150405, %% by %.
func expand(prefix string, pid int, host string, at time.Time) (string, error) {
	var b strings.Builder
	for i := 0; i < len(prefix); i++ {
		if prefix[i] != '%' {
			b.WriteByte(prefix[i])
			continue
		}
		i++
		if i == len(prefix) {
			return "", fmt.Errorf("output %s: ends in a single %%: write %%%% for a percent sign", prefix)
		}
		switch prefix[i] {
		case 'p':
			b.WriteString(strconv.Itoa(pid))
		case 'h':
			b.WriteString(strings.ReplaceAll(host, "/", "_"))
		case 't':
			b.WriteString(at.Format("20060102T150405"))
		case '%':
			b.WriteByte('%')
		default:
			return "", fmt.Errorf("output %s: unknown %%%c: use %%p (pid), %%h (host), %%t (time) or %%%%", prefix, prefix[i])
		}
	}
	return b.String(), nil
}

// trimSuffix lets -o app.hbt mean -o app.
func trimSuffix(prefix string) string {
	for _, s := range []string{suffixTrace, suffixPprof, suffixPerfetto} {
		if t := strings.TrimSuffix(prefix, s); t != prefix && filepath.Base(prefix) != s {
			return t
		}
	}
	return prefix
}

// checkPrefix says before the program starts what would keep its recording from being written.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return errors.New("output: the name is empty: use -o NAME")
	}
	if st, err := os.Stat(prefix); strings.HasSuffix(prefix, "/") || err == nil && st.IsDir() {
		return fmt.Errorf("output %s: is a directory: name the files in it: -o %s", prefix, filepath.Join(prefix, "hbtrace"))
	}
	dir := filepath.Dir(prefix)
	switch st, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("output %s: the directory %s does not exist: create it or choose another with -o", prefix, dir)
	case err != nil:
		return fmt.Errorf("output %s: %w", prefix, bare(err))
	case !st.IsDir():
		return fmt.Errorf("output %s: %s is not a directory: choose another with -o", prefix, dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("output %s: the directory %s cannot be written (%w): choose another with -o", prefix, dir, err)
	}
	for _, s := range []string{suffixTrace, suffixPprof, suffixPerfetto} {
		if st, err := os.Stat(prefix + s); err == nil && st.IsDir() {
			return fmt.Errorf("output %s: is a directory: move it away or choose another name with -o", prefix+s)
		}
	}
	return nil
}
