package storeopen

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/embedded"
	"github.com/anteroom/anteroom/internal/redisurl"
)

// checkTimeout bounds the whole check of a store, which may be several servers.
const checkTimeout = 10 * time.Second

// Check returns an error unless the store replies and can be used. Without a url it checks instead that a server program exists and
// that the directory can be used; it creates a missing directory.
func Check(ctx context.Context, store config.Store) error {
	if store.URL == "" {
		if _, err := embedded.FindServer(""); err != nil {
			return err
		}
		return embedded.CheckDir(store.Dir)
	}
	redisurl.LogTo(slog.New(slog.DiscardHandler)) // the error that Check returns has the cause
	// This check may take longer than a call for a visitor.
	client, err := redisurl.Open(store.URL, max(store.Timeout, checkTimeout/4))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := redisurl.CheckServer(ctx, client); err != nil {
		return fmt.Errorf("store.url %s: %w", redisurl.Mask(store.URL), redisurl.WithRemedy(store.URL, err))
	}
	return nil
}
