// Who may have the segment: whoever shows the session's secret, which only its own processes can know.
package collector

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// secrets are a session's: the one that agents show, and the one that they are shown. Both are in the environment of its
// processes, which other users cannot read.
type secrets struct{ ask, give [segment.SecretBytes]byte }

func drawSecrets() (s secrets, err error) {
	for _, b := range [][]byte{s.ask[:], s.give[:]} {
		if _, err := rand.Read(b); err != nil {
			return s, fmt.Errorf("draw the session's secrets: %w", err)
		}
	}
	return s, nil
}

// session is the value of the environment variable (agent/session.h) for programs that load the agent from preload.
func (s *server) session(preload string) string {
	var dir unix.Stat_t // stays empty, which says so, where it cannot be looked at
	unix.Stat(filepath.Dir(preload), &dir)
	return strings.Join([]string{s.name, hex.EncodeToString(s.secrets.ask[:]), hex.EncodeToString(s.secrets.give[:]),
		strconv.Itoa(os.Geteuid()), strconv.FormatUint(userNamespace(), 10),
		strconv.FormatUint(dir.Dev, 10), strconv.FormatUint(dir.Ino, 10)}, ".")
}

// userNamespace is the inode of ours; 0 unknown, which no other has.
func userNamespace() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &st); err != nil {
		return 0
	}
	return st.Ino
}

// errStranger: who asked is none of the session's processes.
var errStranger = errors.New("a stranger")

// admit waits for the secret, and for what the process wants.
func (s *server) admit(c *net.UnixConn, cred *unix.Ucred) (ask segment.Ask, err error) {
	defer s.door.leave(c)
	buf := make([]byte, segment.AskBytes+1)
	n, err := c.Read(buf)
	if err != nil || n == 0 {
		return ask, errStranger // it went away again, or says nothing
	}
	if n != segment.AskBytes || !ask.Decode(buf[:n]) || ask.Magic != segment.Magic ||
		subtle.ConstantTimeCompare(ask.Secret[:], s.secrets.ask[:]) != 1 {
		s.remark(fmt.Sprintf("a process of user %d that is none of this session's asked for its memory, and was not given it", cred.Uid))
		return ask, errStranger
	}
	return ask, nil
}

// maxStrangers is how many connections of another user may wait to show the secret. The session's own processes do so at
// once.
const maxStrangers = 64

// door knows the connections that have not shown the secret yet, so that other users cannot pile them up. The recorder's own
// user is not limited.
type door struct {
	trusted uint32
	mu      sync.Mutex
	waiting map[uint32][]*net.UnixConn // by user, the oldest first
}

// enter notes a connection. Where its user has too many, the oldest of them is closed.
func (d *door) enter(c *net.UnixConn) {
	cred, err := peer(c)
	if err != nil || cred.Uid == d.trusted {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[uint32][]*net.UnixConn{}
	}
	w := append(d.waiting[cred.Uid], c)
	if len(w) > maxStrangers {
		w[0].Close()
		w = w[1:]
	}
	d.waiting[cred.Uid] = w
}

// leave forgets it: it has shown the secret, or will not.
func (d *door) leave(c *net.UnixConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, w := range d.waiting {
		if i := slices.Index(w, c); i >= 0 {
			if w = slices.Delete(w, i, i+1); len(w) == 0 {
				delete(d.waiting, uid)
			} else {
				d.waiting[uid] = w
			}
			return
		}
	}
}
