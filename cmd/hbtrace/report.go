// The report command.

package main

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/report"
	"github.com/spf13/cobra"
)

// defaultFile is what run writes when nothing else is said.
const defaultFile = defaultPrefix + suffixTrace

func newReport() *cobra.Command {
	var o report.Options
	chosen := map[report.View]*bool{}
	c := &cobra.Command{
		Use:   "report [flags] [FILE]",
		Short: "Print tables of a recording",
		Long: `report prints the summary of a recording, or one table of it. FILE is ` + defaultFile + ` unless it is named.

The summary begins with what threads waited for: the waiting function, the lock, who held it, and what the holder did
meanwhile. Then come CPU time by function, blocked time by call, and allocations. Its last line is the command that
shows more of what was found. A line under a row begins with ◂: whom the row above waited for.

--json prints everything as JSON (docs/reference.md). --diff A B prints what got slower, and what faster, from A to B.`,
		Example: `  hbtrace report                        # summary of hbtrace.hbt
  hbtrace report --locks app.hbt        # who waited for which lock, who held it
  hbtrace report --cpu --sort cum       # functions with what they called
  hbtrace report --tree --value blocked # call tree of blocked time
  hbtrace report --diff old.hbt new.hbt # what got slower`,
		Args: cobra.MaximumNArgs(2),
	}
	var names []string
	for _, v := range report.Views {
		chosen[v] = c.Flags().Bool(string(v), false, viewHelp[v])
		names = append(names, string(v))
	}
	diff := c.Flags().Bool("diff", false, "compare two recordings, by function")
	c.MarkFlagsMutuallyExclusive(append(names, "diff")...)
	c.Flags().BoolVar(&o.JSON, "json", false, "print JSON, complete")
	c.Flags().IntVarP(&o.Top, "top", "n", 0, "rows of a table (default 20)")
	c.Flags().Var((*sortFlag)(&o.Sort), "sort", "--cpu: order by self time, or by cum: self time and what the function called")
	c.Flags().BoolVar(&o.Stacks, "stacks", false, "print a whole stack below each row")
	c.Flags().StringVar(&o.Value, "value", "", "--tree: value to add up (default cpu): "+values)
	c.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "print all statistics of the recording")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		out := cmd.OutOrStdout()
		terminal, columns := terminalOf(out)
		o.Width, o.Color = columns, coloured(terminal)
		switch {
		case *diff && len(args) != 2:
			return errors.New("report --diff: name two recordings, the one before and the one after")
		case *diff:
			return withRecordings(args, func(srcs []trace.Source) error {
				line := newProgress(cmd.ErrOrStderr(), false)
				for i, src := range srcs {
					if r, ok := src.(*recording); ok {
						r.shows(line, "reading "+filepath.Base(args[i]))
					}
				}
				defer line.late(showAfter, "comparing %s with %s", filepath.Base(args[1]), filepath.Base(args[0]))()
				return buffered(line.before(out), func(w io.Writer) error { return report.Diff(w, srcs[0], srcs[1], o) })
			})
		case len(args) > 1:
			return errors.New("report: name one recording: two are compared by --diff")
		}
		path := fileArgument(args)
		src, err := openRecording(path)
		if err != nil {
			return err
		}
		o.Recording = shellWord(path)
		line := newProgress(cmd.ErrOrStderr(), false)
		src.shows(line, "reading "+filepath.Base(path))
		defer line.late(showAfter, "making tables of %s", filepath.Base(path))()
		view := report.ViewSummary
		for v, on := range chosen {
			if *on {
				view = v
			}
		}
		err = buffered(line.before(out), func(w io.Writer) error { return report.Write(w, src, view, o) })
		return errors.Join(err, src.done())
	}
	return c
}

var viewHelp = map[report.View]string{
	report.ViewSummary: "heaviest waits and their causes, CPU time, blocked time, allocations (default)",
	report.ViewCPU:     "functions by CPU time",
	report.ViewBlocked: "functions by blocked time, and what the waits led to",
	report.ViewLocks:   "locks, their waiters, who held and released them, and where",
	report.ViewAlloc:   "functions by memory allocated",
	report.ViewThreads: "threads: CPU time, blocked time, how much of each thread's time is known",
	report.ViewTree:    "call tree: callers above callees, with their share",
	report.ViewStorage: "size and content of the recording",

	report.ViewSelfCheck: "what was recorded in the process compared with the kernel's own account (needs run --kernel on)",
}

func fileArgument(args []string) string {
	if len(args) == 0 {
		return defaultFile
	}
	return args[0]
}
