package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/embedded"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/token"
)

// storeStart bounds the start of the embedded store, whose file may be long to load.
const storeStart = 2 * time.Minute

// store is the store that the configuration names.
type store struct {
	client  redis.UniversalClient
	server  *embedded.Server // nil with a store.url
	keyID   string           // the embedded store's own key
	keyText []byte
}

// openStore opens the store, and starts it when there is no store.url. A store
// that is away is no error: the gateway serves without it. One that answers and
// does not fit is.
func openStore(ctx context.Context, c config.Store, log *slog.Logger) (*store, error) {
	redisurl.LogTo(log)
	s := &store{}
	url := c.URL
	if url == "" {
		starting, cancel := context.WithTimeout(ctx, storeStart)
		defer cancel()
		server, err := embedded.Start(starting, embedded.Options{Dir: c.Dir, Log: log})
		if err != nil {
			return nil, err
		}
		s.server = server
		if s.keyID, s.keyText, err = embedded.LoadOrCreateKey(c.Dir); err != nil {
			return nil, errors.Join(err, s.close())
		}
		url = server.URL()
	}
	client, err := redisurl.Open(url, c.Timeout)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.client = client
	looking, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	switch err := redisurl.CheckServer(looking, client); {
	case errors.Is(err, redisurl.ErrUnsuitable):
		return nil, errors.Join(fmt.Errorf("store.url %s: %w", redisurl.Mask(url), err), s.close())
	case err != nil:
		log.Error("the store does not answer; serving by on_store_error until it does", "store", redisurl.Mask(url), "error", err)
	}
	return s, nil
}

func (s *store) close() error {
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	return errors.Join(errs...)
}

// keys gives the ring of the configuration, or of the embedded store's own key,
// and the key of the ids that are derived from others' words.
func (s *store) keys(cfg *config.Config) (ring *token.Ring, idKey []byte, err error) {
	keys, err := tokenKeys(cfg)
	if err != nil {
		return nil, nil, err
	}
	if len(keys) == 0 {
		keys = []token.Key{{ID: s.keyID, Alg: "HS256", Secret: s.keyText, Active: true}}
	}
	if ring, err = token.NewRing(cfg.Tokens.Issuer, keys); err != nil {
		return nil, nil, err
	}
	// The first key, active or not: it outlives the rotation that adds another.
	material := keys[0].Secret
	if len(material) == 0 {
		material = keys[0].Private.Seed()
	}
	idKey, err = hkdf.Key(sha256.New, material, nil, "anteroom ids", 32)
	return ring, idKey, err
}
