package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

// newControl returns a command that changes a group and prints its new state.
func newControl(name, short string, change func(*client.Client, context.Context, string) (*client.Group, error)) *cobra.Command {
	return newReport(name+" GROUP", short, cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, _ *cobra.Command, args []string) (*client.Group, error) {
			return change(c, ctx, args[0])
		}, func(w io.Writer, g *client.Group) error {
			_, err := fmt.Fprintf(w, "%s %s, %d of %d done\n", g.ID, statusOf(g), g.Done(), g.Total)
			return err
		})
}

func newRedrive() *cobra.Command {
	conn, which, follow := &connection{}, client.Redriving{}, false
	cmd := newClientCommand(conn, "redrive GROUP", "Run dead or failed jobs of a group again, as a new group", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		screen := newScreen(cmd.ErrOrStderr())
		defer screen.end()
		quick, steady, err := conn.clients(screen.note)
		if err != nil {
			return err
		}
		g, err := quick.RedriveJobs(cmd.Context(), args[0], which)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), g.ID); err != nil || !follow {
			return err
		}
		return watch(cmd.Context(), steady, screen, g.ID)
	})
	cmd.Long = `redrive creates a group of the dead jobs of a group, or of the jobs that --status and --code select, and prints its id.`
	cmd.Flags().StringSliceVar(&which.Statuses, "status", nil, "jobs of this `STATUS`: dead, failed or dead,failed (dead; with --code both)")
	cmd.Flags().StringSliceVar(&which.Codes, "code", nil, "only jobs whose last error has this `CODE`, as in the results; repeatable")
	cmd.Flags().Float64Var(&which.Rate, "rate", 0, "start at most `N` of them a second (as the group)")
	cmd.Flags().BoolVar(&follow, "watch", false, "show the progress until the new group has ended; exit code 1 unless it completes")
	conn.patient(cmd)
	return cmd
}
