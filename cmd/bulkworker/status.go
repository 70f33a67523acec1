package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

// listed is how many groups status lists without arguments.
const listed = 20

func newStatus() *cobra.Command {
	conn, asJSON := &connection{}, false
	cmd := newClientCommand(conn, "status [GROUP]", "Show a group, or the newest groups", cobra.MaximumNArgs(1), func(cmd *cobra.Command, args []string) error {
		c, _, err := conn.clients(nil)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if len(args) == 1 {
			g, err := c.Group(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(out, g)
			}
			return writeGroup(out, g)
		}
		groups := make([]*client.Group, 0, listed)
		for g, err := range c.Groups(cmd.Context(), client.Filter{}) {
			if err != nil {
				return err
			}
			if groups = append(groups, g); len(groups) == listed {
				break
			}
		}
		if asJSON {
			return writeJSON(out, groups)
		}
		return writeGroups(out, groups)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func writeGroup(w io.Writer, g *client.Group) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	row("group", "%s", g.ID)
	row("tenant", "%s", g.Tenant)
	row("type", "%s, priority %s", g.Type, g.Priority)
	row("status", "%s", statusOf(g))
	if g.Error != "" {
		row("error", "%s", g.Error)
	}
	row("progress", "%d of %d (%.1f%%)", g.Done(), g.Total, 100*g.Progress)
	if !g.Status.Ended() {
		row("rate", "%.4g/s", g.Rate)
		if g.ETA != nil {
			row("left", "%s (%s)", seconds(g.ETA.Seconds), etaOf(g.ETA))
		}
	}
	row("jobs", "%d pending, %d ready, %d backing off, %d running", g.Pending, g.Ready, g.NonReady, g.InFlight)
	if g.Unserved > 0 {
		row("no processor", "%d jobs wait for a process that runs their type", g.Unserved)
	}
	row("outcomes", "%d succeeded, %d failed, %d dead, %d cancelled", g.Succeeded, g.Failed, g.Dead, g.Cancelled)
	if g.Results != "" && g.Results != client.AllResults {
		row("kept", "results of its jobs: %s", g.Results)
	}
	row("congestion", "%s, %.3g throttles a job", orNone(g.Congestion), g.ThrottlesPerJob)
	if g.RedriveOf != "" {
		row("redrive of", "%s", g.RedriveOf)
	}
	for _, at := range []struct {
		name string
		time time.Time
	}{{"starts", g.StartAt}, {"expires", g.ExpiresAt}, {"created", g.CreatedAt}, {"sealed", g.SealedAt}, {"started", g.StartedAt}, {"finished", g.FinishedAt}} {
		if !at.time.IsZero() {
			row(at.name, "%s", at.time.UTC().Format(time.RFC3339))
		}
	}
	return t.Flush()
}

func writeGroups(w io.Writer, groups []*client.Group) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "GROUP\tTENANT\tTYPE\tSTATUS\tDONE\tTOTAL\tFAILED\tDEAD\tRATE\tLEFT")
	for _, g := range groups {
		left := "-"
		if g.ETA != nil && !g.Status.Ended() {
			left = etaOf(g.ETA)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%.4g/s\t%s\n",
			g.ID, g.Tenant, g.Type, statusOf(g), g.Done(), g.Total, g.Failed, g.Dead, g.Rate, left)
	}
	return t.Flush()
}
