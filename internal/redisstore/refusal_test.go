package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/refusal"
)

// The reason is found in the wrapped error of a script, and in no other error.
func TestRun_KeepsTheReasonOfARefusal(t *testing.T) {
	for _, row := range []struct{ setting, value, want string }{{"maxmemory", "1", "oom"}, {"min-replicas-to-write", "1", "noreplicas"}} {
		server := redistest.Server(t)
		client := server.Client()
		s, err := New(Options{
			Client: client, LayoutKey: "l", Layout: 1, CallTimeout: 10 * time.Second, LoadTimeout: 10 * time.Second, Outage: errAway,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.ConfigSet(t.Context(), row.setting, row.value).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Run(t.Context(), "layout_claim", []string{"l"}, 0, 1); err == nil { // this script runs in a full store
			err = client.Set(t.Context(), "k", "v", 0).Err()
		}
		if why, refused := refusal.Of(fmt.Errorf("wrapped: %w", err)); !refused || why.Reason != row.want {
			t.Errorf("%s %s: %+v of %v", row.setting, row.value, why, err)
		}
		if !slices.Contains(refusal.Reasons(), row.want) {
			t.Errorf("%s is not in %q", row.want, refusal.Reasons())
		}
	}
	for _, err := range []error{nil, errAway, errors.New("OOM in another text")} {
		if why, refused := refusal.Of(err); refused {
			t.Errorf("%v is taken for %+v", err, why)
		}
	}
}
