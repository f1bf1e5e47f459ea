// The export command.

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/chrome"
	"github.com/hbtrace/hbtrace/visualize/firefox"
	"github.com/hbtrace/hbtrace/visualize/folded"
	"github.com/hbtrace/hbtrace/visualize/otlp"
	"github.com/hbtrace/hbtrace/visualize/page"
	"github.com/hbtrace/hbtrace/visualize/perfetto"
	"github.com/hbtrace/hbtrace/visualize/picture"
	"github.com/hbtrace/hbtrace/visualize/pprof"
	"github.com/hbtrace/hbtrace/visualize/speedscope"
	"github.com/hbtrace/hbtrace/visualize/tables"
	"github.com/spf13/cobra"
)

// exportFormat is one thing that a recording can be written as.
type exportFormat struct {
	flag  string
	help  string
	write func(w io.Writer, src trace.Source, o exportOptions) error
	merge func(w io.Writer, srcs []trace.Source, o exportOptions) error    // nil: of one recording only
	diff  func(w io.Writer, base, src trace.Source, o exportOptions) error // nil: does not compare
	into  func(dir string, src trace.Source) error                         // instead of write: files in a directory, of any number of recordings
}

type exportOptions struct {
	value    string // what folded stacks and the flame graph add up
	noSource bool   // a page without source lines
}

var exportFormats = []exportFormat{
	{flag: "pprof", help: "a profile for go tool pprof", write: func(w io.Writer, src trace.Source, _ exportOptions) error {
		return pprof.Write(w, src, pprof.Options{})
	}, merge: func(w io.Writer, srcs []trace.Source, _ exportOptions) error {
		return pprof.WriteMerged(w, srcs, pprof.Options{})
	}, diff: func(w io.Writer, base, src trace.Source, _ exportOptions) error {
		return pprof.WriteDiff(w, base, src, pprof.Options{})
	}},
	{flag: "perfetto", help: "a timeline for ui.perfetto.dev", write: func(w io.Writer, src trace.Source, _ exportOptions) error {
		return perfetto.Write(w, src, perfetto.Options{})
	}},
	{flag: "folded", help: "folded stacks, one a line, for flame graph tools", write: func(w io.Writer, src trace.Source, o exportOptions) error {
		return folded.Write(w, src, folded.Options{Value: o.value})
	}, merge: func(w io.Writer, srcs []trace.Source, o exportOptions) error {
		return folded.WriteMerged(w, srcs, folded.Options{Value: o.value})
	}, diff: func(w io.Writer, base, src trace.Source, o exportOptions) error {
		return folded.WriteDiff(w, base, src, folded.Options{Value: o.value})
	}},
	{flag: "speedscope", help: "flame graphs for speedscope.app", write: func(w io.Writer, src trace.Source, _ exportOptions) error {
		return speedscope.Write(w, src)
	}},
	{flag: "firefox", help: "a profile for profiler.firefox.com", write: func(w io.Writer, src trace.Source, _ exportOptions) error {
		return firefox.Write(w, src)
	}},
	{flag: "chrome", help: "a timeline as a Chrome trace, for tools that read nothing better", write: func(w io.Writer, src trace.Source, _ exportOptions) error {
		return chrome.Write(w, src)
	}},
	{flag: "otlp", help: "OpenTelemetry profiles (ProfilesData, protobuf)", write: func(w io.Writer, src trace.Source, _ exportOptions) error {
		return otlp.Write(w, src)
	}},
	{flag: "html", help: "self-contained HTML report, in one file", write: func(w io.Writer, src trace.Source, o exportOptions) error {
		return page.Export(w, src, page.Options{NoSource: o.noSource})
	}},
	{flag: "timeline-svg", help: "a picture of the threads over time", write: func(w io.Writer, src trace.Source, _ exportOptions) error {
		return picture.Timeline(w, src, picture.Options{})
	}},
	{flag: "flame-svg", help: "a flame graph", write: func(w io.Writer, src trace.Source, o exportOptions) error {
		return picture.Flame(w, src, picture.FlameOptions{Value: o.value})
	}, diff: func(w io.Writer, base, src trace.Source, o exportOptions) error {
		return picture.FlameDiff(w, base, src, picture.FlameOptions{Value: o.value})
	}},
	{flag: "parquet", help: "Parquet tables for SQL engines and data frames, in a directory that may hold many recordings", into: tables.Write},
}

// target is where a format is written; kind stands in the help for its value.
type target struct {
	path *string
	kind string
}

func (t *target) String() string {
	if t.path == nil {
		return ""
	}
	return *t.path
}
func (t *target) Set(s string) error { *t.path = s; return nil }
func (t *target) Type() string       { return t.kind }

