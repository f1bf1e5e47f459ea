package e2e

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestAttachContainer: a program in mount, pid, network, IPC and UTS namespaces of its own, whose root is read-only and holds nothing but it and its
// libraries, as another user or in a user namespace of its own, is recorded by its pid from outside, and left as it was.
func TestAttachContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to be root, who may make namespaces and trace other users")
	}
	t.Parallel()
	unshare := testprog.LookPath(t, "unshare", "util-linux")
	source := "../../attach/testdata/busy.c"
	for _, c := range []struct{ name, exe, flags, user string }{
		{"glibc", testprog.BuildFile(t, source), "", "--userspec=1234:1234"},
		{"musl", buildMusl(t, source), "", "--userspec=1234:1234"},
		{"user namespace", testprog.BuildFile(t, source), "--user --map-root-user", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := makeRoot(t, c.exe)
			inner := fmt.Sprintf("mount --bind %[1]s %[1]s && mount -o remount,bind,ro %[1]s && exec chroot %[2]s %[1]s /busy", root, c.user)
			args := append([]string{unshare}, strings.Fields(c.flags+" --mount --pid --net --ipc --uts --fork --kill-child sh -c")...)
			p := testprog.Start(t, testprog.Command{Args: append(args, inner)})
			pid := 0
			eventually(t, "the program in its container", func() bool {
				children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.PID(), p.PID()))
				pid, _ = strconv.Atoi(strings.TrimSpace(string(children)))
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID())); strings.Contains(string(b), ") Z ") {
					if r := p.Wait(t); r.Code != 0 {
						t.Skipf("needs to be allowed to make namespaces: %s", r.Stderr)
					}
				}
				return pid != 0 && len(tasks(pid)) >= busyThreads
			})
			settled(t, pid)
			before := stateOf(t, pid)
			_, src := attachTo(t, pid, "-d", "300ms")
			takenBack(t, pid)
			compareStates(t, before, stateOf(t, pid))
			if n := len(src.Threads()); n < busyThreads {
				t.Errorf("%d threads recorded, it has %d", n, busyThreads)
			}
			recorded := 0
			for _, b := range src.Meta().Attached[0].Threads {
				if b.Thread != 0 {
					recorded++
				}
			}
			if recorded < busyThreads/2 {
				t.Errorf("%d of the threads that were there are known in the recording: %+v", recorded, src.Meta().Attached)
			}
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if r := p.Wait(t); !bytes.HasPrefix(r.Stdout, []byte("RIGHT")) {
				t.Errorf("the program: %s", r)
			}
		})
	}
}

// interpreter is the loader that a program names.
func interpreter(t *testing.T, exe string) string {
	t.Helper()
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := f.Section(".interp").Data()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(string(b), "\x00")
}

var libraryPath = regexp.MustCompile(`/[^ ]+\.so[^ ]*`)

// makeRoot makes a folder with a program, as busy, and its libraries.
func makeRoot(t *testing.T, exe string) string {
	t.Helper()
	root := t.TempDir()
	for dir := root; dir != "/"; dir = filepath.Dir(dir) { // the other user has to reach it
		if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&0o011 != 0o011 {
			os.Chmod(dir, fi.Mode().Perm()|0o055)
		}
	}
	put := func(from, to string) {
		b, err := os.ReadFile(from)
		if err == nil {
			to = filepath.Join(root, to)
			if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
				err = os.WriteFile(to, b, 0o755)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(exe, "busy")
	if loader := interpreter(t, exe); strings.Contains(loader, "musl") {
		put(loader, loader) // which is all of its C library
		return root
	}
	out, err := exec.Command("ldd", exe).CombinedOutput()
	if err != nil {
		t.Fatalf("ldd %s: %v: %s", exe, err, out)
	}
	for _, library := range append(libraryPath.FindAllString(string(out), -1), "/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib64/libgcc_s.so.1") {
		if _, err := os.Stat(library); err == nil {
			put(library, library)
		}
	}
	return root
}
