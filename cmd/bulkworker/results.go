package main

import (
	"github.com/spf13/cobra"
)

func newResults() *cobra.Command {
	conn, dead, aggregate := &connection{}, false, false
	cmd := newClientCommand(conn, "results GROUP", "Write what became of each job, as NDJSON", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		if dead && aggregate {
			return misuse("--dead and --aggregate exclude each other")
		}
		screen := newScreen(cmd.ErrOrStderr())
		quick, steady, err := conn.clients(screen.note)
		if err != nil {
			return err
		}
		// Who mistypes the address shall not wait for the length of an outage.
		if _, err := quick.Group(cmd.Context(), args[0]); err != nil {
			return err
		}
		switch {
		case aggregate:
			result, err := steady.Result(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return writeJSON(cmd.OutOrStdout(), result)
		case dead:
			_, err = steady.WriteDead(cmd.Context(), args[0], cmd.OutOrStdout())
		default:
			_, err = steady.WriteResults(cmd.Context(), args[0], cmd.OutOrStdout())
		}
		return err
	})
	cmd.Long = `results writes the outcomes of a group's jobs to stdout, as far as they are there, one
JSON object a line: {"id","status","attempts","result","code","error","at"}. A download goes on by
itself when the connection breaks.`
	cmd.Flags().BoolVar(&dead, "dead", false, "the dead jobs instead, with their payloads")
	cmd.Flags().BoolVar(&aggregate, "aggregate", false, "the group's aggregated result instead")
	conn.patient(cmd)
	return cmd
}
