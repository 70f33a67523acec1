package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/logs"
	"github.com/anteroom/anteroom/internal/storeopen"
)

const exitStoreAway = 3

// auditTimeout is the least deadline of an audit's store calls. store.timeout is for calls that a client waits for; an audit
// reads much beside them, and a slow step on a busy store is no reason to stop.
const auditTimeout = 10 * time.Second

// storeAway is the error of an audit that could not reach the store.
type storeAway struct{ err error }

func (e *storeAway) Error() string { return e.err.Error() }
func (e *storeAway) Unwrap() error { return e.err }
func (e *storeAway) ExitCode() int { return exitStoreAway }

// unread returns the error of a store that could not be read: it was not reached, or the configuration is not that of the store.
func unread(err error) error {
	if errors.Is(err, store.ErrShards) {
		return misuse("%w", err)
	}
	return &storeAway{err}
}

// loadBeside reads the configuration for a command beside running workers. Without a file and a store.url, it refuses an embedded store that
// does not exist yet: the command would start an empty one and report on that.
func loadBeside(cmd *cobra.Command, settings *cli.Settings, load loader) (*config.Bulk, error) {
	file, flags, err := settings.Read(cmd)
	if err != nil {
		return nil, err
	}
	cfg, err := load(file, flags)
	if err != nil || file != "" {
		return cfg, err
	}
	for _, server := range cfg.Store.Servers() {
		if err := storeopen.Exists(server); err != nil {
			return nil, misuse("%w", err)
		}
	}
	return cfg, nil
}

// openFleet opens the store for a command beside running workers.
func openFleet(ctx context.Context, cfg *config.Bulk, log *slog.Logger) (*store.Fleet, servers, error) {
	opened, err := openServers(ctx, cfg, log)
	if err != nil {
		return nil, nil, &storeAway{err}
	}
	st, err := store.NewFleet(storeOptions(cfg, log, nil), opened.clients()...)
	if err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	return st, opened, nil
}

func newAudit(load loader) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit --config FILE",
		Short: "Check every invariant of the bulk engine in the store",
		Long: `audit reads the store beside the running bulk workers and checks that every job is
in one place, that all counts agree, and that no data is left over.

It prints ok, or each violated invariant on a line and exits with 1. It exits
with 2 if the configuration is invalid or not that of the store, and with 3 if
the store cannot be reached.

With --repair it first restores wake times, places in the fair queue and times of
housekeeping that contradict the records of groups and tenants, and prints each.
It changes no job and no count, and is safe beside running workers.`,
		Args: cli.NoArgs,
	}
	repair := cmd.Flags().Bool("repair", false, "first restore what can be restored without changing jobs")
	settings := cli.AddSettings(cmd, nil)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadBeside(cmd, settings, load)
		if err != nil {
			return err
		}
		cfg.Store.Timeout = max(cfg.Store.Timeout, auditTimeout)
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		log := logs.New("warn", cfg.Log.Format, cmd.ErrOrStderr())
		st, opened, err := openFleet(ctx, cfg, log)
		if err != nil {
			return err
		}
		defer func() { _ = opened.Close() }() // nothing is written
		if err := opened.away(); err != nil {
			return &storeAway{err}
		}
		if *repair {
			restored, err := st.Repair(ctx)
			for _, r := range restored {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "repaired: %s %s: %s\n", r.Kind, r.Name, r.What); err != nil {
					return err
				}
			}
			if err != nil {
				return unread(err)
			}
		}
		broken, err := st.Audit(ctx)
		if err != nil {
			return unread(err)
		}
		for _, v := range broken {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", v.Invariant, v.What); err != nil {
				return err
			}
		}
		if len(broken) > 0 {
			return errors.New("audit: the invariants above are violated")
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	}
	return cmd
}
