// The top command.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/live"
	"github.com/hbtrace/hbtrace/visualize/top"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

type topOptions struct {
	times  int
	delay  durationFlag
	json   bool
	stacks bool
}

func newTop() *cobra.Command {
	o := topOptions{delay: durationFlag{value: time.Second}}
	c := &cobra.Command{
		Use:   "top [flags] [PID|FILE]",
		Short: "Show what the threads of a recorded program are doing now",
		Long: `top shows what each thread of a program that is being recorded is doing now: the function that runs, or what the thread
waits for and since when, which thread holds the lock, and what the holder is doing. It asks the recorder. The program is not stopped.

PID is a recorded process or its hbtrace run; FILE is the recording being written. Neither is needed where only one recorder runs.

A thread that is blocked in a recorded call is shown with the stack that it entered the call with. If no stack was taken there, only the caller is
shown. Any other thread is shown with its newest sample; the table prints the sample's age.`,
		Example: `  hbtrace run ./server &
  hbtrace top                    # until Ctrl-C
  hbtrace top -n 1 --stacks      # once, with whole stacks`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			which := ""
			if len(args) > 0 {
				which = args[0]
			}
			return o.run(cmd, which)
		},
	}
	f := c.Flags()
	f.IntVarP(&o.times, "times", "n", 0, "number of refreshes (default: until Ctrl-C on a terminal, else 1)")
	f.VarP(&o.delay, "delay", "d", "refresh interval (1, 500ms)")
	f.BoolVar(&o.json, "json", false, "print JSON, complete, one line for each refresh")
	f.BoolVar(&o.stacks, "stacks", false, "print whole stacks")
	return c
}

// firstLook is how long the first two snapshots are apart: percentages are of the time between two.
const firstLook = 200 * time.Millisecond

func (o *topOptions) run(cmd *cobra.Command, which string) error {
	if o.times < 0 || o.delay.value <= 0 {
		return errors.New("top: -n and -d want a number above 0")
	}
	session, before, err := live.Find(which)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := cmd.OutOrStdout()
	is, _ := terminalOf(out)
	if !is && o.times == 0 {
		o.times = 1
	}
	names := top.NewNames()
	defer names.Close()
	screen := is && o.times != 1 && !o.json
	if screen {
		io.WriteString(out, "\x1b[?1049h\x1b[?25l") // the other screen, without a cursor
		defer io.WriteString(out, "\x1b[?25h\x1b[?1049l")
	}
	for i, pause := 0, firstLook; o.times == 0 || i < o.times; i, pause = i+1, o.delay.value {
		if !sleep(ctx, min(pause, o.delay.value)) {
			return nil
		}
		now, err := session.Snapshot()
		if errors.Is(err, live.ErrEnded) && i > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("top: %w", err)
		}
		if err := o.show(out, top.New(now, before, names), screen); err != nil {
			return fmt.Errorf("top: writing: %w", err)
		}
		before = now
	}
	return nil
}

// show writes one look in one go, so that a terminal does not flicker.
func (o *topOptions) show(out io.Writer, v *top.View, screen bool) error {
	var text bytes.Buffer
	if o.json {
		if err := v.JSON(&text); err != nil {
			return err
		}
	} else {
		is, columns := terminalOf(out)
		t := top.Options{Width: columns, Color: coloured(is), Stacks: o.stacks}
		if screen {
			t.Height = heightOf(out)
		}
		if err := v.Text(&text, t); err != nil {
			return err
		}
	}
	b := text.Bytes()
	if screen { // over what was there, line by line
		b = bytes.TrimSuffix(b, []byte("\n"))
		b = append(append([]byte("\x1b[H"), bytes.ReplaceAll(b, []byte("\n"), []byte("\x1b[K\r\n"))...), "\x1b[K\x1b[J"...)
	}
	_, err := out.Write(b)
	return err
}

// heightOf is how many lines a terminal has; 0 unknown.
func heightOf(w io.Writer) int {
	if f := asFile(w); f != nil {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			return int(size.Row)
		}
	}
	return 0
}

// sleep waits; false when it was told to end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
