// The version command.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/hbtrace/hbtrace/symbols"
	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of hbtrace and of its agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return writeVersion(cmd.OutOrStdout())
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "hbtrace %s\n%s %s/%s\nagent %s\n",
				version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, agentIdentity())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON: versions of hbtrace, of Go and of the agent")
	return c
}

// writeVersion is the version for programs: what must match between a binary, its recordings and a bug report.
func writeVersion(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
		Agent   string `json:"agent"`
	}{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, agentIdentity()})
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
