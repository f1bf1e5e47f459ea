// Command hbtrace records where the threads of a program spend their time, running and blocked, and who let
// them go on. This package is flags and wiring; the work is done by the packages that it calls.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/flight"
	"github.com/hbtrace/hbtrace/sampler"
	"github.com/hbtrace/hbtrace/trigger"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ownFailure is the exit status of everything that goes wrong in hbtrace itself, so that it is not mistaken for
// the program's own status. env and timeout use the same number; a program that is not found is 125 too.
const ownFailure = 125

// status carries only an exit code: there is no message.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func main() {
	// the collector starts this same binary as its sampler, whose clock must not wait for flags to be parsed
	if len(os.Args) > 1 && os.Args[1] == sampler.Command {
		os.Exit(sampler.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == flight.Command {
		os.Exit(flight.Main())
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(joinUnwind(root, args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var s status
	switch {
	case err == nil:
		return 0
	case errors.As(err, &s):
		return int(s)
	}
	complain(stderr, err)
	return ownFailure
}

// complain writes an error as one line, whatever it holds.
func complain(w io.Writer, err error) {
	var marked interface{ Caret() string } // of a mistake inside a line that was given
	defer func() {
		if errors.As(err, &marked) && marked.Caret() != "" {
			fmt.Fprintln(w, marked.Caret())
		}
	}()
	fmt.Fprintf(w, "hbtrace: %s\n", strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// plainly is a flag's error without the words of the libraries that parsed it.
func plainly(err error) string {
	var number *strconv.NumError
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return err.Error()
	}
	why := value.Unwrap().Error()
	if errors.As(err, &number) {
		why = "it is not a whole number"
		if errors.Is(number, strconv.ErrRange) {
			why = "it is too large"
		}
	}
	name := "--" + value.GetFlag().Name
	if short := value.GetFlag().Shorthand; short != "" {
		name = "-" + short + ", " + name
	}
	return fmt.Sprintf("%s %s: %s", name, value.GetValue(), why)
}

// groups are the headings under which help lists commands, in this order.
var groups = []struct{ id, title, commands string }{
	{"record", "Record:", "run attach detach preload doctor"},
	{"read", "Read a recording:", "report view export import sql symbolize"},
	{"live", "While a program is recorded:", "top ps dump recover push"},
	{other, "Other:", ""},
}

const other = "other" // the group of commands that are in no other

func group(root *cobra.Command) {
	root.SetHelpCommandGroupID(other)
	root.SetCompletionCommandGroupID(other)
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(strings.Fields(g.commands), c.Name()) || g.id == other && c.GroupID == "" {
				c.GroupID = g.id
			}
		}
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "hbtrace",
		Short: "Where every thread's time went, running or blocked, and who let it go on",
		Long: `hbtrace records unmodified Linux programs, without privileges: what their threads ran, what they waited for
and for how long, who held the lock and who released it, and what they allocated.

  hbtrace run ./app args…      records, and writes hbtrace.hbt, hbtrace.pb.gz and hbtrace.perfetto-trace
  hbtrace attach PID           records a running process
  hbtrace report               prints the summary of hbtrace.hbt; --locks, --cpu, --blocked, --alloc print more
  hbtrace view                 opens hbtrace.hbt in a browser`,
		Version:       version(),
		SilenceErrors: true, // printed once, by execute
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("hbtrace {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if mistake := (*trigger.Error)(nil); errors.As(err, &mistake) {
			return mistake // it says where
		}
		return fmt.Errorf("%s: see %s --help", plainly(err), cmd.CommandPath())
	})
	root.AddCommand(
		newRun(),
		newAttach(),
		newDetach(),
		newPreload(),
		newReport(),
		newExport(),
		newView(),
		newTop(),
		newSQL(),
		newDump(),
		newPs(),
		newRecover(), newSymbolize(), newImport(),
		newPush(),
		newDoctor(),
		newVersion(),
		newMan(),
	)
	group(root)
	flagError := root.FlagErrorFunc()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misspelt(cmd, flagError(cmd, err)) })
	addPID(root, root)
	for _, c := range root.Commands() {
		if c.Name() == "run" {
			addPID(root, c)
		}
	}
	return root
}