func newExport() *cobra.Command {
	var o exportOptions
	targets := make([]string, len(exportFormats))
	c := &cobra.Command{
		Use:   "export [flags] [FILE…]",
		Short: "Convert a recording to other formats",
		Long: `export writes a recording in one or several other formats; - is standard output. A file is replaced when the
new one is complete, and left as it was if that fails. FILE is ` + defaultFile + ` unless it is named.

--html includes the source lines around the lines that cost most, where the source files are on this machine.
--no-source leaves them out.

--parquet writes DIR/TABLE/RECORDING.parquet for each recording: a query over DIR/TABLE/*.parquet reads all of them
(docs/reference/tables.md). hbtrace sql runs such a query.

--pprof and --folded add up several recordings. --diff compares two: --pprof writes a profile with negative values, as
go tool pprof -diff_base does; --folded writes two numbers on each line; --flame-svg paints red what grew and blue what
shrank. hbtrace report --diff prints the comparison as tables.`,
		Args: cobra.ArbitraryArgs,
	}
	var names []string
	for i, f := range exportFormats {
		kind := "FILE"
		if f.into != nil {
			kind = "DIR"
		}
		c.Flags().Var(&target{&targets[i], kind}, f.flag, f.help)
		names = append(names, "--"+f.flag)
	}
	c.Flags().StringVar(&o.value, "value", "", "value to plot in --folded and --flame-svg (default cpu, where it was recorded): "+values)
	c.Flags().BoolVar(&o.noSource, "no-source", false, "leave source lines out of --html")
	diff := c.Flags().Bool("diff", false, "compare two recordings: write what the second has more than the first")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = []string{fileArgument(args)}
		}
		if *diff && len(args) != 2 {
			return errors.New("export --diff: name two recordings, the one before and the one after: hbtrace export --diff A B --pprof out")
		}
		seen := map[string]string{}
		var asked []int
		for i, f := range exportFormats {
			if !cmd.Flags().Changed(f.flag) {
				continue
			}
			asked = append(asked, i)
			if *diff && f.diff == nil {
				return fmt.Errorf("export: --%s shows one recording: --pprof, --folded and --flame-svg compare two", f.flag)
			}
			if !*diff && len(args) > 1 && f.merge == nil {
				return fmt.Errorf("export: --%s shows one recording: --pprof and --folded add several up", f.flag)
			}
			for _, path := range args {
				if err := checkTarget(path, f.flag, targets[i], seen); err != nil {
					return err
				}
			}
			key := realPath(targets[i])
			if targets[i] == "-" {
				key = "-"
			}
			seen[key] = f.flag
		}
		if len(asked) == 0 {
			return fmt.Errorf("export: name a format and a file: one or more of %s", strings.Join(names, ", "))
		}
		return withRecordings(args, func(srcs []trace.Source) error {
			progress := newProgress(cmd.ErrOrStderr(), false)
			defer progress.clear()
			var failed error
			for _, i := range asked {
				f := &exportFormats[i]
				progress.stage("writing %s", targets[i])
				for _, src := range srcs {
					if r, ok := src.(*recording); ok {
						r.shows(progress, "writing "+targets[i])
					}
				}
				if f.into != nil {
					for _, src := range srcs {
						failed = errors.Join(failed, f.into(targets[i], src))
					}
					continue
				}
				failed = errors.Join(failed, writeFile(targets[i], cmd.OutOrStdout(), func(w io.Writer) error {
					switch {
					case *diff:
						return f.diff(w, srcs[0], srcs[1], o)
					case len(srcs) > 1:
						return f.merge(w, srcs, o)
					}
					return f.write(w, srcs[0], o)
				}))
			}
			return failed
		})
	}
	return c
}

// checkTarget refuses what would destroy the recording or mix two exports. seen is by absolute path.
func checkTarget(recording, flag, target string, seen map[string]string) error {
	if target == "-" && flag == "parquet" {
		return errors.New("export: --parquet writes several files: name a directory")
	}
	if target == "" {
		return fmt.Errorf("export: --%s needs a file name, or - for standard output", flag)
	}
	key := target
	if target != "-" {
		key = realPath(target)
		if key == realPath(recording) {
			return fmt.Errorf("export: --%s %s is the recording itself: choose another name", flag, target)
		}
	}
	if other := seen[key]; other != "" {
		return fmt.Errorf("export: --%s and --%s both write to %s: give each its own", other, flag, target)
	}
	return nil
}

func realPath(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		p = real
	}
	if abs, err := filepath.Abs(p); err == nil {
		return abs
	}
	return p
}
