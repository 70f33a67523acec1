package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

func newBreakers() *cobra.Command {
	var lift, tenant string
	cmd := newReport("breakers", "List the open breakers, or close one", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) ([]client.Breaker, error) {
			switch {
			case lift != "":
				return c.LiftBreaker(ctx, lift, tenant)
			case tenant != "":
				return nil, misuse("--tenant needs --lift, the type of the jobs")
			}
			return c.Breakers(ctx)
		}, writeBreakers)
	cmd.Long = `breakers lists the open breakers, one a line. Their jobs wait because the service that the processor calls is
down, or because the jobs of one tenant fail there. --lift closes a breaker, so that its jobs start again at once; it needs the operators' token.`
	f := cmd.Flags()
	f.StringVar(&lift, "lift", "", "close the breaker of jobs of this `TYPE`")
	f.StringVar(&tenant, "tenant", "", "with --lift: close only the breaker of this `TENANT`")
	return cmd
}

func writeBreakers(w io.Writer, open []client.Breaker) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, b := range open {
		what := fmt.Sprintf("probing with %d", b.Probes)
		if b.State == "open" {
			what = "open until " + b.ProbeAt.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\tsince %s\t%d of %d failed, the last with %s\n", b.Processor, cmp.Or(b.Tenant, "all tenants"), what,
			b.OpenedAt.Format(time.RFC3339), b.Failures, b.Answers, b.Code)
	}
	return t.Flush()
}
