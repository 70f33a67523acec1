package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The shop publishes all shows at first and after each change of a state, with its token, and again after a refusal.
func TestPublisher_PublishesChanges(t *testing.T) {
	s, _ := open(t)
	type publication struct {
		token string
		items map[string]item
	}
	received := make(chan publication, 100)
	refuse := make(chan struct{}, 1)
	refuse <- struct{}{}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-refuse:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		default:
		}
		var body struct{ Items []item }
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &body); err != nil || r.Method != http.MethodPut || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", r.Method, text, err)
		}
		p := publication{r.Header.Get("Authorization"), map[string]item{}}
		for _, i := range body.Items {
			p.items[i.ID] = i
		}
		received <- p
	}))
	t.Cleanup(gateway.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("shop-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := publisher{url: gateway.URL, tokenFile: token, every: time.Millisecond, log: slog.New(slog.DiscardHandler)}
	var over sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	over.Go(func() { p.run(ctx, s) })
	t.Cleanup(func() { stop(); over.Wait(); http.DefaultClient.CloseIdleConnections() })

	first := <-received
	aurora := first.items["aurora"]
	if len(first.items) != 4 || first.token != "Bearer shop-token" || aurora.State != "available" || aurora.Price != (price{48, "EUR"}) || aurora.Label["en"] != "Aurora Orchestra: Night Music" {
		t.Errorf("at first: %+v", first)
	}
	sell := func(n int) {
		t.Helper()
		if _, err := s.byID["aurora"].buy(nil, n); err != nil {
			t.Fatal(err)
		}
	}
	sell(1) // the state stays
	sell(len(seatNames) - 11)
	if p := <-received; p.items["aurora"].State != "low" || p.items["deep-field"].State != "available" {
		t.Errorf("with ten seats left: %+v", p.items)
	}
	sell(10)
	if p := <-received; p.items["aurora"].State != "sold_out" {
		t.Errorf("without a seat: %+v", p.items)
	}
	stop()
	over.Wait()
	if n := len(received); n != 0 {
		t.Errorf("%d publications without a change", n)
	}
}

// The shop of make run starts before its gateway, which took two seconds on a busy machine: the demonstration began with a warning.
func TestPublisher_WarnsAfterFiveFailures(t *testing.T) {
	for _, row := range []struct{ failures, warnings int }{{0, 0}, {5, 0}, {6, 1}, {9, 1}} {
		s, _ := open(t)
		left, published := row.failures, make(chan struct{})
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if left--; left >= 0 { // requests come one after the other
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			close(published)
		}))
		var log bytes.Buffer
		p := publisher{url: gateway.URL, every: time.Millisecond, log: slog.New(slog.NewTextHandler(&log, nil))}
		var over sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		over.Go(func() { p.run(ctx, s) })
		<-published
		stop()
		over.Wait()
		http.DefaultClient.CloseIdleConnections()
		gateway.Close()
		if n := strings.Count(log.String(), "cannot publish"); n != row.warnings {
			t.Errorf("after %d failures %d warnings; want %d:\n%s", row.failures, n, row.warnings, log.String())
		}
	}
}
