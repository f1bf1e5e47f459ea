// The commands of the flight recorder: dump, ps and recover.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/collector"
	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trigger"
	"github.com/hbtrace/hbtrace/visualize/report"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// dumpFlags are the flags of dump and recover.
type dumpFlags struct {
	output    string
	symbolize string
	quiet     bool
}

func (f *dumpFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "`file` to write (default: the session's name and the time"+suffixTrace+")")
	flags.StringVar(&f.symbolize, "symbolize", "now", "look up the names of functions now, or later by hbtrace symbolize")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print errors only")
}

func newDump() *cobra.Command {
	var f dumpFlags
	c := &cobra.Command{
		Use:   "dump [flags] PID|SESSION",
		Short: "Write what a flight recorder holds to a file",
		Long: `dump writes the events that a running "hbtrace run --keep" holds to an ordinary recording, which report, export and
view read. The recorder and the program go on.

Name the session (hbtrace ps lists them), the recorder's process, or the recorded program's. With one session, the
name may be left out.`,
		Example: `  hbtrace dump
  hbtrace dump 4711 -o slow.hbt
  hbtrace report slow.hbt`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := findSession(strings.Join(args, ""), true)
			if err != nil {
				return err
			}
			return f.dump(cmd, s)
		},
	}
	f.add(c)
	return c
}

