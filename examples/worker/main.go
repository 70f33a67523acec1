package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9" //nolint:depguard // a team's own program opens its own client

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Getenv, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(2)
	}
}

// run works until ctx ends; then it lets running jobs finish, or gives them back.
func run(ctx context.Context, env func(string) string, log *slog.Logger) error {
	url := env("ANTEROOM_STORE__URL")
	if url == "" {
		return errors.New("ANTEROOM_STORE__URL is empty: name the store, as redis://127.0.0.1:6379")
	}
	conn, err := redis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("ANTEROOM_STORE__URL: %w", err)
	}
	// The engine knows which calls may be repeated; the client must not do it by itself.
	conn.MaxRetries, conn.ContextTimeoutEnabled = -1, true
	client := redis.NewClient(conn)
	defer func() { _ = client.Close() }()

	jobs, err := store.New(store.Options{Client: client, Prefix: env("ANTEROOM_STORE__PREFIX"), Timeout: time.Second, Settings: store.Defaults(), Log: log})
	if err != nil {
		return err
	}
	var count int // 0: the default
	if text := env("ANTEROOM_WORKER__COUNT"); text != "" {
		if count, err = strconv.Atoi(text); err != nil || count < 1 {
			return fmt.Errorf("ANTEROOM_WORKER__COUNT %q: want a number of 1 or more", text)
		}
	}
	engine, err := bulk.New(bulk.Options{Store: jobs, Worker: bulk.WorkerOptions{Count: count}, Log: log})
	if err != nil {
		return err
	}
	engine.Register("invoice", bulk.HandlerFunc(invoice))
	engine.RegisterReducer("revenue", revenue)
	return engine.Run(ctx)
}
