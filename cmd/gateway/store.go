package main

import (
	"context"
	"errors"
	"os/exec"

	"github.com/anteroom/anteroom/internal/config"
)

func checkStore(ctx context.Context, store config.Store) error {
	if store.URL == "" {
		return findServer()
	}
	return errors.New("not yet")
}

// findServer looks for the binary of the embedded store.
func findServer() error {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if _, err := exec.LookPath(name); err == nil {
			return nil
		}
	}
	return errors.New("neither redis-server nor valkey-server is installed; install one (apt-get install redis-server, or brew install redis), or give a store.url")
}
