// The attach and detach commands: record programs that run already, and leave them as they were.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/attach"
	"github.com/hbtrace/hbtrace/collector"
	"github.com/hbtrace/hbtrace/flight"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// notOfAttach are flags of run that mean nothing where no program is started.
var notOfAttach = map[string]bool{"follow": true}

func newAttach() *cobra.Command {
	f := newRunFlags()
	run := f.command()
	var selector string
	c := &cobra.Command{
		Use:   "attach [flags] PID|NAME…",
		Short: "Record running processes",
		Long: `attach records processes that run already, until they end, -d is over or Ctrl-C is typed. Then it leaves them as they
were. It writes the same files and the same summary as run.

A process is named by its pid, or by the name of its program where only one process has that name. The id of a container (or its first
12 digits), the name or uid of a pod, and the name of a systemd unit stand for all of their processes that can be attached to.

It works for dynamically linked x86-64 programs with glibc 2.34 or later, or musl, on Linux 5.6 or later.
hbtrace doctor PID says beforehand whether a process can be attached to.`,
		Example: `  hbtrace attach -d 30s 4711
  hbtrace attach -o /tmp/db-%p postgres
  hbtrace attach --keep 60s --on stall 4711`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && selector == "" {
				return errors.New("name the process to record: hbtrace attach PID")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if selector != "" {
				c, err := clusterOf(os.Getenv)
				if err != nil {
					return err
				}
				pods, err := c.pods(cmd.Context(), selector)
				if err != nil {
					return err
				}
				args = append(args, pods...)
			}
			return f.attach(cmd, args)
		},
	}
	run.Flags().VisitAll(func(flag *pflag.Flag) {
		if !notOfAttach[flag.Name] {
			c.Flags().AddFlag(flag)
		}
	})
	c.Flags().StringVarP(&selector, "selector", "l", "", "in a pod: the pods of this node with these `labels`, as kubectl has it")
	c.Flags().Lookup("duration").Usage = "detach after this (10, 10s, 500ms); the program runs on"
	return c
}

func newDetach() *cobra.Command {
	return &cobra.Command{
		Use:   "detach PID|NAME…",
		Short: "Take back what a killed recorder left in a program",
		Long: `detach takes hbtrace out of processes whose recorder was killed. A recorder that ends by itself leaves nothing to do. The
next attach does the same.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the process: hbtrace detach PID")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			pids, err := processes(args)
			if err != nil {
				return err
			}
			for _, pid := range pids {
				found, err := attach.Detach(pid)
				if err != nil {
					return err
				}
				if found {
					fmt.Fprintf(cmd.OutOrStdout(), "process %d: taken back\n", pid)
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "process %d: nothing of hbtrace is active in it\n", pid)
				}
			}
			return nil
		},
	}
}

func (f *runFlags) attach(cmd *cobra.Command, args []string) error {
	pids, err := processes(args)
	if err != nil {
		return err
	}
	o, err := f.options(nil)
	if err != nil {
		return err
	}
	out := &outputs{pattern: trimSuffix(f.prefix), at: time.Now()}
	if out.prefix, err = out.expand(pids[0]); err != nil {
		return err
	}
	if err := checkPrefix(out.prefix); err != nil {
		return err
	}
	if err := f.keep.options(&o, cmd.Flags().Changed); err != nil {
		return err
	}
	o.Output, o.Dumps.Prefix = out.recording(), out.prefix
	stderr := cmd.ErrOrStderr()
	line := newProgress(stderr, f.quiet)
	if !f.quiet {
		o.Alert = func(text string) {
			line.clear()
			fmt.Fprintf(stderr, "hbtrace: %s\n", text)
		}
	}
	if f.verbose {
		o.Remark = func(text string) { fmt.Fprintf(stderr, "hbtrace: %s\n", text) }
	}
	o.Progress = recordingProgress(line)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	undo := func() {}
	if o.Keep == (flight.Keep{}) {
		if undo, err = out.keepOld(); err != nil {
			stop()
			return err
		}
	}
	res, failed := collector.Attach(ctx, o, pids)
	stop()
	line.clear()
	if res == nil {
		undo()
		return failed
	}
	signal.Ignore(syscall.SIGPIPE)
	if o.Keep != (flight.Keep{}) {
		if failed == nil {
			f.tellKept(res, o.Keep, stderr)
		}
		return failed
	}
	if failed != nil {
		return fmt.Errorf("%w: what was written is in %s", failed, o.Output)
	}
	return f.finish(out, line, stderr)
}

// processes are those that the arguments name.
func processes(args []string) ([]int, error) {
	var out []int
	seen := map[int]bool{}
	for _, arg := range args {
		var pids []int
		pid, err := strconv.Atoi(arg)
		if err == nil && pid <= 0 {
			return nil, fmt.Errorf("%s is no pid", arg)
		}
		if err == nil && !(len(arg) >= 12 && hexadecimal.MatchString(arg)) { // a container's id may have no letter
			pids = []int{pid}
		} else if pids, err = byName(arg); err != nil {
			return nil, err
		}
		for _, pid := range pids {
			if !seen[pid] {
				seen[pid] = true
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

// byName finds the one process whose program or name is that, or all that belong to the container, pod or unit and can be attached to.
func byName(name string) ([]int, error) {
	if all := members("/proc", name); len(all) > 0 {
		var able []int
		var why error
		for _, pid := range all {
			if err := attach.Check(pid); err != nil {
				why = err
			} else {
				able = append(able, pid)
			}
		}
		if len(able) == 0 {
			return nil, fmt.Errorf("none of the %d processes of %s can be attached to: %w", len(all), name, why)
		}
		return able, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if strings.TrimSpace(string(comm)) == name || filepath.Base(exe) == name {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no process has the name %s, and no container, pod or unit", name)
	case 1:
		pid, err := strconv.Atoi(found[0])
		return []int{pid}, err
	}
	return nil, fmt.Errorf("%d processes have the name %s: name one by its pid (%s)", len(found), name, strings.Join(found, ", "))
}
