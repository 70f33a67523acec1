package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/config"
)

func newServe(use string, environ []string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Args: noArgs}
	flags := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options, err := flags.options(cmd, environ)
		if err != nil {
			return err
		}
		load := func() (*config.Config, error) { return config.Load(options) }
		cfg, err := load()
		if err != nil {
			return err
		}
		log := newLogger(cfg.Log, cmd.ErrOrStderr())
		for _, w := range cfg.Warnings() {
			log.Warn("configuration", "setting", w.Path, "warning", w.Message)
		}

		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		// The first signal ends ctx and gives the signals back to the system:
		// the second one ends the process at once.
		defer context.AfterFunc(ctx, stop)()
		return serve(ctx, cfg, load, log)
	}
	return cmd
}
