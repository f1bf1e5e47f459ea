package testprog

// oldlibc.go: programs for an older C library (glibc 2.31, Debian 11's), compiled and run without a root of their
// own: the library's packages are unpacked into a folder, which serves the compiler as its sysroot and the program as
// the place of its loader and libraries.

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	oldSuite = "bullseye"
	oldDebs  = "libc6 libc6-dev linux-libc-dev libcrypt1 libcrypt-dev libgcc-s1"
	multi    = "x86_64-linux-gnu"
)

var oldLibc struct {
	once sync.Once
	root string
	skip string
}

// OldGlibc returns the compiler flags that make a program for glibc 2.31 and its loader. The test is skipped where the
// packages cannot be had.
func OldGlibc(t testing.TB) []string {
	t.Helper()
	oldLibc.once.Do(func() {
		oldLibc.root = filepath.Join(cacheDir(t), "glibc-"+oldSuite)
		if _, err := os.Stat(oldLibc.root); err != nil {
			oldLibc.skip = unpackOldLibc(cacheDir(t), oldLibc.root)
		}
	})
	if oldLibc.skip != "" {
		t.Skipf("needs glibc 2.31 from Debian %s: %s", oldSuite, oldLibc.skip)
	}
	lib, usr := filepath.Join(oldLibc.root, "lib", multi), filepath.Join(oldLibc.root, "usr/lib", multi)
	return []string{
		"--sysroot=" + oldLibc.root, "-B" + usr + "/", "-L" + usr, "-Wno-implicit-function-declaration",
		// the old form of -rpath also holds for what libraries load: libpthread wants libgcc_s when a thread is cancelled
		"-Wl,--disable-new-dtags", "-Wl,--dynamic-linker=" + filepath.Join(lib, "ld-2.31.so"), "-Wl,-rpath=" + lib, "-lrt", "-ldl", "-lpthread",
	}
}

// unpackOldLibc fetches the packages with apt-get, with package lists of its own, and returns why it could not.
func unpackOldLibc(dir, root string) (skip string) {
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Sprintf("no %s here", program)
		}
	}
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keys); err != nil {
		return "no " + keys
	}
	tmp, err := os.MkdirTemp(dir, "building-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(tmp)
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "debs", "root"} {
		if err := os.MkdirAll(filepath.Join(tmp, d), 0o755); err != nil {
			return err.Error()
		}
	}
	sources := filepath.Join(tmp, "sources.list")
	line := fmt.Sprintf("deb [arch=amd64 signed-by=%s] http://deb.debian.org/debian %s main\n", keys, oldSuite)
	if err := os.WriteFile(sources, []byte(line), 0o644); err != nil {
		return err.Error()
	}
	apt := func(words ...string) error {
		args := []string{"-q"}
		for _, o := range []string{"Dir::State=" + tmp + "/state", "Dir::Cache=" + tmp + "/cache", "Dir::State::status=/dev/null", "Dir::Etc::SourceList=" + sources,
			"Dir::Etc::SourceParts=/dev/null", "APT::Architecture=amd64", "APT::Architectures=amd64", "Acquire::Languages=none", "Acquire::Retries=1", "Acquire::http::Timeout=20"} {
			args = append(args, "-o", o)
		}
		if os.Getuid() == 0 {
			args = append(args, "-o", "APT::Sandbox::User=root") // who else may not write here
		}
		cmd := exec.Command("apt-get", append(args, words...)...)
		cmd.Dir = filepath.Join(tmp, "debs")
		out, err := cmd.CombinedOutput()
		if err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("apt-get %s: %w: %s", words[0], err, lines[len(lines)-1])
		}
		return nil
	}
	if err := apt("update"); err != nil {
		return err.Error()
	}
	if err := apt(append([]string{"download"}, strings.Fields(oldDebs)...)...); err != nil {
		return err.Error()
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "debs/*.deb"))
	if err != nil || len(debs) == 0 {
		return "apt-get downloaded nothing"
	}
	for _, deb := range debs {
		if out, err := exec.Command("dpkg-deb", "-x", deb, filepath.Join(tmp, "root")).CombinedOutput(); err != nil {
			return fmt.Sprintf("dpkg-deb -x: %v: %s", err, out)
		}
	}
	// links to /lib/… mean the folder's
	err = filepath.WalkDir(filepath.Join(tmp, "root"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		to, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(to) {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Symlink(filepath.Join(root, to), path)
	})
	if err != nil {
		return err.Error()
	}
	if err := os.Rename(filepath.Join(tmp, "root"), root); err != nil {
		if _, lost := os.Stat(root); lost != nil { // another process was first: its result is as good
			return err.Error()
		}
	}
	return ""
}
