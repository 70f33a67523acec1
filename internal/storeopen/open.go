package storeopen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/embedded"
	"github.com/anteroom/anteroom/internal/redisurl"
)

const (
	// start bounds the start of the embedded store, which loads its file first.
	start = 2 * time.Minute
	// checkFor bounds a check of a store.
	checkFor = 2 * time.Second
)

// Store is an open store.
type Store struct {
	Client redis.UniversalClient
	// URL is the store's URL with the password masked.
	URL string
	// Away is the error of the first check if the store did not reply, and nil if the store can be used.
	Away error

	server *embedded.Server // nil with a store.url
}

// Open opens the store, and starts the embedded one without a store.url. A store that does not reply is not an error; for a store that
// replies but cannot be used the error wraps redisurl.ErrUnsuitable.
func Open(ctx context.Context, c config.Store, log *slog.Logger) (*Store, error) {
	redisurl.LogTo(log)
	s := &Store{}
	url := c.URL
	if url == "" {
		starting, cancel := context.WithTimeout(ctx, start)
		defer cancel()
		server, err := embedded.Start(starting, embedded.Options{Dir: c.Dir, Log: log})
		if err != nil {
			return nil, err
		}
		s.server = server
		url = server.URL()
	}
	s.URL = redisurl.Mask(url)
	client, err := redisurl.Open(url, c.Timeout)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Client = client
	err = s.Fit(ctx)
	if errors.Is(err, redisurl.ErrUnsuitable) {
		return nil, errors.Join(err, s.Close())
	}
	s.Away = err
	return s, nil
}

// ErrNoStore is returned by Exists for a store that was never opened.
var ErrNoStore = errors.New("there is no store to read")

// Exists returns an error that wraps ErrNoStore if the store is an embedded one that no program has opened yet: a command beside running
// programs that started it would show an empty store of its own.
func Exists(c config.Store) error {
	if c.URL != "" || embedded.Exists(c.Dir) {
		return nil
	}
	return fmt.Errorf("%w: store.url is not set, and store.dir %q has no embedded store; name the configuration of the running program with --config FILE, or its store with %s", ErrNoStore, c.Dir, urlVariable)
}

// urlVariable sets store.url.
const urlVariable = "ANTEROOM_STORE__URL"

// Fit checks whether the store can be used; an error that wraps redisurl.ErrUnsuitable is final, any other means that it does
// not reply.
func (s *Store) Fit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	err := redisurl.CheckServer(ctx, s.Client)
	if errors.Is(err, redisurl.ErrUnsuitable) {
		return fmt.Errorf("store.url %s: %w", s.URL, err)
	}
	return redisurl.WithRemedy(s.URL, err)
}

// Close closes the store. The last program that closes an embedded store stops it.
func (s *Store) Close() error {
	var errs []error
	if s.Client != nil {
		errs = append(errs, s.Client.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	return errors.Join(errs...)
}
