// The spool: requests that have not been taken yet, as files in a directory, bounded by bytes.

package push

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// spool keeps requests in the order in which they were made. Where there is no room for a new one the oldest go.
type spool struct {
	dir   string
	limit int64
	next  uint64
	names []string // oldest first
	bytes int64
	lost  uint64 // requests that made room or were too large
}

func newSpool(dir string, limit int64) *spool { return &spool{dir: dir, limit: limit} }

// put adds a request.
func (s *spool) put(kind string, body []byte) error {
	n := int64(len(body))
	if n > s.limit {
		s.lost++
		return fmt.Errorf("a request of %d bytes does not fit into the spool of %d", n, s.limit)
	}
	for s.bytes+n > s.limit {
		s.drop(s.names[0])
		s.lost++
	}
	name := fmt.Sprintf("%010d.%s", s.next, kind)
	s.next++
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, body, 0o600); err != nil {
		os.Remove(path)
		s.lost++
		return fmt.Errorf("spooling: %w", err)
	}
	s.names = append(s.names, name)
	s.bytes += n
	return nil
}

// oldest returns the request that is to be sent next, and its name; no body: none is left.
func (s *spool) oldest() (name string, body []byte, err error) {
	for len(s.names) > 0 {
		name = s.names[0]
		body, err = os.ReadFile(filepath.Join(s.dir, name))
		if err == nil {
			return name, body, nil
		}
		s.drop(name)
		s.lost++
	}
	return "", nil, err
}

// kind is the kind of request that a name stands for.
func kind(name string) string { return strings.TrimPrefix(filepath.Ext(name), ".") }

// drop removes a request, and tells whether it was still there: it may have made room for a newer one while it was sent.
func (s *spool) drop(name string) bool {
	if len(s.names) == 0 || s.names[0] != name {
		return false
	}
	path := filepath.Join(s.dir, name)
	if st, err := os.Stat(path); err == nil {
		s.bytes = max(0, s.bytes-st.Size())
	}
	os.Remove(path)
	s.names = slices.Delete(s.names, 0, 1)
	return true
}
