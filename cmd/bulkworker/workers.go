package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

func newWorkers() *cobra.Command {
	conn, asJSON, which := &connection{}, false, client.WorkersQuery{}
	cmd := newClientCommand(conn, "workers", "List the processes, and the jobs that run longest", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		c, _, err := conn.clients(nil)
		if err != nil {
			return err
		}
		w, err := c.Workers(cmd.Context(), which)
		switch {
		case err != nil:
			return err
		case asJSON:
			return writeJSON(cmd.OutOrStdout(), w)
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		for _, p := range w.Processes {
			keeper := ""
			if p.Keeper {
				keeper = ", the keeper"
			}
			_, _ = fmt.Fprintf(t, "process %s\t%s\t%s%s\t%d of %d workers busy\t%s\n", p.ID, p.Host, p.State, keeper, p.Busy, p.Workers, strings.Join(p.Types, ","))
		}
		for _, j := range w.Jobs {
			_, _ = fmt.Fprintf(t, "%s/%s\t%s\t%s\tfor %s\ttry %d\tprocess %s\n", j.Group, j.ID, j.Tenant, j.Type, time.Since(j.StartedAt).Round(time.Second), j.Attempts, j.Process)
		}
		if more := w.Running - int64(len(w.Jobs)); more > 0 {
			_, _ = fmt.Fprintf(t, "and %d more\n", more)
		}
		return t.Flush()
	})
	cmd.Long = `workers lists the processes that share the store, one a line, and below them what runs now, the longest running job first. With a
tenant's token it lists the jobs of that tenant alone.`
	f := cmd.Flags()
	f.StringVar(&which.Tenant, "tenant", "", "jobs of this `TENANT`")
	f.StringVar(&which.Group, "group", "", "jobs of this `GROUP`")
	f.StringVar(&which.Type, "type", "", "jobs of this `TYPE`")
	f.StringVar(&which.Process, "process", "", "jobs that the process of this `ID` runs")
	f.IntVar(&which.Limit, "limit", 20, "most jobs, 1 to 1000")
	f.BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}
