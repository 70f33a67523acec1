package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

func newResults() *cobra.Command {
	conn, dead, aggregate, which := &connection{}, false, false, client.Which{}
	cmd := newClientCommand(conn, "results GROUP", "Write the outcome of each job, as NDJSON", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		if dead && aggregate {
			return misuse("--dead and --aggregate exclude each other")
		}
		if (dead || aggregate) && len(which.Statuses)+len(which.Codes) > 0 {
			return misuse("--status and --code select outcomes: not with --dead or --aggregate")
		}
		screen := newScreen(cmd.ErrOrStderr())
		quick, steady, err := conn.clients(screen.note)
		if err != nil {
			return err
		}
		// A wrong address should fail soon.
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
			_, err = steady.WriteSelected(cmd.Context(), args[0], which, cmd.OutOrStdout())
		}
		return err
	})
	cmd.Long = `results writes the outcomes of a group's jobs that have ended to stdout, one JSON object
a line: {"id","status","attempts","result","code","error","at","created_at","started_at",
"duration_ms"}. --status and --code select outcomes. A download continues after a
broken connection.`
	cmd.Flags().BoolVar(&dead, "dead", false, "the dead jobs instead, with their payloads")
	cmd.Flags().BoolVar(&aggregate, "aggregate", false, "the group's aggregated result instead")
	cmd.Flags().StringSliceVar(&which.Statuses, "status", nil, "outcomes of this `STATUS` only: succeeded, failed, dead or cancelled; repeatable")
	cmd.Flags().StringSliceVar(&which.Codes, "code", nil, "only outcomes whose last error has this `CODE`; repeatable")
	conn.patient(cmd)
	return cmd
}

func newJob() *cobra.Command {
	return newJobCommand("job GROUP JOB", "Show one job of a group, as JSON", (*client.Client).Job)
}

// newJobCommand returns a command that calls do for one job and prints the state that it returns.
func newJobCommand(use, short string, do func(c *client.Client, ctx context.Context, group, job string) (*client.JobState, error)) *cobra.Command {
	conn := &connection{}
	return newClientCommand(conn, use, short, cobra.ExactArgs(2), func(cmd *cobra.Command, args []string) error {
		c, _, err := conn.clients(nil)
		if err != nil {
			return err
		}
		j, err := do(c, cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		return writeJSON(cmd.OutOrStdout(), j)
	})
}

func newDelete() *cobra.Command {
	conn := &connection{}
	return newClientCommand(conn, "delete GROUP", "Delete an ended group with all its data", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		c, _, err := conn.clients(nil)
		if err != nil {
			return err
		}
		if err := c.Delete(cmd.Context(), args[0]); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is gone\n", args[0])
		return err
	})
}
