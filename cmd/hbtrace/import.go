// The import command: recordings of what others have recorded.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/exectrace"
	"github.com/spf13/cobra"
)

func newImport() *cobra.Command {
	var out string
	var threshold time.Duration
	o := exectrace.Options{Version: version()}
	c := &cobra.Command{
		Use:   "import [flags] FILE",
		Short: "Make a recording of a Go execution trace",
		Long: `import reads a Go execution trace, as go test -trace, runtime/trace.Start, net/http/pprof and runtime/trace.FlightRecorder write it,
and makes a recording of it. Every goroutine is a thread: what it waited for, with its stack, and the goroutine that ended the
wait, with its stack. All reports, exports and views read the recording.

The trace has CPU samples only if a CPU profile was made at the same time. It has no addresses of locks and channels.`,
		Example: `  go test -trace trace.out . && hbtrace import trace.out
  hbtrace report --blocked trace.hbt`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			if !exectrace.Is(args[0]) {
				return fmt.Errorf("%s is no Go execution trace (it does not begin with \"go 1.\" and \"trace\")", args[0])
			}
			if out == "" {
				out = strings.TrimSuffix(args[0], filepath.Ext(args[0])) + suffixTrace
			}
			o.CallThreshold, o.LockThreshold = 100*time.Microsecond, 10*time.Microsecond
			if cmd.Flags().Changed("threshold") {
				o.CallThreshold, o.LockThreshold = threshold, threshold
			}
			o.Name = filepath.Base(args[0])
			stats, err := exectrace.Import(in, out, o)
			for _, n := range stats.Notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "hbtrace: %s\n", n)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote     %s\nnext      hbtrace report %s\n", out, shellWord(out))
			return nil
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "`file` to write (default: the trace's name with "+suffixTrace+")")
	c.Flags().DurationVar(&threshold, "threshold", 0, "waits and calls shorter than this are only counted (default 10us for locks, 100us for calls)")
	return c
}

// executionTraces are those files among a command's arguments, and the one of the usual name, that are Go execution traces written since
// then.
func executionTraces(command []string, since time.Time) (found []string) {
	for _, arg := range append([]string{"trace.out"}, command[1:]...) {
		_, value, _ := strings.Cut(arg, "=")
		for _, path := range []string{arg, value} {
			st, err := os.Stat(path)
			// The file system's clock may be behind by a tick.
			if err == nil && st.Mode().IsRegular() && !st.ModTime().Before(since.Add(-10*time.Millisecond)) && exectrace.Is(path) && !slices.Contains(found, path) {
				found = append(found, path)
			}
		}
	}
	return found
}
