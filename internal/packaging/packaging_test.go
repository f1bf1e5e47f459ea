// Package packaging holds the test of what `make dist` publishes.
package packaging

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestStressDist: two builds of a commit have the same bytes; the packages install into an empty root, where the binary
// says the version of the package, and man pages and completions lie where the system looks for them.
func TestStressDist(t *testing.T) {
	if os.Getenv("HBTRACE_STRESS") == "" {
		t.Skip("builds for two architectures, twice: set HBTRACE_STRESS")
	}
	first, second := dist(t), dist(t)
	sums := read(t, filepath.Join(first, "SHA256SUMS"))
	if again := read(t, filepath.Join(second, "SHA256SUMS")); sums != again {
		t.Errorf("two builds of a commit differ:\n%s\n%s", sums, again)
	}
	for _, kind := range []string{"amd64.tar.gz", "amd64.deb", "amd64.rpm", "arm64.tar.gz", "arm64.deb", "arm64.rpm"} {
		one(t, first, kind)
	}
	t.Run("deb", func(t *testing.T) {
		root := t.TempDir()
		admin := filepath.Join(root, "var/lib/dpkg")
		for _, dir := range []string{"info", "updates"} {
			if err := os.MkdirAll(filepath.Join(admin, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(admin, "status"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, "dpkg", "--force-not-root", "--log=/dev/null", "--root="+root, "-i", one(t, first, runtime.GOARCH+".deb"))
		installed(t, root)
	})
	t.Run("rpm", func(t *testing.T) {
		root := t.TempDir()
		run(t, "rpm", "--root", root, "--nodeps", "--ignoreos", "-i", one(t, first, runtime.GOARCH+".rpm"))
		installed(t, root)
	})
	t.Run("tar", func(t *testing.T) {
		root := t.TempDir()
		run(t, "tar", "-C", root, "--strip-components=1", "-xf", one(t, first, runtime.GOARCH+".tar.gz"))
		says(t, exec.Command(filepath.Join(root, "hbtrace"), "version", "--json"), version(t, first))
	})
	t.Run("sbom", func(t *testing.T) {
		var bill struct {
			BomFormat  string
			Components []struct{ Name, Version, Purl string }
		}
		if err := json.Unmarshal([]byte(read(t, one(t, first, "amd64.cdx.json"))), &bill); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, c := range bill.Components {
			found[c.Name] = c.Version
		}
		if bill.BomFormat != "CycloneDX" || found["github.com/spf13/cobra"] == "" || found["golang.org/x/sys"] == "" {
			t.Errorf("the SBOM is %s of %v", bill.BomFormat, found)
		}
	})
}

// dist runs scripts/dist.sh and gives where the files are.
func dist(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "../../scripts/dist.sh", dir)
	return dir
}

// installed checks what a package left in a root directory.
func installed(t *testing.T, root string) {
	t.Helper()
	for _, p := range []string{
		"usr/bin/hbtrace", "usr/share/man/man1/hbtrace-run.1.gz", "usr/share/bash-completion/completions/hbtrace", "usr/share/doc/hbtrace/copyright",
	} {
		if st, err := os.Stat(filepath.Join(root, p)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v, %v", p, st, err)
		}
	}
	// nothing but the package: the binary needs no library and no file
	cmd := exec.Command("chroot", root, "/usr/bin/hbtrace", "version", "--json")
	if os.Getuid() != 0 {
		cmd = exec.Command(filepath.Join(root, "usr/bin/hbtrace"), "version", "--json")
	}
	says(t, cmd, "")
}

// says checks that a binary says a version, the one given if there is one.
func says(t *testing.T, cmd *exec.Cmd, want string) {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Version, Go, OS, Arch, Agent string }
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.Version, "v") || want != "" && v.Version != "v"+want || v.Arch != runtime.GOARCH || v.Agent == "" {
		t.Errorf("the binary says %+v, want version %s", v, want)
	}
}

// version is the version in the names of files.
func version(t *testing.T, dir string) string {
	name := filepath.Base(one(t, dir, "amd64.tar.gz"))
	return strings.TrimSuffix(strings.TrimPrefix(name, "hbtrace-"), "-linux-amd64.tar.gz")
}

// one is the file of dir whose name ends in kind.
func one(t *testing.T, dir, kind string) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "hbtrace-*-linux-"+kind))
	if len(found) != 1 {
		t.Fatalf("files of %s: %v", kind, found)
	}
	return found[0]
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out.Bytes())
	}
}
