package live

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// ErrEnded says that the recording has ended.
var ErrEnded = errors.New("the recording has ended")

// maxSnapshot bounds what is read of one: 20,000 threads with stacks of their own are a tenth of it. maxForeign is that of
// another user's recorder, which root asks: JSON makes ten to a hundred times as much of it in memory.
const (
	maxSnapshot = 256 << 20
	maxForeign  = 16 << 20
)

// A recorder that works answers in milliseconds, and on a machine that is very busy in a second. One that says nothing for
// so long is none; each part of an answer may take as long again, and all of it no longer than wholeLimit.
var (
	muteLimit  = 10 * time.Second
	wholeLimit = 30 * time.Second
)

// Session is a recording that runs.
type Session struct {
	name string // of its socket
	PID  int    // of its recorder
}

// Snapshot asks the session. The error is ErrEnded when nobody answers any more.
func (s Session) Snapshot() (*Snapshot, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.name, Net: "unix"})
	if err != nil {
		return nil, ErrEnded
	}
	defer c.Close()
	uid, pid, err := peer(c)
	if err != nil || uid != os.Geteuid() && uid != 0 && os.Geteuid() != 0 {
		return nil, fmt.Errorf("the recording of process %d belongs to another user: look at it as that user, or as root", s.PID)
	}
	if pid != s.PID && pid != 0 { // 0: of another pid namespace
		return nil, fmt.Errorf("the socket of process %d is process %d's: no recorder of hbtrace does that", s.PID, pid)
	}
	limit := int64(maxSnapshot)
	if uid != os.Geteuid() && uid != 0 {
		limit = maxForeign
	}
	body, err := io.ReadAll(io.LimitReader(&patientReader{c: c, end: time.Now().Add(wholeLimit)}, limit))
	if len(body) == 0 && err == nil {
		return nil, ErrEnded
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("the recorder (process %d) does not answer: is it stopped?", s.PID)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the recorder (process %d): %w", s.PID, err)
	}
	snap := &Snapshot{}
	if err := json.Unmarshal(body, snap); err != nil {
		return nil, fmt.Errorf("the recorder (process %d) answers what makes no sense: is it of another version? %w", s.PID, err)
	}
	if snap.Version != Version {
		return nil, fmt.Errorf("the recorder (process %d) is of another version: use its own hbtrace", s.PID)
	}
	if err := snap.check(); err != nil {
		return nil, fmt.Errorf("the recorder (process %d) answers what makes no sense: %w", s.PID, err)
	}
	return snap, nil
}

// patientReader waits for each part of an answer, and not for ever for all of them.
type patientReader struct {
	c   *net.UnixConn
	end time.Time
}

func (r *patientReader) Read(b []byte) (int, error) {
	until := time.Now().Add(muteLimit)
	if until.After(r.end) {
		until = r.end
	}
	if err := r.c.SetReadDeadline(until); err != nil {
		return 0, err
	}
	return r.c.Read(b)
}

// check refuses what would mislead a reader: the process that answers may be another user's program.
func (s *Snapshot) check() error {
	for i, n := range s.Nodes {
		if int64(n.Parent) > int64(i) { // callers come first: stacks end
			return fmt.Errorf("frame %d has caller %d", i+1, n.Parent)
		}
	}
	for i := range s.Threads {
		if int64(s.Threads[i].Stack) > int64(len(s.Nodes)) {
			return fmt.Errorf("thread %d has stack %d of %d", i, s.Threads[i].Stack, len(s.Nodes))
		}
	}
	return nil
}

// Sessions lists the recordings that run on this machine, in this network namespace, the oldest recorder first.
func Sessions() ([]Session, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Session
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		at := strings.Index(lines.Text(), "@"+Prefix)
		if at < 0 {
			continue
		}
		name := lines.Text()[at:]
		number, _, _ := strings.Cut(name[1+len(Prefix):], "-")
		pid, err := strconv.Atoi(number)
		if err != nil || slices.ContainsFunc(out, func(s Session) bool { return s.name == name }) {
			continue // connections have their server's name, too
		}
		out = append(out, Session{name, pid})
	}
	slices.SortFunc(out, func(a, b Session) int { return cmp.Compare(a.PID, b.PID) })
	return out, lines.Err()
}

// Find is the session of which: the pid of a recorder or of a process that is recorded, or the path of the file that is
// being written; "" means the only one there is.
func Find(which string) (Session, *Snapshot, error) {
	all, err := Sessions()
	if err != nil {
		return Session{}, nil, fmt.Errorf("looking for recordings that run: %w", err)
	}
	pid, _ := strconv.Atoi(which)
	path, err := filepath.Abs(which)
	if err != nil {
		path = which
	}
	type found struct {
		s    Session
		snap *Snapshot
	}
	var ours []found
	var refused error
	for i, a := range askAll(all, which) {
		s, snap := all[i], a.snap
		if a.err != nil {
			refused = errors.Join(refused, a.err)
			continue
		}
		is := pid > 0 && (s.PID == pid || slices.ContainsFunc(snap.Threads, func(t Thread) bool { return t.TID == pid })) || pid == 0 && snap.Output == path
		for _, p := range snap.Processes {
			is = is || pid > 0 && p.PID == pid && p.End == 0
		}
		if is {
			return s, snap, nil
		}
		ours = append(ours, found{s, snap})
	}
	switch {
	case which != "" && len(ours) > 0:
		return Session{}, nil, fmt.Errorf("%s is not being recorded: name a recorded process, its hbtrace run, or the file it writes", which)
	case len(ours) == 1:
		return ours[0].s, ours[0].snap, nil
	case len(ours) == 0 && refused != nil && !errors.Is(refused, ErrEnded):
		return Session{}, nil, refused
	case len(ours) == 0:
		return Session{}, nil, errors.New("nothing is being recorded here: start with hbtrace run ./app, then look from another terminal")
	}
	var list []string
	for _, o := range ours {
		name := "?"
		if len(o.snap.Command) > 0 {
			name = printable(filepath.Base(o.snap.Command[0]))
		}
		list = append(list, fmt.Sprintf("%d (%s)", o.s.PID, name))
	}
	return Session{}, nil, fmt.Errorf("several recordings run: name one: %s", strings.Join(list, ", "))
}

type answer struct {
	snap *Snapshot
	err  error
}

// askAll asks all sessions at once, so that one that is mute holds up nothing else. Root asks other users' recorders only
// for what it was told to look for.
func askAll(all []Session, which string) []answer {
	out := make([]answer, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		if which == "" && s.foreign() {
			out[i].err = ErrEnded // not ours to list
			continue
		}
		wg.Go(func() { out[i].snap, out[i].err = s.Snapshot() })
	}
	wg.Wait()
	return out
}

// foreign: root is looking, and the recorder is another user's.
func (s Session) foreign() bool {
	if os.Geteuid() != 0 {
		return false // the answer says so
	}
	fi, err := os.Stat(fmt.Sprintf("/proc/%d", s.PID))
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0
}

// printable makes what another program says fit for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}
