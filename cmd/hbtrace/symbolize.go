// The symbolize command: names for a recording that has none.

package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/tracefile/naming"
	"github.com/spf13/cobra"
)

func newSymbolize() *cobra.Command {
	var debug []string
	c := &cobra.Command{
		Use:   "symbolize [flags] FILE…",
		Short: "Add the names of functions to recordings made with --symbolize later",
		Long: `symbolize looks up the functions at a recording's addresses, and stores their names in the recording. It can run on
another machine than the one that recorded: it finds the programs by path and build id, debug files in /usr/lib/debug, and both
at the servers that DEBUGINFOD_URLS names.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			stop := make(chan struct{})
			var once sync.Once
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
			defer signal.Stop(caught)
			go func() {
				<-caught
				once.Do(func() { close(stop) })
			}()
			for _, path := range args {
				notes, err := naming.File(path, symbols.Options{Stop: stop, Cache: symbols.CacheDir(), DebugDirs: debug})
				if err != nil {
					return err
				}
				for _, n := range notes {
					fmt.Fprintf(cmd.ErrOrStderr(), "hbtrace: %s\n", n)
				}
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&debug, "debug-dir", nil, "`directory` of separate debug files; may be repeated (default /usr/lib/debug)")
	return c
}
