// What a flight recorder takes of a machine, said in advance.

package flight

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RestBytes is what a recorder takes beside window and dictionary, about: its program, the ring's pages, tables of a
// program with some hundred modules (measured: docs/design/flight-recorder.md).
const RestBytes = 40 << 20

// Room says what a window of so many bytes takes on this machine, and whether it may have it.
func Room(bytes int64) (text string, err error) {
	if err := roomFor(bytes); err != nil {
		return "", err
	}
	root := Root()
	var st unix.Statfs_t
	dir := root
	for unix.Statfs(dir, &st) != nil && dir != "/" {
		dir = filepath.Dir(dir)
	}
	kind := "on a disk"
	if st.Type == unix.TMPFS_MAGIC {
		kind = "in memory"
	}
	free := int64(st.Bavail) * st.Bsize
	if free < bytes {
		return "", fmt.Errorf("%s has room for %d MB, a window of %s needs more: use a smaller one, or set XDG_RUNTIME_DIR", root, free>>20, SizeString(bytes))
	}
	return fmt.Sprintf("a window of %s in %s (%s), its dictionary (by the number of different stacks), and some %d MB for the recorder", SizeString(bytes), root, kind,
		RestBytes>>20), nil
}
