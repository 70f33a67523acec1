package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// The reason is found in the wrapped error of a script, and in no other error.
func TestRefusedWrite_FindsTheReason(t *testing.T) {
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
		if refusal, refused := RefusedWrite(fmt.Errorf("wrapped: %w", err)); !refused || refusal.Reason != row.want {
			t.Errorf("%s %s: %+v of %v", row.setting, row.value, refusal, err)
		}
		if !slices.Contains(WriteRefusalReasons(), row.want) {
			t.Errorf("%s is not in %q", row.want, WriteRefusalReasons())
		}
	}
	for _, err := range []error{nil, errAway, errors.New("OOM in another text")} {
		if refusal, refused := RefusedWrite(err); refused {
			t.Errorf("%v is taken for %+v", err, refusal)
		}
	}
}
