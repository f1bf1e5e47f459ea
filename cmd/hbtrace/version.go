// The version command.

package main

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "The version of hbtrace and of the agent inside it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "hbtrace %s\n%s %s/%s\nagent %s\n",
				version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, agentIdentity())
			return err
		},
	}
}

// version is the module's version for binaries of `go install`, otherwise the commit that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	setting := map[string]string{}
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		if c := setting["vcs.revision"]; len(c) >= 12 {
			v += " " + c[:12]
			if setting["vcs.modified"] == "true" {
				v += " with changes"
			}
		}
	}
	return v
}

// agentIdentity tells which agent is inside: by its content, and by its build id, as debuggers show it.
func agentIdentity() string {
	object, err := agent.Object()
	if err != nil {
		return "none: " + err.Error()
	}
	id, err := symbols.BuildID(bytes.NewReader(object))
	if err != nil {
		return agent.Hash()
	}
	return agent.Hash() + ", build id " + id
}
