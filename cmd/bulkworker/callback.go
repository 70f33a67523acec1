package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/anteroom/anteroom/bulk/outbound"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/tracing"
)

// caller sends an ended group to its callback_url. Its settings can be replaced while it works.
type caller struct{ current atomic.Pointer[calling] }

type calling struct {
	guard  *outbound.Guard
	client *http.Client
	secret []byte
}

func newCalling(cfg *config.Bulk) (*calling, error) {
	guard, err := outbound.NewGuard(cfg.Callbacks.Allow)
	if err != nil {
		return nil, err
	}
	secret, err := cfg.Callbacks.Secret()
	if err != nil {
		return nil, err
	}
	return &calling{guard: guard, client: outbound.NewClient(outbound.Options{Guard: guard}), secret: secret}, nil
}

func (c *caller) replace(next *calling) {
	if old := c.current.Swap(next); old != nil {
		old.client.CloseIdleConnections()
	}
}

// check implements api.Options.CheckCallback.
func (c *caller) check(url string) error {
	_, err := c.current.Load().guard.CheckURL(url)
	return err
}

// post implements bulk.Options.Callback.
func (c *caller) post(ctx context.Context, to string, body []byte) error {
	now := c.current.Load()
	header := http.Header{}
	end := tracing.Call(ctx, hostOf(to), header)
	answer, err := outbound.Post(ctx, now.client, outbound.Request{URL: to, Header: header, Body: body, Secret: now.secret, MaxAnswer: 64 << 10})
	if err != nil {
		end(0, err)
		return err
	}
	end(answer.Status, nil)
	if answer.Status < 200 || answer.Status > 299 {
		return fmt.Errorf("the callback's response was %d %s", answer.Status, http.StatusText(answer.Status))
	}
	return nil
}

// hostOf returns the host of a URL: the rest of a callback_url may contain a secret.
func hostOf(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Host
	}
	return ""
}
