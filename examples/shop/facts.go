package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"
)

// publisher publishes for those who wait what is left, through the facts of the gateway's room.
type publisher struct {
	url       string // of the room's facts at the gateway's admin.listen
	tokenFile string // with a token of the role facts; empty: none
	every     time.Duration
	log       *slog.Logger
}

// item is what a shop publishes of one show.
type item struct {
	ID    string            `json:"id"`
	Label map[string]string `json:"label"`
	State string            `json:"state"`
	Price price             `json:"price"`
}

type price struct {
	From     float64 `json:"from"`
	Currency string  `json:"currency"`
}

// lowBelow is the share of free seats below which few are left.
const lowBelow = 0.1

// state returns the state of a show for those who wait.
func (s *show) state() string {
	switch left := s.Left(); {
	case left == 0:
		return "sold_out"
	case float64(left) < lowBelow*float64(len(seatNames)):
		return "low"
	}
	return "available"
}

// items returns the facts of all shows.
func (s *shop) items() []item {
	all := make([]item, len(s.shows))
	for i, e := range s.shows {
		all[i] = item{e.ID, map[string]string{"en": e.Title}, e.state(), price{float64(e.Euros), "EUR"}}
	}
	return all
}

// run publishes the state of the shop whenever it has changed, and again after a failure, until ctx ends.
func (p *publisher) run(ctx context.Context, s *shop) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	published, failures, logged := "", 0, ""
	for {
		body, err := json.Marshal(map[string]any{"items": s.items()})
		if err == nil && string(body) != published {
			if err = p.put(ctx, body); err == nil {
				published, failures, logged = string(body), 0, ""
			}
		}
		if err != nil {
			failures++
		}
		// Some failures are usual while the gateway starts.
		if failures > 5 && err != nil && ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			p.log.Warn("cannot publish what is left; trying again", "url", p.url, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// put replaces the facts of the room.
func (p *publisher) put(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.tokenFile != "" {
		token, err := os.ReadFile(p.tokenFile)
		if err != nil {
			return fmt.Errorf("--facts-token-file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}
