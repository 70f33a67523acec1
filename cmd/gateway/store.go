package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"log/slog"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/embedded"
	"github.com/anteroom/anteroom/internal/storeopen"
	"github.com/anteroom/anteroom/token"
)

// store is an open store, with the key of an embedded one.
type store struct {
	*storeopen.Store
	keyID   string
	keyText []byte
}

// openStore opens the store, and starts the embedded one without a store.url. A store that does not reply is not an error: the gateway
// serves without it.
func openStore(ctx context.Context, c config.Store, log *slog.Logger) (*store, error) {
	opened, err := storeopen.Open(ctx, c, log)
	if err != nil {
		return nil, err
	}
	s := &store{Store: opened}
	if c.URL == "" {
		if s.keyID, s.keyText, err = embedded.LoadOrCreateKey(c.Dir); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if s.Away != nil {
		log.Error("the store does not answer; serving by on_store_error until it does", "store", s.URL, "error", s.Away)
	}
	return s, nil
}

// keys returns the ring of the configured keys, or of the embedded store's key; the key of ids derived from an Idempotency-Key; and
// the keys of ids derived from accounts, the active key's first.
func (s *store) keys(cfg *config.Config) (ring *token.Ring, idKey []byte, accounts [][]byte, err error) {
	keys, err := tokenKeys(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(keys) == 0 {
		keys = []token.Key{{ID: s.keyID, Alg: "HS256", Secret: s.keyText, Active: true}}
	}
	if ring, err = token.NewRing(cfg.Tokens.Issuer, keys); err != nil {
		return nil, nil, nil, err
	}
	for i := range keys {
		key, err := hkdf.Key(sha256.New, keys[i].Material(), nil, "anteroom ids", 32)
		if err != nil {
			return nil, nil, nil, err
		}
		if i == 0 { // active or not: it stays the same in a rotation that adds a key
			idKey = key
		}
		if accounts = append(accounts, key); keys[i].Active {
			accounts[0], accounts[i] = accounts[i], accounts[0]
		}
	}
	return ring, idKey, accounts, nil
}
