package main

import (
	"context"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/logs"
)

// logsEnd is how long the end waits for whoever reads the log.
const logsEnd = time.Second

func newServe(use string, load cli.Loader[*config.Config]) *cobra.Command {
	cmd := &cobra.Command{Use: use, Args: cli.NoArgs}
	settings := cli.AddSettings(cmd, settingFlags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, flags, err := settings.Read(cmd)
		if err != nil {
			return err
		}
		again := func() (*config.Config, error) { return load(file, flags) }
		cfg, err := again()
		if err != nil {
			return err
		}
		queue := logs.NewQueue(cmd.ErrOrStderr())
		go queue.Run()
		defer queue.Stop(logsEnd)
		log := logs.New(cfg.Log.Level, cfg.Log.Format, queue)
		for _, w := range cfg.Warnings() {
			log.Warn("configuration", "setting", w.Path, "warning", w.Message)
		}

		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		// The first signal ends ctx and gives the signals back to the system:
		// the second one ends the process at once.
		defer context.AfterFunc(ctx, stop)()
		return serve(ctx, cfg, again, queue, log)
	}
	return cmd
}
