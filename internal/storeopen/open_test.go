package storeopen

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

func open(t *testing.T, c config.Store) (*Store, error) {
	t.Helper()
	c.Timeout = 30 * time.Second
	s, err := Open(t.Context(), c, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return s, err
}

func TestOpen_UsesTheTimeout(t *testing.T) {
	s, err := open(t, config.Store{URL: redistest.Server(t).URL()})
	if err != nil || s.Away != nil {
		t.Fatal(err, s)
	}
	if err := s.Client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	client, ok := s.Client.(*redis.Client)
	if !ok {
		t.Fatalf("a %T", s.Client)
	}
	if o := client.Options(); o.ReadTimeout != 30*time.Second || o.WriteTimeout != 30*time.Second {
		t.Errorf("store.timeout 30s reaches the connections as %s and %s", o.ReadTimeout, o.WriteTimeout)
	}
}

// Two programs with one directory use one server.
func TestOpen_StartsASharedStore(t *testing.T) {
	dir := t.TempDir()
	first, err := open(t, config.Store{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	second, err := open(t, config.Store{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := second.Client.Get(t.Context(), "k").Result(); err != nil || got != "v" || first.URL != second.URL {
		t.Errorf("%q at %s and %s: %v", got, first.URL, second.URL, err)
	}
}

func TestOpen_AcceptsAStoreThatIsAwayAndRefusesOneThatEvicts(t *testing.T) {
	gone := redistest.Server(t)
	gone.Kill()
	s, err := open(t, config.Store{URL: gone.URL()})
	if err != nil || s.Away == nil {
		t.Errorf("one that is away: %v", err)
	}
	evicting := redistest.Server(t, "--maxmemory-policy", "allkeys-lru")
	if _, err := open(t, config.Store{URL: evicting.URL()}); !errors.Is(err, redisurl.ErrUnsuitable) || !strings.Contains(err.Error(), "store.url unix://") {
		t.Errorf("one that evicts: %v", err)
	}
}
