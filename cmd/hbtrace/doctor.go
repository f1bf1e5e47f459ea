// The doctor command.

package main

import (
	"github.com/hbtrace/hbtrace/doctor"
	"github.com/hbtrace/hbtrace/flight"
	"github.com/spf13/cobra"
)

// notRecordable is doctor's exit status when nothing can be recorded.
const notRecordable = 1

func newDoctor() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [flags] [PROGRAM|PID]",
		Short: "Say what can be recorded of this machine and a program, and how to record more",
		Long: `doctor checks what can be recorded and changes nothing. Without an argument it checks the machine; with a program, or the pid of
a running process, it checks that too. It exits with 0, or with 1 when nothing can be recorded.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := ""
			if len(args) > 0 {
				target = args[0]
			}
			r, err := doctor.Diagnose(target)
			if err != nil {
				return err
			}
			r.Machine = append(r.Machine, flightFinding())
			write := r.WriteText
			if asJSON {
				write = r.WriteJSON
			}
			if err := buffered(cmd.OutOrStdout(), write); err != nil {
				return err
			}
			if !r.Recordable {
				return status(notRecordable)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// flightFinding is what a flight recorder would take of this machine.
func flightFinding() doctor.Finding {
	text, err := flight.Room(flight.DefaultBytes)
	if err != nil {
		return doctor.Finding{Level: doctor.Note, Name: "flight recorder", Value: "--keep 60s cannot be used", Advice: err.Error()}
	}
	return doctor.Finding{Level: doctor.OK, Name: "flight recorder", Value: "--keep 60s takes " + text}
}
