// Where sessions lie, and who may use them.

package flight

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	windowName  = "window"
	dictName    = "dict"
	dictNewName = "dict.new"
	infoName    = "session.json"
	lockName    = "lock"
)

// Info describes a session: the contents of session.json.
type Info struct {
	Format   int       // of the session's files
	Name     string    // of the session
	Version  string    // of the recorder
	Recorder int       // its pid
	Started  time.Time // of the recording
	Command  []string
	Program  int    `json:",omitempty"` // pid of the command
	Keep     string // as ParseKeep reads it
	Socket   string `json:",omitempty"` // abstract name to ask at
}

// format is the version of a session's files.
const format = 1

// Root is the directory of this user's sessions. It need not exist.
func Root() string {
	uid := os.Geteuid()
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && ownedBy(dir, uid) {
		return filepath.Join(dir, "hbtrace")
	}
	if uid == 0 {
		return "/run/hbtrace"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("hbtrace-%d", uid))
}

func ownedBy(dir string, uid int) bool {
	st, err := os.Lstat(dir)
	if err != nil || !st.IsDir() {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == uid
}

// makeRoot makes the directory of sessions, for its user alone. One that another user could write to is refused: what
// lies there is mapped into memory, and believed.
func makeRoot() (string, error) {
	root := Root()
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("making the directory of sessions: %w: set XDG_RUNTIME_DIR to a directory of yours", err)
	}
	st, err := os.Lstat(root)
	if err != nil {
		return "", fmt.Errorf("looking at the directory of sessions: %w", err)
	}
	switch {
	case !st.IsDir():
		return "", fmt.Errorf("%s is not a directory: remove it, or set XDG_RUNTIME_DIR to a directory of yours", root)
	case !ownedBy(root, os.Geteuid()):
		return "", fmt.Errorf("%s belongs to another user: set XDG_RUNTIME_DIR to a directory of yours", root)
	case st.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("%s can be written by other users: chmod 700 %s", root, root)
	}
	return root, nil
}

// makeSession makes a directory for a session of command, with a name that no other has.
func makeSession(command []string) (dir string, err error) {
	root, err := makeRoot()
	if err != nil {
		return "", err
	}
	base := "session"
	if len(command) > 0 {
		base = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-' {
				return r
			}
			return '_'
		}, filepath.Base(command[0]))
		base = strings.TrimLeft(base[:min(len(base), 32)], ".-")
	}
	name := fmt.Sprintf("%s-%d", cmp.Or(base, "session"), os.Getpid())
	for n := 1; n < 1000; n++ {
		dir = filepath.Join(root, name)
		if n > 1 {
			dir += fmt.Sprintf("-%d", n)
		}
		if err = os.Mkdir(dir, 0o700); !errors.Is(err, os.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("making a directory for the session: %w", err)
	}
	return dir, nil
}

// lockSession marks the session of dir as one whose recorder lives, for as long as the file is open.
func lockSession(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("marking the session as alive: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("marking the session as alive: %s: %w", f.Name(), err)
	}
	return f, nil
}

// Alive reports whether the recorder of the session in dir runs.
func Alive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil // and closing it gives it back
}

// Session is a session's directory and what it says of itself.
type Session struct {
	Dir string
	Info
	Alive bool
}

// Sessions lists this user's sessions, oldest first: those that record, and those whose recorder was killed.
func Sessions() ([]Session, error) {
	root := Root()
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for sessions: %w", err)
	}
	var all []Session
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if s, err := OpenSession(filepath.Join(root, e.Name())); err == nil {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Session) int { return a.Started.Compare(b.Started) })
	return all, nil
}

// OpenSession reads what the session in dir says of itself.
func OpenSession(dir string) (Session, error) {
	s := Session{Dir: dir}
	b, err := os.ReadFile(filepath.Join(dir, infoName))
	if err != nil {
		return s, fmt.Errorf("reading a session: %w", err)
	}
	if err := json.Unmarshal(b, &s.Info); err != nil {
		return s, fmt.Errorf("reading session %s: %w", dir, err)
	}
	if s.Format != format {
		return s, fmt.Errorf("session %s is of another version of hbtrace (%s): use that one", dir, s.Version)
	}
	s.Name = filepath.Base(dir) // what it is called is where it lies
	s.Alive = Alive(dir)
	return s, nil
}

// writeInfo writes session.json, whole or not at all.
func writeInfo(dir string, i *Info) error {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, infoName+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("describing the session: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, infoName)); err != nil {
		return fmt.Errorf("describing the session: %w", err)
	}
	return nil
}

// Remove deletes a session's directory. A recorder that lives keeps its own.
func Remove(dir string) error {
	if Alive(dir) {
		return fmt.Errorf("session %s is being recorded", filepath.Base(dir))
	}
	return os.RemoveAll(dir)
}
