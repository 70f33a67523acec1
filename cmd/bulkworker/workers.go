package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

func newWorkers() *cobra.Command {
	var which client.WorkersQuery
	cmd := newReport("workers", "List the processes, the workers that pull jobs, and the running jobs", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) (client.Workers, error) {
			return c.Workers(ctx, which)
		}, writeWorkers)
	cmd.Long = `workers lists the processes that share the store and the workers that pull jobs, one a line, and below them the running jobs, the
longest running first. With a tenant's token it lists only the jobs of that tenant.`
	f := cmd.Flags()
	f.StringVar(&which.Tenant, "tenant", "", "jobs of this `TENANT`")
	f.StringVar(&which.Group, "group", "", "jobs of this `GROUP`")
	f.StringVar(&which.Type, "type", "", "jobs of this `TYPE`")
	f.StringVar(&which.Process, "process", "", "jobs that run in the process of this `ID`")
	f.IntVar(&which.Limit, "limit", 20, "most jobs, 1 to 1000")
	return cmd
}

// noteAway names the shards that are missing in a report.
func noteAway(w io.Writer, shards []int) {
	if len(shards) > 0 {
		_, _ = fmt.Fprintf(w, "no reply from shards %v: what they have is missing here\n", shards)
	}
}

func writeWorkers(out io.Writer, w client.Workers) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, p := range w.Processes {
		keeper := ""
		if p.Keeper {
			keeper = ", the keeper"
		}
		if p.Pulls {
			_, _ = fmt.Fprintf(t, "worker %s\t%s\tpulls\t%d jobs\t%s\n", p.ID, p.Host, p.Busy, strings.Join(p.Types, ","))
			continue
		}
		_, _ = fmt.Fprintf(t, "process %s\t%s\t%s%s\t%d of %d workers busy\t%s\n", p.ID, p.Host, p.State, keeper, p.Busy, p.Workers, strings.Join(p.Types, ","))
	}
	for _, j := range w.Jobs {
		_, _ = fmt.Fprintf(t, "%s/%s\t%s\t%s\tfor %s\ttry %d\tprocess %s\n", j.Group, j.ID, j.Tenant, j.Type, time.Since(j.StartedAt).Round(time.Second), j.Attempts, j.Process)
	}
	if more := w.Running - int64(len(w.Jobs)); more > 0 {
		_, _ = fmt.Fprintf(t, "and %d more\n", more)
	}
	noteAway(t, w.Shards)
	return t.Flush()
}
