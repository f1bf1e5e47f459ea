package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
)

// contained makes what a container runtime makes: namespaces, a root directory of its own that cannot be written, /proc, a
// /tmp, uid 10001 and no capabilities. $0 is the root, $1 what /tmp is, the rest is the command.
const contained = `set -e; R=$0
mount --bind "$R" "$R"; mount -o remount,ro,bind "$R"; mount -t proc proc "$R/proc"; mount --bind "$1" "$R/tmp"; mount -t tmpfs tmpfs "$R/dev"
mknod -m 666 "$R/dev/null" c 1 3; mknod -m 666 "$R/dev/urandom" c 1 9
shift; exec chroot --userspec=10001:10001 "$R" "$@"`

// TestContainer: hbtrace records in a container as small as one can be: its own binary, the program and the C library; under what
// Docker's default seccomp profile forbids, as another user, with a root that cannot be written.
func TestContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces and chroot")
	}
	unshare := testprog.LookPath(t, "unshare", "util-linux")
	for _, c := range []struct{ name, cc string }{{"glibc", "gcc"}, {"musl", "musl-gcc"}} {
		t.Run(c.name, func(t *testing.T) {
			testprog.LookPath(t, c.cc, c.cc)
			program := testprog.BuildFile(t, "testdata/container.c", "cc="+c.cc)
			confine := testprog.BuildFile(t, "testdata/dockerseccomp.c", "-static")
			root := makeRoot(t, program)
			tmp := t.TempDir()
			for _, dir := range []string{"bin", "proc", "tmp", "dev"} {
				mkdir(t, filepath.Join(root, dir), 0o755)
			}
			mkdir(t, tmp, 0o777)
			for to, from := range map[string]string{"hbtrace": testprog.Hbtrace(t), "confine": confine} {
				copyFile(t, filepath.Join(root, "bin", to), from)
			}
			cmd := exec.Command(unshare, "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--propagation", "private",
				"sh", "-c", contained, root, tmp, "/bin/confine", "/bin/hbtrace", "run", "-q", "-o", "/tmp/rec", "/busy")
			cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp"}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var status *exec.ExitError
			if !errors.As(err, &status) || status.ExitCode() != 7 || string(out) != "filled\n" {
				t.Fatalf("%v, output %q, standard error %q", err, out, stderr.String())
			}
			r := (&session{prefix: filepath.Join(tmp, "rec")}).openTrace(t)
			sleeps, meets := 0, 0
			meta := r.Meta()
			if err := trace.Events(r, func(e *trace.Event) error {
				switch {
				case strings.HasSuffix(meta.Hooks[e.Hook].Name, "usleep") && e.Kind == trace.KindCall:
					sleeps++
				case meta.Hooks[e.Hook].Name == "pthread_barrier_wait" && e.Kind == trace.KindWait:
					meets++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if sleeps != 20 || len(r.Threads()) != 3 || len(r.Processes()) != 1 {
				t.Errorf("%d sleeps of 20, %d threads of 3, %d processes of 1; %d waits at the barrier", sleeps, len(r.Threads()), len(r.Processes()), meets)
			}
		})
	}
}

func mkdir(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
