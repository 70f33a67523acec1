package lua

import (
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestLayoutClaim_MarksOnce(t *testing.T) {
	set := MustLoad()
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		r := NewRunner(client, set, nil)
		claim := set.Script("layout_claim")
		key := []string{redistest.Prefix(t) + ":layout"}
		const now = int64(1_700_000_000_123_456)
		for _, row := range []struct {
			name    string
			now     int64
			version int
		}{{"the first marks the store", now, 3}, {"the same again", now + 5, 3}, {"another version gets the first one", now + 9, 4}} {
			got, err := r.Run(t.Context(), claim, key, row.now, row.version)
			if want := []any{int64(3), now}; err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: got %v, %v, want %v", row.name, got, err, want)
			}
		}

		fresh := []string{redistest.Prefix(t) + ":layout"}
		before := client.Time(t.Context()).Val().UnixMicro()
		got, err := r.Run(t.Context(), claim, fresh, 0, 1)
		after := client.Time(t.Context()).Val().UnixMicro()
		if err != nil {
			t.Fatal(err)
		}
		if since := got.([]any)[1].(int64); since < before || since > after {
			t.Fatalf("marked at %d, Redis's clock went from %d to %d", since, before, after)
		}

		for _, bad := range []struct {
			now, version any
			want         string
		}{{0, 0, "version must be"}, {0, "x", "version must be"}, {-1, 1, "ARGV[1] must be now"}, {"1.5", 1, "ARGV[1] must be now"}, {"", 1, "ARGV[1] must be now"}} {
			if _, err := r.Run(t.Context(), claim, []string{redistest.Prefix(t)}, bad.now, bad.version); err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("now %v, version %v: got %v, want %q", bad.now, bad.version, err, bad.want)
			}
		}
	})
}
