package e2e

import (
	"os"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestAgentOutOfSight: where the agent's file cannot be opened, nothing may complain: in a mount namespace with other
// temporary directories, in another root, without descriptors.
func TestAgentOutOfSight(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a mount namespace and chroot")
	}
	t.Run("mount namespace", func(t *testing.T) {
		compare(t, testprog.Command{Args: []string{testprog.LookPath(t, "unshare", "util-linux"), "-m", "sh", "-c",
			"for d in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs none $d; done; [ ! -d /var/lib/hbtrace ] || mount -t tmpfs none /var/lib/hbtrace; ls /tmp; exec ls /tmp"}})
	})
	t.Run("chroot", func(t *testing.T) {
		// the whole system once more, with empty temporary directories; mounted where nobody else sees it
		compare(t, testprog.Command{Args: []string{testprog.LookPath(t, "unshare", "util-linux"), "-m", "sh", "-c",
			`mount --bind / "$1" && for d in tmp var/tmp dev run; do mount -t tmpfs none "$1/$d"; done && { [ ! -d "$1/var/lib/hbtrace" ] || mount -t tmpfs none "$1/var/lib/hbtrace"; } && : > "$1/dev/null" && exec "$0" "$1" /tmp`,
			testprog.Build(t, "outofsight"), t.TempDir()}})
	})
}
