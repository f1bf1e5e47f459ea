package main

// view.go asks a page's server what a browser asks first, until all of the recording is there.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// columns of a lane on a screen.
const columns = 1200

// poll is how often the page asks for more while the recording is read.
const poll = 500 * time.Millisecond

func view(what, bin, path string) error {
	cmd := exec.Command(bin, "view", "--no-browser", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("hbtrace view says no address: %w", err)
	}
	url = strings.TrimSpace(url)
	var about struct {
		Length, Resolution int64
		Read               uint64
		Done               bool
		Failed             string
	}
	ask := func(question string) ([]byte, error) {
		r, err := http.Get(url + question)
		if err != nil {
			return nil, err
		}
		defer r.Body.Close()
		p, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", question, p)
		}
		return p, err
	}
	// first is when there was something to be drawn; longest is what an answer took while the recording was read.
	var first, longest, picture time.Duration
	for {
		asked := time.Now()
		p, err := ask("about")
		if err != nil {
			return err
		}
		if err := json.Unmarshal(p, &about); err != nil {
			return err
		}
		if about.Failed != "" {
			return fmt.Errorf("the page could not read %s: %s", path, about.Failed)
		}
		if _, err := ask(fmt.Sprintf("lanes?from=0&to=%d&res=%d", about.Length, max(1, about.Length/columns))); err != nil {
			return err
		}
		if picture = time.Since(asked); first == 0 && about.Read > 0 {
			first = time.Since(begun)
		}
		if longest = max(longest, picture); about.Done {
			break
		}
		time.Sleep(poll)
	}
	wall := time.Since(begun)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	cmd.Wait() // how it ends does not matter
	u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return fmt.Errorf("%s: no resource usage", what)
	}
	line(what, wall, time.Duration(u.Utime.Nano()+u.Stime.Nano()), u.Maxrss*1024, fmt.Sprintf("first picture after %v, longest answer meanwhile %v, all at once %v; resolution %v",
		first.Round(10*time.Millisecond), longest.Round(10*time.Millisecond), picture.Round(time.Millisecond), time.Duration(about.Resolution)))
	return nil
}
