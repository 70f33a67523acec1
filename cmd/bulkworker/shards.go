package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/logs"
)

func newShards(load loader) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shards",
		Short: "List the shards of the store, open or drain one",
		Long: `A store of several shards is configured with shards and store.urls, or with one
cluster. A group stays on the shard where it was created. These commands change
only which shards new groups use; they take effect in ten seconds, beside running
bulk workers, and move no data.`,
		Args: cli.NoArgs,
	}
	list := newShardsCommand(load, "list", "List the shards with their use and their jobs", cli.NoArgs,
		func(ctx context.Context, f *store.Fleet, out io.Writer, _ int) error {
			shards, err := f.ShardList(ctx)
			if err != nil {
				return err
			}
			return writeShards(out, shards)
		})
	drain := newShardsCommand(load, "drain N", "Create no more groups on a shard", cobra.ExactArgs(1),
		func(ctx context.Context, f *store.Fleet, out io.Writer, n int) error {
			changed, err := f.DrainShard(ctx, n)
			return reportShard(out, n, "drains: new groups use the other shards in ten seconds; its groups end where they are", "is drained already", changed, err)
		})
	open := newShardsCommand(load, "open N", "Create groups on a shard: a new one, or one that was drained", cobra.ExactArgs(1),
		func(ctx context.Context, f *store.Fleet, out io.Writer, n int) error {
			changed, err := f.OpenShard(ctx, n)
			return reportShard(out, n, "is open: new groups use it in ten seconds", "is open already", changed, err)
		})
	open.Long = `open lets new groups use a shard. For a new one, first raise shards, extend
store.urls and restart every bulk worker; the command refuses until all have the
shard. It copies the limits that operators have set live to the shard.`
	cmd.AddCommand(list, drain, open)
	return cmd
}

func reportShard(out io.Writer, n int, done, already string, changed bool, err error) error {
	if err != nil {
		return err
	}
	if !changed {
		done = already
	}
	_, err = fmt.Fprintf(out, "shard %d %s\n", n, done)
	return err
}

func newShardsCommand(load loader, use, short string, args cobra.PositionalArgs, do func(ctx context.Context, f *store.Fleet, out io.Writer, n int) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	settings := cli.AddSettings(cmd, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n := -1
		if len(args) > 0 {
			var err error
			if n, err = strconv.Atoi(args[0]); err != nil {
				return misuse("%q is not the number of a shard; bulkworker shards list has them", args[0])
			}
		}
		cfg, err := loadBeside(cmd, settings, load)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		f, opened, err := openFleet(ctx, cfg, logs.New("warn", cfg.Log.Format, cmd.ErrOrStderr()))
		if err != nil {
			return err
		}
		defer func() { _ = opened.Close() }() // what was written is confirmed
		if err = f.Prepare(ctx); err == nil {
			err = do(ctx, f, cmd.OutOrStdout(), n)
		}
		if errors.Is(err, store.ErrStore) {
			return &storeAway{err}
		}
		return err
	}
	return cmd
}

func writeShards(out io.Writer, shards []store.ShardInfo) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range shards {
		if s.Away != nil {
			_, _ = fmt.Fprintf(t, "shard %d\t%s\tdoes not reply: %v\n", s.Number, s.Use, s.Away)
			continue
		}
		_, _ = fmt.Fprintf(t, "shard %d\t%s\t%d groups, %d open\t%d jobs pending\t%d non-ready\t%d in flight\n", s.Number, s.Use, s.Groups, s.OpenGroups, s.Pending, s.NonReady, s.InFlight)
	}
	return t.Flush()
}
