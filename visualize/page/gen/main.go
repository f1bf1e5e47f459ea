// Command gen builds zpage.js of the TypeScript in web/, with npm's typescript and esbuild at the versions that
// package-lock.json names. Where node or npm is missing nothing is made anew: `go test` then checks the hash of the
// sources that zpage.js begins with.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hbtrace/hbtrace/visualize/page/sources"
)

func main() {
	if err := build("web", "zpage.js"); err != nil {
		fmt.Fprintln(os.Stderr, "page/gen:", err)
		os.Exit(1)
	}
}

func build(dir, out string) error {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			fmt.Fprintf(os.Stderr, "page/gen: no %s: %s stays as it is\n", tool, out)
			return nil
		}
	}
	hash, err := sources.Hash(os.DirFS(dir))
	if err != nil {
		return err
	}
	if fresh(filepath.Join(dir, "node_modules", ".package-lock.json"), filepath.Join(dir, "package-lock.json")) != nil {
		if _, err := run(dir, "npm", "ci", "--ignore-scripts", "--loglevel=error"); err != nil {
			return err
		}
	}
	if _, err := run(dir, filepath.Join("node_modules", ".bin", "tsc"), "--noEmit", "-p", "."); err != nil {
		return err
	}
	js, err := run(dir, filepath.Join("node_modules", ".bin", "esbuild"), "main.ts", "--bundle", "--minify", "--format=iife",
		"--target=es2022", "--charset=utf8", "--legal-comments=none", "--log-level=warning")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append([]byte(sources.Banner(hash)), bytes.TrimSpace(js)...), 0o644)
}

// fresh says whether what npm installed is younger than what it was to install.
func fresh(installed, wanted string) error {
	i, err := os.Stat(installed)
	if err != nil {
		return err
	}
	w, err := os.Stat(wanted)
	if err != nil {
		return err
	}
	if i.ModTime().Before(w.ModTime()) {
		return fmt.Errorf("%s is older than %s", installed, wanted)
	}
	return nil
}

func run(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %v in %s: %w\n%s%s", name, args, dir, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
