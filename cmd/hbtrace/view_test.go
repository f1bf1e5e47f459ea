package main

// The browser that view starts, as a stand-in that writes down its arguments: never a real one.

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestViewBrowser: view hands what leads to the address that it prints to the browser that the environment names, and to no other; when there is none, or it
// fails, one line says so, and the page is served all the same.
func TestViewBrowser(t *testing.T) {
	rec := filepath.Join(t.TempDir(), "a.hbt")
	if err := writeRecording(rec); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		found   []string // stand-ins on PATH
		env     string   // DIR stands for the directory of the stand-ins
		flags   []string
		started string // which one is given the address; "" none
		says    string // on stderr
	}{
		{"the one that BROWSER names", []string{"mine", "xdg-open"}, "BROWSER=mine", nil, "mine", ""},
		{"by its path", []string{"mine", "xdg-open"}, "BROWSER=DIR/mine", nil, "mine", ""},
		{"the first of a list that is there", []string{"mine", "other", "xdg-open"}, "BROWSER=missing:mine:other", nil, "mine", ""},
		{"BROWSER is not there", []string{"xdg-open"}, "BROWSER=DIR/missing", nil, "xdg-open", ""},
		{"on a display", []string{"x-www-browser", "xdg-open"}, "DISPLAY=:0", nil, "xdg-open", ""},
		{"on Wayland", []string{"x-www-browser"}, "WAYLAND_DISPLAY=wayland-0", nil, "x-www-browser", ""},
		{"fails", []string{"failing", "xdg-open"}, "BROWSER=failing", nil, "failing", "hbtrace: failing ended with exit status 3: if it showed no page, open the address yourself\n"},
		{"none is there", nil, "DISPLAY=:0", nil, "", "hbtrace: no browser was found: open the address yourself\n"},
		{"no display", []string{"xdg-open"}, "", nil, "", "hbtrace: no display here: open the address yourself, or from another machine through ssh -L\n"},
		{"none is wanted", []string{"mine", "xdg-open"}, "BROWSER=mine", []string{"--no-browser"}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range c.found {
				status := "0"
				if name == "failing" {
					status = "3"
				}
				// The file is there with all that is in it, or not at all. mv's path: PATH has the stand-ins alone.
				script := "#!/bin/sh\n" + `printf '%s\n' "$@" > "$0.part" && /bin/mv "$0.part" "$0.asked"` + "\nexit " + status + "\n"
				if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(hbtrace(t), append(append([]string{"view"}, c.flags...), rec)...)
			cmd.Env = []string{"PATH=" + dir, "HOME=" + dir, "TMPDIR=" + dir, strings.ReplaceAll(c.env, "DIR", dir)}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			url, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatalf("no address: %v", err)
			}
			url = strings.TrimSpace(url)
			answer, err := http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", url, answer.Status)
			}
			said := bufio.NewReader(stderr)
			first, err := said.ReadString('\n')
			if want := "hbtrace: showing " + rec + " there until Ctrl-C\n"; first != want {
				t.Fatalf("it says %q (%v), want %q", first, err, want)
			}
			if c.says != "" { // comes when the browser has ended
				if line, err := said.ReadString('\n'); line != c.says {
					t.Errorf("it says %q (%v), want %q", line, err, c.says)
				}
			}
			var leads string
			var at bool
			if c.started != "" {
				asked := filepath.Join(dir, c.started+".asked")
				for until := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
					got, err := os.ReadFile(asked)
					if err == nil {
						leads, at = strings.CutPrefix(strings.TrimSpace(string(got)), "file://")
						token := strings.Split(url, "/")[3]
						if page, err := os.ReadFile(leads); err != nil || !at || strings.Contains(string(got), token) || !strings.Contains(string(page), `url=`+url+`"`) {
							t.Errorf("the browser was asked for %q, in which is %q (%v); want what leads to %q, without telling its token", got, page, err, url)
						}
						if fi, err := os.Stat(leads); err != nil || fi.Mode() != 0o600 {
							t.Errorf("%s: %v, %v", leads, fi.Mode(), err)
						}
						break
					}
					if time.Now().After(until) {
						t.Fatalf("%s was not started: %v", c.started, err)
					}
				}
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if rest, _ := io.ReadAll(said); len(rest) > 0 {
				t.Errorf("it also says %q", rest)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("after Ctrl-C: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "hbtrace-view-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
			asked, err := filepath.Glob(filepath.Join(dir, "*.asked"))
			if want := min(1, len(c.started)); err != nil || len(asked) != want {
				t.Errorf("asked were %v, want %d of them", asked, want)
			}
		})
	}
}
