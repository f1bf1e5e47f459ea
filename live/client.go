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
	"time"
)

// ErrEnded says that the recording has ended.
var ErrEnded = errors.New("the recording has ended")

// maxSnapshot bounds what is read of one: 20,000 threads with stacks of their own are a tenth of it.
const maxSnapshot = 256 << 20

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
	uid, _, err := peer(c)
	if err != nil || uid != os.Geteuid() && uid != 0 && os.Geteuid() != 0 {
		return nil, fmt.Errorf("the recording of process %d belongs to another user: look at it as that user, or as root", s.PID)
	}
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	body, err := io.ReadAll(io.LimitReader(c, maxSnapshot))
	if len(body) == 0 {
		return nil, ErrEnded
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
	return snap, nil
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
	for _, s := range all {
		snap, err := s.Snapshot()
		if err != nil {
			refused = errors.Join(refused, err)
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
		list = append(list, fmt.Sprintf("%d (%s)", o.s.PID, filepath.Base(strings.Join(o.snap.Command[:1], ""))))
	}
	return Session{}, nil, fmt.Errorf("several recordings run: name one: %s", strings.Join(list, ", "))
}
