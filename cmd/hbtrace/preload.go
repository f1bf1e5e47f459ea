// The preload command: the dormant agent, and how programs are started with it.

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/spf13/cobra"
)

func newPreload() *cobra.Command {
	var to string
	var path bool
	c := &cobra.Command{
		Use:   "preload",
		Short: "Say how to start programs so that attach stops no thread (dormant agent)",
		Long: `preload prints the path of the dormant agent, and the lines by which systemd, Docker and Kubernetes start programs with it.

The dormant agent wraps no function and does nothing until hbtrace attach comes. Attach then stops no thread and calls no ptrace: the
next call of the program does what is needed. The user of attach must still be allowed to trace the process; HBTRACE_TRACER=any in the
program's environment allows that to other processes of the same user where kernel.yama.ptrace_scope is 1.`,
		Example: `  LD_PRELOAD=$(hbtrace preload --path) ./server
  hbtrace preload --to /opt/hbtrace/dormant.so`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := dormantFile(to)
			if err != nil {
				return err
			}
			if path {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
				return err
			}
			return printPreload(cmd.OutOrStdout(), file)
		},
	}
	c.Flags().StringVar(&to, "to", "", "copy the dormant agent to this `file`, for an image or a volume")
	c.Flags().BoolVar(&path, "path", false, "print the path alone")
	return c
}

// dormantFile puts the dormant agent where programs can load it.
func dormantFile(to string) (string, error) {
	object, err := agent.Dormant()
	if err != nil {
		return "", err
	}
	if to == "" {
		preload, err := agent.Deliver()
		if err != nil {
			return "", err
		}
		return filepath.Join(filepath.Dir(preload), agent.DormantName), nil
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	if fi, err := os.Stat(to); err == nil && fi.IsDir() {
		to = filepath.Join(to, agent.DormantName)
	}
	// Never written in place: running programs may have mapped what is there.
	tmp, err := os.CreateTemp(filepath.Dir(to), ".hbtrace-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	if _, err = tmp.Write(object); err == nil {
		err = tmp.Chmod(0o755)
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), to)
	}
	return to, err
}

func printPreload(w io.Writer, file string) error {
	_, err := fmt.Fprintf(w, `%[1]s

shell       LD_PRELOAD=%[1]s ./server
systemd     [Service]
            Environment=LD_PRELOAD=%[1]s
Docker      docker run -v %[2]s:%[2]s:ro -e LD_PRELOAD=%[1]s IMAGE
Kubernetes  containers:
            - name: server
              env: [{name: LD_PRELOAD, value: /hbtrace/%[3]s}]
              volumeMounts: [{name: hbtrace, mountPath: /hbtrace}]
            initContainers:
            - name: hbtrace
              image: IMAGE-WITH-HBTRACE
              command: [hbtrace, preload, --to, /hbtrace/%[3]s]
              volumeMounts: [{name: hbtrace, mountPath: /hbtrace}]
            volumes: [{name: hbtrace, emptyDir: {}}]

Then: hbtrace attach PID
`, file, filepath.Dir(file), filepath.Base(file))
	return err
}
