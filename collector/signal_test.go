// What the command gets from the recorder's surroundings: the terminal's signals, ignored signals, limits.
package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/validate"
	"github.com/hbtrace/hbtrace/tracefile"
	"golang.org/x/sys/unix"
)

// recorderVariable makes a test binary a recorder of the command in its value (JSON), and nothing else.
const recorderVariable = "HBTRACE_TEST_COMMAND"

// TestBeRecorder is run in a process of its own, by the tests below.
func TestBeRecorder(t *testing.T) {
	v := os.Getenv(recorderVariable)
	if v == "" {
		t.Skip("only for use by other tests")
	}
	var command []string
	if err := json.Unmarshal([]byte(v), &command); err != nil {
		t.Fatal(err)
	}
	os.Unsetenv(recorderVariable)
	res, err := Record(context.Background(), Options{Command: command, Output: os.Getenv("HBTRACE_TEST_OUTPUT")})
	if err != nil {
		fmt.Println(err)
		os.Exit(125)
	}
	os.Exit(res.ExitStatus & 0xff)
}

func recorder(t *testing.T, command ...string) (cmd *exec.Cmd, output string) {
	t.Helper()
	v, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	output = filepath.Join(t.TempDir(), "out.hbt")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe, "-test.run=^TestBeRecorder$")
	cmd.Env = append(os.Environ(), recorderVariable+"="+string(v), "HBTRACE_TEST_OUTPUT="+output)
	return cmd, output
}

func checkComplete(t *testing.T, output string) {
	t.Helper()
	r, err := tracefile.Open(output)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := validate.Source(r); err != nil {
		t.Errorf("validator: %v", err)
	}
	if !r.Stats().Complete {
		t.Error("the recording is not complete")
	}
}

// terminal opens a pseudo-terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	master = os.NewFile(uintptr(m), "ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	n, err := unix.IoctlGetInt(m, unix.TIOCGPTN)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// waitFor collects what the terminal shows until it shows the text.
func waitFor(t *testing.T, master *os.File, seen *bytes.Buffer, text string) {
	t.Helper()
	fd := int32(rawFD(t, master))
	buf := make([]byte, 4096)
	eventually(t, text, func() bool {
		p := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
		if n, err := unix.Poll(p, 100); err == nil && n > 0 && p[0].Revents&unix.POLLIN != 0 {
			if n, err := unix.Read(int(fd), buf); err == nil {
				seen.Write(buf[:n])
			}
		}
		return strings.Contains(seen.String(), text)
	})
}

func rawFD(t *testing.T, f *os.File) uintptr {
	t.Helper()
	fds, err := stdio([3]*os.File{f})
	if err != nil {
		t.Fatal(err)
	}
	return fds[0]
}

// Ctrl-C reaches the command once, and the recorder finishes its work.
func TestInterruptFromTheTerminal(t *testing.T) {
	master, slave := terminal(t)
	cmd, output := recorder(t, "/bin/bash", "-c", `n=0; trap 'n=$((n+1)); echo int$n' INT; trap 'echo "total $n"; exit 4' TERM; echo begin; while :; do sleep 0.05; done`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var seen bytes.Buffer
	waitFor(t, master, &seen, "begin")
	if _, err := master.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, master, &seen, "int1")
	// What is sent to the recorder alone is passed on.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, master, &seen, "total ")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("exit: %v", err)
	}
	waitFor(t, master, &seen, "total 1")
	checkComplete(t, output)
}

// Without a terminal of its own, an interrupt sent to the recorder is passed on.
func TestInterruptWithoutTerminal(t *testing.T) {
	cmd, output := recorder(t, "/bin/bash", "-c", `trap 'echo int; exit 6' INT; echo begin; while :; do sleep 0.05; done`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	buf := make([]byte, 100)
	if n, err := r.Read(buf); err != nil || string(buf[:n]) != "begin\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 6 {
		t.Errorf("exit: %v", err)
	}
	checkComplete(t, output)
}

// The command's signals, masks and limits are what they are without the recorder; what nohup ignores stays so.
func TestCommandInheritsItsSurroundings(t *testing.T) {
	script := `trap "" HUP INT; ulimit -Sn 77; umask 027; exec "$@"`
	show := []string{"/bin/sh", "-c", "grep -E 'Sig(Blk|Ign)|Umask' /proc/self/status; ulimit -Sn; ulimit -Hn; readlink /proc/self/cwd; ls -1 /proc/self/fd | wc -l"}
	bare := exec.Command("/bin/sh", append([]string{"-c", script, "sh"}, show...)...)
	want, err := bare.Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd, output := recorder(t, show...)
	wrapped := exec.Command("/bin/sh", append([]string{"-c", script, "sh"}, cmd.Args...)...)
	wrapped.Args[4] = cmd.Path
	wrapped.Env = cmd.Env
	got, err := wrapped.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("with the recorder:\n%s\nwithout:\n%s", got, want)
	}
	checkComplete(t, output)
}
