package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestExecutionTraces(t *testing.T) {
	dir := t.TempDir()
	path, text := filepath.Join(dir, "a.trace"), filepath.Join(dir, "text")
	before := time.Now()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := trace.Start(f); err != nil {
		t.Fatal(err)
	}
	trace.Stop()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(text, []byte("no trace"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"app", path, text, dir, "nothing"}, {"app", "-trace=" + path, path}} {
		if got := executionTraces(command, before); !slices.Equal(got, []string{path}) {
			t.Errorf("%q: %q", command, got)
		}
	}
	if got := executionTraces([]string{"app", path}, time.Now().Add(time.Hour)); got != nil {
		t.Errorf("of an older file: %q", got)
	}
	var out, errs bytes.Buffer
	if code := execute([]string{"report", path}, &out, &errs); code == 0 || !strings.Contains(errs.String(), "hbtrace import "+path) {
		t.Errorf("report of a trace: %d, %s", code, errs.String())
	}
	if code := execute([]string{"import", text}, &out, &errs); code == 0 || !strings.Contains(errs.String(), "no Go execution trace") {
		t.Errorf("import of text: %d, %s", code, errs.String())
	}
}
