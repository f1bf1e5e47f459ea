// The export command.

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/folded"
	"github.com/hbtrace/hbtrace/visualize/page"
	"github.com/hbtrace/hbtrace/visualize/perfetto"
	"github.com/hbtrace/hbtrace/visualize/picture"
	"github.com/hbtrace/hbtrace/visualize/pprof"
	"github.com/spf13/cobra"
)

// exportFormat is one thing that a recording can be written as.
type exportFormat struct {
	flag  string
	help  string
	write func(w io.Writer, src trace.Source, o exportOptions) error
}

type exportOptions struct {
	value string // what weighs in folded stacks and the flame graph
}

var exportFormats = []exportFormat{
	{"pprof", "a profile for go tool pprof", func(w io.Writer, src trace.Source, _ exportOptions) error {
		return pprof.Write(w, src, pprof.Options{})
	}},
	{"perfetto", "a timeline for ui.perfetto.dev", func(w io.Writer, src trace.Source, _ exportOptions) error {
		return perfetto.Write(w, src, perfetto.Options{})
	}},
	{"folded", "folded stacks, one a line, for flame graph tools", func(w io.Writer, src trace.Source, o exportOptions) error {
		return folded.Write(w, src, folded.Options{Value: o.value})
	}},
	{"html", "a page to look at it with, in one file that can be sent", func(w io.Writer, src trace.Source, _ exportOptions) error {
		return page.Export(w, src)
	}},
	{"timeline-svg", "a picture of the threads over time", func(w io.Writer, src trace.Source, _ exportOptions) error {
		return picture.Timeline(w, src, picture.Options{})
	}},
	{"flame-svg", "a flame graph", func(w io.Writer, src trace.Source, o exportOptions) error {
		return picture.Flame(w, src, picture.FlameOptions{Value: o.value})
	}},
}

func newExport() *cobra.Command {
	var o exportOptions
	targets := make([]string, len(exportFormats))
	c := &cobra.Command{
		Use:   "export [flags] [FILE]",
		Short: "A recording in other formats",
		Long: `export writes a recording in one or several other formats; - is standard output. A file is replaced when the
new one is complete, and left as it was if that fails. FILE is ` + defaultFile + ` unless it is named.`,
		Args: cobra.MaximumNArgs(1),
	}
	var names []string
	for i, f := range exportFormats {
		c.Flags().StringVar(&targets[i], f.flag, "", f.help+" (`file`)")
		names = append(names, "--"+f.flag)
	}
	c.Flags().StringVar(&o.value, "value", "", "what weighs in --folded and --flame-svg (default cpu, where it was recorded): cpu, wall, blocked, delay, contentions, alloc_space, alloc_objects, inuse_space, inuse_objects")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path := fileArgument(args)
		asked := 0
		seen := map[string]string{}
		for i, f := range exportFormats {
			if !cmd.Flags().Changed(f.flag) {
				continue
			}
			asked++
			if err := checkTarget(path, f.flag, targets[i], seen); err != nil {
				return err
			}
		}
		if asked == 0 {
			return fmt.Errorf("export: name a format and a file: one or more of %s", strings.Join(names, ", "))
		}
		src, err := openRecording(path)
		if err != nil {
			return err
		}
		progress := newProgress(cmd.ErrOrStderr(), false)
		var failed error
		for i, f := range exportFormats {
			if !cmd.Flags().Changed(f.flag) {
				continue
			}
			progress.stage("writing %s", targets[i])
			err := writeFile(targets[i], cmd.OutOrStdout(), func(w io.Writer) error { return f.write(w, src, o) })
			failed = errors.Join(failed, err)
		}
		progress.clear()
		return errors.Join(failed, src.done())
	}
	return c
}

// checkTarget refuses what would destroy the recording or mix two exports. seen is by absolute path.
func checkTarget(recording, flag, target string, seen map[string]string) error {
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
	seen[key] = flag
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
