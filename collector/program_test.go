// Finding and judging programs, and the environment that they get.
package collector

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode fs.FileMode) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), mode), os.Chmod(p, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("plain.txt", "hello", 0o644)
	write("sh-script", "#!/bin/sh\nexit 0\n", 0o755)
	write("spaced-script", "#! \t/bin/sh -e\nexit 0\n", 0o755)
	write("bad-interp", "#!/no/such/interpreter -x\n", 0o755)
	write("dir-interp", "#!/tmp\n", 0o755)
	write("text-interp", "#!"+dir+"/plain.txt\n", 0o755)
	write("empty-interp", "#!  \n", 0o755)
	write("no-shebang", "exit 3\n", 0o755)
	write("empty", "", 0o755)
	write("bin/tool", "#!/bin/sh\n", 0o755)
	write("denied/tool", "#!/bin/sh\n", 0o644)
	write("denied/only", "#!/bin/sh\n", 0o644)
	if err := os.MkdirAll(filepath.Join(dir, "bin2", "tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{dir + "/none", dir + "/denied", dir + "/bin2", dir + "/bin"}, ":")
	for _, tc := range []struct {
		command, want string // path found, or what the error says
		fails         bool
	}{
		{"tool", dir + "/bin/tool", false},
		{"only", "is not executable", true},
		{"nothing-of-that-name", "no such program: nothing-of-that-name is not in PATH", true},
		{"sh-script", "here it is ./sh-script", true},
		{"./sh-script", "./sh-script", false},
		{"./spaced-script", "./spaced-script", false},
		{"./no-shebang", "./no-shebang", false},
		{"./empty", "./empty", false},
		{"./absent", "no such program: ./absent", true},
		{"./plain.txt/x", "no such program", true},
		{"./plain.txt", "not executable: chmod +x", true},
		{"./bin", "is a directory", true},
		{"./bad-interp", `"/no/such/interpreter", which does not exist`, true},
		{"./dir-interp", "which is a directory", true},
		{"./text-interp", "which is not executable", true},
		{"./empty-interp", "names no interpreter", true},
		{"/dev/null", "is not a program", true},
		{"", "no program given", true},
		{"/bin/sh", "/bin/sh", false},
	} {
		t.Run(tc.command, func(t *testing.T) {
			p, err := findProgram([]string{tc.command}, path, dir)
			switch {
			case tc.fails && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("error %v, want %q", err, tc.want)
			case !tc.fails && err != nil:
				t.Error(err)
			case !tc.fails && p.path != tc.want:
				t.Errorf("found %s, want %s", p.path, tc.want)
			case !tc.fails && p.shells != (strings.HasSuffix(tc.command, "no-shebang") || strings.HasSuffix(tc.command, "empty")):
				t.Errorf("run by the shell: %v", p.shells)
			}
		})
	}
}

func TestInspectKinds(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc for the test programs")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "x.c")
	if err := os.WriteFile(src, []byte("int main(void){return 0;}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		flags []string
		note  string
		asan  bool
		fails string
	}{
		{"dynamic", nil, "", false, ""},
		{"static", []string{"-static"}, "statically linked", false, ""},
		{"static-pie", []string{"-static-pie"}, "statically linked", false, ""},
		{"asan", []string{"-fsanitize=address"}, "", true, ""},
		{"loader", []string{"-Wl,--dynamic-linker=/lib/no-such-loader.so"}, "", false, "needs the loader /lib/no-such-loader.so"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := filepath.Join(dir, tc.name)
			if b, err := exec.Command("gcc", append([]string{"-o", out, src}, tc.flags...)...).CombinedOutput(); err != nil {
				t.Skipf("gcc %v: %v %s", tc.flags, err, b)
			}
			p, err := findProgram([]string{out}, "", "")
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.asan != tc.asan || strings.Contains(strings.Join(p.notes, ""), "static") != (tc.note != "") {
				t.Errorf("asan %v, notes %q", p.asan, p.notes)
			}
		})
	}
	// A set-user-id program of somebody else's.
	if os.Getuid() != 0 {
		t.Log("not root: no set-user-id program to make")
		return
	}
	suid := filepath.Join(dir, "suid")
	b, err := os.ReadFile(filepath.Join(dir, "dynamic"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(suid, b, 0o755), os.Chown(suid, 12345, 12345), os.Chmod(suid, 0o755|fs.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	if p, err := findProgram([]string{suid}, "", ""); err != nil || !strings.Contains(strings.Join(p.notes, ""), "set-user-id") {
		t.Errorf("%+v, %v", p, err)
	}
	if err := errors.Join(os.Chown(suid, 0, 12345), os.Chmod(suid, 0o755|fs.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	if p, err := findProgram([]string{suid}, "", ""); err != nil || len(p.notes) != 0 {
		t.Errorf("our own set-user-id program: %+v, %v", p, err)
	}
}

func TestEnviron(t *testing.T) {
	const preload, session = "/tmp/x/agent-$PLATFORM.so", "hbtrace-1"
	for _, tc := range []struct {
		name      string
		env, want []string
		asan      bool
	}{
		{"plain", []string{"B=2", "A=1"}, []string{"B=2", "A=1", "LD_PRELOAD=" + preload, "HBTRACE_SESSION=" + session}, false},
		{"user's preload stays behind ours, in its place", []string{"A=1", "LD_PRELOAD=/usr/lib/libjemalloc.so", "B="},
			[]string{"A=1", "LD_PRELOAD=" + preload + ":/usr/lib/libjemalloc.so", "B=", "HBTRACE_SESSION=" + session}, false},
		{"empty preload", []string{"LD_PRELOAD="}, []string{"LD_PRELOAD=" + preload, "HBTRACE_SESSION=" + session}, false},
		{"inside another session", []string{"HBTRACE_SESSION=old", "A=1"}, []string{"HBTRACE_SESSION=" + session, "A=1", "LD_PRELOAD=" + preload}, false},
		{"odd entries are kept", []string{"", "=x", "NOEQUALS", "LD_PRELOADX=1", "A=1", "A=2"},
			[]string{"", "=x", "NOEQUALS", "LD_PRELOADX=1", "A=1", "A=2", "LD_PRELOAD=" + preload, "HBTRACE_SESSION=" + session}, false},
		{"asan", []string{"ASAN_OPTIONS=detect_leaks=0"}, []string{"ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0", "LD_PRELOAD=" + preload, "HBTRACE_SESSION=" + session}, true},
		{"asan, said by the user", []string{"ASAN_OPTIONS=verify_asan_link_order=1"}, []string{"ASAN_OPTIONS=verify_asan_link_order=1", "LD_PRELOAD=" + preload, "HBTRACE_SESSION=" + session}, true},
		{"asan, unset", nil, []string{"LD_PRELOAD=" + preload, "HBTRACE_SESSION=" + session, "ASAN_OPTIONS=verify_asan_link_order=0"}, true},
	} {
		before := slices.Clone(tc.env)
		if got := environ(tc.env, preload, session, tc.asan); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q\nwant %q", tc.name, got, tc.want)
		}
		if !slices.Equal(before, tc.env) {
			t.Errorf("%s: the caller's slice changed", tc.name)
		}
	}
}

func TestLaunchPassesDescriptorsAndArguments(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// os.Pipe's ends are non-blocking: it must stay so for the others who share them.
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	p, err := findProgram([]string{"sh", "-c", `echo "$0" "$@"; exit 9`, "a b", "c"}, os.Getenv("PATH"), "")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := launch(p, os.Environ(), "", [3]*os.File{nil, w, nil}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-c.done
	if err := raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("the pipe's flags are %#x, %v: O_NONBLOCK was taken away", flags, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	buf := make([]byte, 64)
	n, _ := r.Read(buf)
	if got := string(buf[:n]); got != "a b c\n" {
		t.Errorf("wrote %q", got)
	}
	if status, sig := c.result(); status != 9 || sig != 0 {
		t.Errorf("status %d, signal %v", status, sig)
	}
	c.signal(unix.SIGKILL) // after its end: reaches nobody
}

func TestLaunchWithoutShebang(t *testing.T) {
	f := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(f, []byte("exit $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := findProgram([]string{f, "4"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := launch(p, os.Environ(), "", [3]*os.File{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-c.done
	if status, _ := c.result(); status != 4 {
		t.Errorf("status %d: not run as a shell would", status)
	}
}
