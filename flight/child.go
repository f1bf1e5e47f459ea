// A dump made by a process of its own: the recorder's memory stays what it is, and its priority is not the dump's.

package flight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/hbtrace/hbtrace/trace"
)

// Command is the first argument that makes hbtrace the process that writes a dump.
const Command = "__flight-dump"

// order is what that process is asked for.
type order struct {
	Dir, Path string
	Why       trace.Dump
	NoNames   bool
}

// outcome is what it answers.
type outcome struct {
	Bytes  int64
	Events uint64
}

// Child makes a dump of the session in dir in a process of its own, and waits for it. The process executes exe, which must
// call [Main] when [Command] is its first argument.
func Child(exe, dir, path string, o Options) (*Dumped, error) {
	in, err := json.Marshal(order{dir, path, o.Why, o.NoNames})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, Command)
	cmd.Args[0] = "hbtrace"
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &complaint
	// A process group of its own: the terminal's Ctrl-C is for the program and the recorder.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(complaint.String()); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("making the dump: its process ended: %w", err)
	}
	var res outcome
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		return nil, fmt.Errorf("making the dump: its process answered what makes no sense: %w", err)
	}
	return &Dumped{Path: path, Bytes: res.Bytes, Events: res.Events}, nil
}

// Main is the process that Child starts. It returns its exit status.
func Main() int {
	LowerPriority()
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		fmt.Fprintf(os.Stderr, "reading what to dump: %v\n", err)
		return 1
	}
	c, err := Read(o.Dir)
	if err == nil {
		var d *Dumped
		if d, err = c.Dump(o.Path, Options{Why: o.Why, NoNames: o.NoNames}); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(outcome{d.Bytes, d.Events})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}
