package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/logs"
)

func newServe(use string, load loader) *cobra.Command {
	cmd := &cobra.Command{Use: use, Args: cli.NoArgs}
	settings := cli.AddSettings(cmd, settingFlags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, flags, err := settings.Read(cmd)
		if err != nil {
			return err
		}
		again := func() (*config.Bulk, error) { return load(file, flags) }
		cfg, err := again()
		if err != nil {
			return err
		}
		// The reader of the log may end and return; that must not end the process.
		signal.Ignore(syscall.SIGPIPE)
		log := logs.New(cfg.Log.Level, cfg.Log.Format, cmd.ErrOrStderr())
		for _, w := range cfg.Warnings() {
			log.Warn("configuration", "setting", w.Path, "warning", w.Message)
		}

		ctx, stop := lifecycle.UntilSignal(cmd.Context())
		defer stop()
		return serve(ctx, cfg, again, log)
	}
	return cmd
}