func newRecover() *cobra.Command {
	var f dumpFlags
	var discard bool
	c := &cobra.Command{
		Use:   "recover [flags] SESSION",
		Short: "Write what a flight recorder held when it was killed",
		Long: `recover writes the events that a killed "hbtrace run --keep" left behind to an ordinary recording, and removes the
session. hbtrace ps lists such sessions as killed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := findSession(strings.Join(args, ""), false)
			if err != nil {
				return err
			}
			if discard {
				return flight.Remove(s.Dir)
			}
			if err := f.write(cmd, s, trace.Dump{Why: trace.DumpedRecovered}); err != nil {
				return err
			}
			return flight.Remove(s.Dir)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&discard, "discard", false, "remove the session and write nothing")
	return c
}

// findSession is the session of which: its name, its recorder's pid or its program's; "" means the only one there is.
func findSession(which string, alive bool) (flight.Session, error) {
	all, err := flight.Sessions()
	if err != nil {
		return flight.Session{}, err
	}
	pid, _ := strconv.Atoi(which)
	var fit []flight.Session
	var names []string
	for _, s := range all {
		if s.Alive != alive && s.Name != which {
			continue
		}
		names = append(names, s.Name)
		if which == "" || s.Name == which || pid > 0 && (s.Recorder == pid || s.Program == pid) {
			fit = append(fit, s)
		}
	}
	state, start := "recording", "start one: hbtrace run --keep 60s ./app"
	if !alive {
		state, start = "killed", "hbtrace ps lists sessions"
	}
	switch {
	case len(fit) == 1 && fit[0].Alive != alive && alive:
		return fit[0], fmt.Errorf("the recorder of session %s was killed: hbtrace recover %s", fit[0].Name, fit[0].Name)
	case len(fit) == 1 && fit[0].Alive != alive:
		return fit[0], fmt.Errorf("session %s is being recorded: hbtrace dump %s", fit[0].Name, fit[0].Name)
	case len(fit) == 1:
		return fit[0], nil
	case len(names) == 0:
		return flight.Session{}, fmt.Errorf("no session is %s: %s", state, start)
	case len(fit) == 0:
		return flight.Session{}, fmt.Errorf("%s is no session that is %s: name one: %s", which, state, strings.Join(names, ", "))
	}
	return flight.Session{}, fmt.Errorf("several sessions are %s: name one: %s", state, strings.Join(names, ", "))
}

// dump has the recorder write down its state, and then reads its files.
func (f *dumpFlags) dump(cmd *cobra.Command, s flight.Session) error {
	client, err := flight.Connect(s)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Ask(flight.Request{Op: flight.OpDump}); err != nil {
		return err
	}
	return f.write(cmd, s, trace.Dump{Why: trace.DumpedAsked})
}

// write makes the recording of what the session's files hold.
func (f *dumpFlags) write(cmd *cobra.Command, s flight.Session, why trace.Dump) error {
	if f.symbolize != "now" && f.symbolize != "later" {
		return fmt.Errorf("--symbolize %s: use now or later", f.symbolize)
	}
	stop := make(chan struct{})
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(caught)
	go func() {
		if _, ok := <-caught; ok {
			close(stop)
		}
	}()
	path := f.output
	if path == "" {
		path = fmt.Sprintf("%s-%s%s", s.Name, time.Now().Format("20060102-150405"), suffixTrace)
	}
	flight.LowerPriority()
	c, err := flight.Read(s.Dir)
	if err != nil {
		return err
	}
	d, err := c.Dump(path, flight.Options{Why: why, NoNames: f.symbolize == "later", Stop: stop})
	if err != nil {
		return err
	}
	if f.quiet {
		return nil
	}
	return summarize(cmd.ErrOrStderr(), path, d)
}

// summarize prints what a dump holds.
func summarize(w io.Writer, path string, d *flight.Dumped) error {
	src, err := openRecording(path)
	if err != nil {
		return err
	}
	defer src.done()
	if d.Events == 0 {
		fmt.Fprintf(w, "hbtrace: %s: no event was recorded yet\n", path)
		return nil
	}
	facts, err := report.Collect(src, true)
	if err != nil {
		return err
	}
	isTerminal, columns := terminalOf(w)
	var text bytes.Buffer
	err = facts.Write(&text, report.ViewSummary, report.Options{
		Width: columns, Color: coloured(isTerminal), Files: []string{path}, Recording: shellWord(path),
	})
	_, _ = w.Write(text.Bytes())
	return err
}

func newPs() *cobra.Command {
	return &cobra.Command{
		Use:   "ps",
		Short: "List flight recorders: those that run, and those that were killed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := flight.Sessions()
			if err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "hbtrace: no flight recorder runs: start one with hbtrace run --keep 60s ./app")
				return nil
			}
			return listSessions(cmd.OutOrStdout(), all)
		},
	}
}

// listSessions prints a table of sessions.
func listSessions(w io.Writer, all []flight.Session) error {
	rows := [][]string{{"SESSION", "PROGRAM", "KEEP", "HOLDS", "EVENTS/S", "CPU", "TRIGGERS", "DUMPS", "COMMAND"}}
	for _, s := range all {
		row := []string{s.Name, "-", s.Keep, "killed", "-", "-", "-", "-", strings.Join(s.Command, " ")}
		if s.Program != 0 {
			row[1] = strconv.Itoa(s.Program)
		}
		if s.Alive {
			st, err := askStatus(s)
			if err != nil {
				row[3] = "?"
			} else {
				row[3] = fmt.Sprintf("%s, %s", seconds(time.Duration(st.Held.End-st.Held.Begin)), megabytes(uint64(st.Held.Used)))
				row[4] = fmt.Sprintf("%.0f", st.EventsPerSecond)
				row[5] = fmt.Sprintf("%.1f %%", 100*st.Overhead)
				row[6] = strconv.Itoa(len(st.Triggers))
				row[7] = strconv.Itoa(len(st.Dumps))
			}
		}
		rows = append(rows, row)
	}
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		for i, cell := range r {
			if i == len(r)-1 {
				b.WriteString(cell + "\n")
			} else {
				fmt.Fprintf(&b, "%-*s  ", width[i], cell)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func askStatus(s flight.Session) (*flight.Status, error) {
	c, err := flight.Connect(s)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Ask(flight.Request{Op: flight.OpStatus})
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// keepFlag takes the bounds of a flight recorder's window.
type keepFlag struct{ value flight.Keep }

func (k *keepFlag) Type() string   { return "window" }
func (k *keepFlag) String() string { return k.value.String() }

func (k *keepFlag) Set(s string) (err error) {
	k.value, err = flight.ParseKeep(s)
	return err
}

// onFlag takes triggers, one at a time.
type onFlag struct{ list []*trigger.Trigger }

func (o *onFlag) Type() string { return "trigger" }

func (o *onFlag) String() string { return trigger.Join(o.list) }

func (o *onFlag) Set(s string) error {
	t, err := trigger.Parse(s)
	if err == nil {
		o.list = append(o.list, t)
	}
	return err
}

// keepFlags are run's flags of the flight recorder.
type keepFlags struct {
	keep  keepFlag
	on    onFlag
	after durationFlag
	dumps int
	bytes sizeFlag
	names string
}

func (k *keepFlags) add(flags *pflag.FlagSet) {
	k.bytes = sizeFlag{value: 1 << 30, needsUnit: true}
	flags.Var(&k.keep, "keep", "flight recorder: write nothing, keep the newest events in memory, bounded by time, size or both (60s, 64M, 60s,64M)")
	flags.Var(&k.on, "on", "with --keep: make a dump when this holds, as well as on a crash: "+strings.Join(trigger.Presets(), ", ")+
		", or an expression such as 'lock > 50ms'; may be repeated")
	flags.Var(&k.after, "after", "with --on: record for this long after what a trigger reports (default 1s)")
	flags.IntVar(&k.dumps, "dumps", 20, "with --on: keep this many dumps at most")
	flags.Var(&k.bytes, "dumps-size", "with --on: keep dumps of this size at most, together")
	flags.StringVar(&k.names, "symbolize", "now", "with --on: look up names of functions for a dump now, or later by hbtrace symbolize")
}

// options checks the flags and turns them into the collector's terms.
func (k *keepFlags) options(o *collector.Options, given func(string) bool) error {
	if o.Keep == (flight.Keep{}) {
		for _, name := range []string{"on", "after", "dumps", "dumps-size", "symbolize"} {
			if given(name) {
				return fmt.Errorf("--%s is for a flight recorder: add --keep 60s", name)
			}
		}
		return nil
	}
	crash, err := trigger.Parse("crash")
	if err != nil {
		return err
	}
	if k.dumps < 1 {
		return errors.New("--dumps: use 1 or more")
	}
	if k.names != "now" && k.names != "later" {
		return fmt.Errorf("--symbolize %s: use now or later", k.names)
	}
	o.Dumps = collector.Dumps{
		On: append(slices.Clone(k.on.list), crash), After: k.after.value, Most: k.dumps, Bytes: int64(k.bytes.value), NoNames: k.names == "later",
	}
	if k.after.given && k.after.value == 0 {
		o.Dumps.After = -1
	}
	return nil
}

// heldLine says what a window held when the recording ended.
func heldLine(h flight.Held, keep flight.Keep) string {
	if h.Events == 0 {
		return "the window held no event"
	}
	text := fmt.Sprintf("the window held the last %s: %d events, %s of %s", seconds(time.Duration(h.End-h.Begin)), h.Events,
		megabytes(uint64(h.Used)), megabytes(uint64(h.Bytes)))
	switch h.Bound {
	case "time":
		text += fmt.Sprintf("; the bound that was met is %s", keep.Time)
	case "size":
		text += fmt.Sprintf("; the bound that was met is %s", flight.SizeString(keep.Size()))
	}
	return text + fmt.Sprintf("; dictionary %s", megabytes(uint64(h.Dict)))
}
