package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/bulk/outbound"
	"github.com/anteroom/anteroom/internal/tracing"
)

const (
	// Deadline bounds one delivery.
	Deadline = 15 * time.Second
	// GiveUp is the time from an event until no further delivery is tried.
	GiveUp = 24 * time.Hour

	firstPause, longestPause = 5 * time.Second, time.Hour
	mostAnswer               = 4 << 10
)

// sender sends events to one configuration's endpoints.
type sender struct {
	endpoints []Endpoint
	clients   map[string]*http.Client // by the name of the endpoint
}

// CheckURL returns why events cannot be sent to a URL, as far as that can be known without DNS.
func CheckURL(url string, allowPrivate bool) error {
	if allowPrivate {
		_, err := outbound.ParseURL(url)
		return err
	}
	guard, err := outbound.NewGuard(nil)
	if err == nil {
		_, err = guard.CheckURL(url)
	}
	return explain(err)
}

// newSender starts nothing; close ends its idle connections.
func newSender(endpoints []Endpoint) (*sender, error) {
	s := &sender{endpoints: endpoints, clients: map[string]*http.Client{}}
	for i := range endpoints {
		e := &endpoints[i]
		if err := CheckURL(e.URL, e.AllowPrivate); err != nil {
			return nil, fmt.Errorf("webhooks.%s.url: %w", e.Name, err)
		}
		o := outbound.Options{MaxPerHost: mostInFlight}
		if !e.AllowPrivate {
			guard, err := outbound.NewGuard(nil)
			if err != nil {
				return nil, err
			}
			o.Guard = guard
		}
		s.clients[e.Name] = outbound.NewClient(o)
	}
	return s, nil
}

func (s *sender) close() {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}

func (s *sender) endpoint(name string) *Endpoint {
	for i := range s.endpoints {
		if s.endpoints[i].Name == name {
			return &s.endpoints[i]
		}
	}
	return nil
}

// explain names the setting that allows a call which the guard refused.
func explain(err error) error {
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return fmt.Errorf("host %q is at %s, %s; set allow_private: true if events may go there", refused.Host, refused.Addr, refused.What)
	}
	return err
}

// Answer is the response of an endpoint.
type Answer struct {
	Status int
	Body   []byte // its beginning

	retryAfter time.Duration
}

// deliver sends an event. An error means that there was no response.
func (s *sender) deliver(ctx context.Context, e *Endpoint, id, body string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	header := http.Header{"User-Agent": {"anteroom-webhooks"}}
	sign(header, e.Secrets, id, time.Now(), []byte(body))
	end := tracing.Call(ctx, e.Host(), header)
	a, err := outbound.Post(ctx, s.clients[e.Name], outbound.Request{URL: e.URL, Header: header, Body: []byte(body), MaxAnswer: mostAnswer})
	if err != nil {
		end(0, err)
		return nil, explain(err)
	}
	end(a.Status, nil)
	return &Answer{Status: a.Status, Body: a.Body, retryAfter: a.RetryAfter}, nil
}

// failure returns why a delivery failed, nil if it did not. gone: the endpoint wants no further events.
func failure(a *Answer, err error) (failed error, gone bool) {
	switch {
	case err != nil:
		return err, false
	case a.Status >= 200 && a.Status <= 299:
		return nil, false
	}
	return fmt.Errorf("the response was %d %s", a.Status, cmp.Or(http.StatusText(a.Status), "of an unknown kind")), a.Status == http.StatusGone
}

// pauseAfter returns the pause after a number of failed tries: it doubles up to an hour, with a fifth of jitter, and is not shorter than a
// Retry-After.
func pauseAfter(tries int, a *Answer) time.Duration {
	pause := min(firstPause<<min(tries, 20), longestPause)
	pause += time.Duration(rand.Int64N(int64(pause)/5 + 1)) //nolint:gosec // spreads the tries
	if a != nil {
		pause = max(pause, min(a.retryAfter, longestPause))
	}
	return pause
}
