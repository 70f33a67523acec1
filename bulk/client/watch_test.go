package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

func TestWatch_ContinuesAfterBreak(t *testing.T) {
	t.Parallel()
	s := serve(t)
	bad := cut(t, s.Server)
	c := newClient(t, bad.url(), Options{})
	g := submit(t, c, GroupSpec{}, lines(100))
	c.o.HTTP.CloseIdleConnections()
	var seen []Status
	breaks := 0
	for g, err := range c.Watch(t.Context(), g.ID) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, g.Status)
		switch {
		case breaks < 2:
			breaks++
			bad.reset()
		case breaks == 2:
			breaks++
			s.work(t)
		}
	}
	if seen[0] != Dispatched || seen[len(seen)-1] != Completed || breaks != 3 {
		t.Errorf("saw %v", seen)
	}
}

// Without an event stream, the client reads the group every second.
func TestWatch_PollsWithoutEvents(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"not served", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotImplemented) }},
		{"too many streams", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"too_many_streams"}`))
		}},
		{"another kind of answer", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }},
		{"an empty stream", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") }},
		{"held back", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"held back after the first comment", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(":\n\n"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := serve(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/events") {
						asked.Add(1)
						row.answer(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			c := newClient(t, s.URL, Options{})
			c.firstEvent = 300 * time.Millisecond
			g := submit(t, c, GroupSpec{}, lines(10))
			var seen []Status
			for g, err := range c.Watch(t.Context(), g.ID) {
				if err != nil {
					t.Fatal(err)
				}
				if seen = append(seen, g.Status); len(seen) == 1 {
					s.work(t)
				}
			}
			if !slices.Contains(seen, Dispatched) || seen[len(seen)-1] != Completed || asked.Load() != 1 {
				t.Errorf("saw %v, asked for events %d times", seen, asked.Load())
			}
		})
	}
}

func TestWatch_Ends(t *testing.T) {
	t.Parallel()
	s := serve(t)
	bad := cut(t, s.Server)
	c := newClient(t, bad.url(), Options{Patience: time.Second})
	g := submit(t, c, GroupSpec{}, lines(10))
	t.Run("with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		enough := errors.New("enough")
		var last error
		for _, err := range c.Watch(ctx, g.ID) {
			cancel(enough)
			last = err
		}
		if !errors.Is(last, enough) {
			t.Errorf("ended with %v", last)
		}
	})
	t.Run("with its reader", func(t *testing.T) {
		for range c.Watch(t.Context(), g.ID) {
			break
		}
	})
	t.Run("with patience", func(t *testing.T) {
		var last error
		for _, err := range c.Watch(t.Context(), g.ID) {
			_ = bad.l.Close()
			bad.reset()
			last = err
		}
		if _, ok := errors.AsType[*Unreachable](last); !ok {
			t.Errorf("ended with %v", last)
		}
	})
}
