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
		Short: "Tables of what was recorded",
		Long: `report writes the summary of a recording, or one table of it. FILE is ` + defaultFile + ` unless it is named.
Write --json for all of it in a form for programs. --diff A B shows what got slower, and what faster, from A to B.`,
		Args: cobra.MaximumNArgs(2),
	}
	var names []string
	for _, v := range report.Views {
		chosen[v] = c.Flags().Bool(string(v), false, viewHelp[v])
		names = append(names, string(v))
	}
	diff := c.Flags().Bool("diff", false, "what differs between two recordings, by function")
	c.MarkFlagsMutuallyExclusive(append(names, "diff")...)
	c.Flags().BoolVar(&o.JSON, "json", false, "write JSON, with nothing left out")
	c.Flags().IntVarP(&o.Top, "top", "n", 0, "rows of a table")
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
	report.ViewSummary: "the most important of everything (default)",
	report.ViewCPU:     "functions by CPU time",
	report.ViewBlocked: "stacks by time blocked",
	report.ViewLocks:   "who waited for whom",
	report.ViewAlloc:   "stacks by memory allocated",
	report.ViewThreads: "threads and what is known of their time",
	report.ViewStorage: "what the recording is made of",

	report.ViewSelfCheck: "what was recorded in the process against what the kernel saw",
}

func fileArgument(args []string) string {
	if len(args) == 0 {
		return defaultFile
	}
	return args[0]
}
