package main

import (
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/logs"
)

// fewDescriptors is a limit that a crowd may reach.
const fewDescriptors = 8192

// descriptors returns how many files and connections the process may have open; the runtime has raised that limit to the hard
// one. It returns 0 if the limit is unknown.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

// logsEnd is the longest wait at shutdown for the reader of the log.
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
		// The reader of the log may end and restart: the gateway continues.
		signal.Ignore(syscall.SIGPIPE)
		queue := logs.NewQueue(cfg.Log.Format, cmd.ErrOrStderr())
		go queue.Run()
		defer queue.Stop(logsEnd)
		log := queue.Logger(cfg.Log.Level)
		warn(cfg, log)
		if n := descriptors(); n > 0 && n < fewDescriptors {
			log.Warn("the limit of file descriptors is low", "limit", n, "advice", "each visitor takes one and each request to an origin another; raise the hard limit (ulimit -Hn, LimitNOFILE=)")
		}

		ctx, stop := lifecycle.UntilSignal(cmd.Context())
		defer stop()
		return serve(ctx, cfg, again, queue, log)
	}
	return cmd
}

// warn logs settings that are allowed but usually a mistake.
func warn(cfg *config.Config, log *slog.Logger) {
	for _, w := range cfg.Warnings() {
		log.Warn("configuration", "setting", w.Path, "warning", w.Message)
	}
}
