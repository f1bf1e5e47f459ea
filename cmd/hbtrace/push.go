// The push command, and run --push.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/push"
	"github.com/spf13/cobra"
)

// pushFlags are those that push and run share.
type pushFlags struct {
	to      string
	every   time.Duration
	service string
	names   bool
	spool   sizeFlag
	quiet   bool
}

func newPush() *cobra.Command {
	f := pushFlags{every: 15 * time.Second, names: true, spool: sizeFlag{value: 64 << 20}}
	c := &cobra.Command{
		Use:   "push --to URL [flags] [PID|SESSION]",
		Short: "Send profiles of a running flight recorder to a receiver, every few seconds",
		Long: `push sends a profile of CPU time, blocked time, lock delay and allocations to a receiver, every few seconds, while a
"hbtrace run --keep" records: to an OpenTelemetry Collector (otlp://HOST:4317 over gRPC, otlp+http://HOST:4318) or to
Pyroscope (pyroscope://HOST:4040); otlps, otlp+https and pyroscope+https use TLS. OpenTelemetry receivers get metrics as well.

The variables OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _CLIENT_CERTIFICATE and
_CLIENT_KEY are used. What a receiver does not take is kept in a bounded directory and sent again.
It stops when the recording ends, on Ctrl-C, or when its standard input ends (--until-eof).`,
		Example: `  hbtrace run --push otlp://localhost:4317 ./server     # records and pushes
  hbtrace push --to pyroscope://localhost:4040 4711     # of a recorder that runs`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := c.Flags()
	flags.StringVar(&f.to, "to", "", "`URL` of the receiver")
	flags.DurationVar(&f.every, "every", f.every, "`time` between pushes")
	flags.StringVar(&f.service, "service", "", "service.name (default: OTEL_SERVICE_NAME, or the command)")
	flags.BoolVar(&f.names, "names", f.names, "look up names of functions; --names=false sends build ids and addresses")
	flags.Var(&f.spool, "spool", "most that is kept for a receiver that is away")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print errors only")
	eof := flags.Bool("until-eof", false, "stop when standard input ends")
	flags.Lookup("until-eof").Hidden = true
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if f.to == "" {
			return errors.New("push: name the receiver: hbtrace push --to otlp://HOST:4317")
		}
		if err := f.check(); err != nil {
			return err
		}
		s, err := findSession(strings.Join(args, ""), true)
		if err != nil {
			return err
		}
		ending := make(chan struct{})
		if *eof {
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it as well
				close(ending)
			}()
		}
		return f.push(cmd, s, ending)
	}
	return c
}

// check finds mistakes before anything is started.
func (f *pushFlags) check() error {
	if _, err := push.ParseTarget(f.to); err != nil {
		return err
	}
	if f.every < time.Second {
		return fmt.Errorf("push: every %s is too often: 1s or more", f.every)
	}
	return nil
}

// push runs until the session ends, ending is closed, or a signal comes.
func (f *pushFlags) push(cmd *cobra.Command, s flight.Session, ending <-chan struct{}) error {
	target, err := push.ParseTarget(f.to)
	if err != nil {
		return err
	}
	flight.LowerPriority()
	p, err := push.New(push.Options{
		Target: target, Session: s, Every: f.every, Service: f.service, NoNames: !f.names, Spool: int64(f.spool.value),
		Say: func(line string) { fmt.Fprintf(cmd.ErrOrStderr(), "hbtrace: %s\n", line) },
	})
	if err != nil {
		return err
	}
	defer p.Close()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = p.Run(ctx, ending)
	if n := p.Counts(); !f.quiet || n.Missed+n.Dropped+n.Reduced > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "hbtrace: pushed %d profiles to %s: %d events, %d missed; requests: %d sent, %d dropped; %d profiles without labels\n",
			n.Pushes, target.Host, n.Events, n.Missed, n.Sent, n.Dropped, n.Reduced)
	}
	return err
}

// pusher is a push process next to a recording.
type pusher struct {
	flags  *pushFlags
	stderr io.Writer
	cmd    *exec.Cmd
	stdin  io.WriteCloser
}

// begin starts it. A recording goes on without.
func (p *pusher) begin(session string) {
	exe, err := os.Executable()
	if err == nil {
		args := []string{
			"push", "--until-eof", "-q", "--to", p.flags.to, "--every", p.flags.every.String(), "--service", p.flags.service,
			session,
		}
		p.cmd = exec.CommandContext(context.Background(), exe, args...)
		p.cmd.Stderr = p.stderr
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is the program's and the recorder's
		if p.stdin, err = p.cmd.StdinPipe(); err == nil {
			err = p.cmd.Start()
		}
	}
	if err != nil {
		p.cmd = nil
		fmt.Fprintf(p.stderr, "hbtrace: push: %v\n", err)
	}
}

// end has it send the last profile, which takes at most some 20 seconds.
func (p *pusher) end() {
	if p.cmd == nil {
		return
	}
	p.stdin.Close()
	_ = p.cmd.Wait() // it says itself what went wrong
}
