package redistest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestFaultProxy_BreaksTheConnectionUntilHeal(t *testing.T) {
	t.Parallel()
	s := Server(t)
	p := Proxy(t, s.Socket())
	o := clientOptions("")
	o.Network, o.Addr = "tcp", p.Addr()
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	incr := func(key string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return c.Incr(ctx, key).Err()
	}
	direct := s.Client()
	for _, row := range []struct {
		name      string
		fault     func()
		answered  bool
		delivered string
	}{
		{"healthy", func() {}, true, "1"},
		{"sliced", func() { p.Slice(1) }, true, "1"},
		{"slow", func() { p.Delay(10 * time.Second) }, false, "1"},
		{"half", func() { p.Half() }, false, "1"},
		{"dropped", func() { p.Drop(nil) }, false, "1"},
		{"dropped, another command", func() { p.Drop(func(b []byte) bool { return bytes.Contains(b, []byte("nothing")) }) }, true, "1"},
		{"half-open", func() { p.Hold() }, false, ""},
		{"cut", func() { p.Cut() }, false, ""},
	} {
		p.Heal()
		p.Reset()
		for incr("healed", time.Second) != nil { // until the pool has dropped what was reset
		}
		row.fault()
		limit := patience
		if !row.answered {
			limit = 500 * time.Millisecond // in which the command is sent
		}
		if err := incr(row.name, limit); (err == nil) != row.answered {
			t.Fatalf("%s: %v", row.name, err)
		}
		if row.delivered == "" {
			continue
		}
		deadline := time.Now().Add(patience)
		for direct.Get(t.Context(), row.name).Val() != row.delivered {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the command did not arrive", row.name)
			}
		}
	}
}
