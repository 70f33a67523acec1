package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

// newTenant returns the command that shows and changes a tenant's settings.
func newTenant() *cobra.Command {
	var weight, rate float64
	var concurrency int64
	cmd := newReport("tenant TENANT", "Show or change a tenant's weight, rate and concurrency", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) (*client.Tenant, error) {
			var p client.TenantPatch
			if cmd.Flags().Changed("weight") {
				p.Weight = &weight
			}
			if cmd.Flags().Changed("rate") {
				p.Rate = &rate
			}
			if cmd.Flags().Changed("concurrency") {
				p.Concurrency = &concurrency
			}
			if p == (client.TenantPatch{}) {
				return c.Tenant(ctx, args[0])
			}
			return c.SetTenant(ctx, args[0], p)
		}, func(w io.Writer, t *client.Tenant) error {
			_, err := fmt.Fprintf(w, "%s weight %g, rate %g, concurrency %d (0: no limit of its own), %d in flight\n",
				t.Tenant, t.Weight, t.Rate, t.Concurrency, t.InFlight)
			return err
		})
	cmd.Long = `tenant prints the settings of a tenant. --weight, --rate and --concurrency change them first, at once and in every process; that needs admin.token.`
	cmd.Flags().Float64Var(&weight, "weight", 1, "share among tenants, 0.01 to 100")
	cmd.Flags().Float64Var(&rate, "rate", 0, "start at most `N` of its jobs a second; 0: as configured")
	cmd.Flags().Int64Var(&concurrency, "concurrency", 0, "run at most `N` of its jobs at once; 0: any number")
	return cmd
}
