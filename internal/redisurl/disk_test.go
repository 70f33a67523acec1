package redisurl

import (
	"errors"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestCheckDisk_RequiresAppendonly(t *testing.T) {
	for _, row := range []struct {
		name, appendonly string
		want             string // with WAITAOF; "": it fits
	}{
		{"append-only", "yes", ""},
		{"in memory", "no", "run the store with appendonly yes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := redistest.Server(t, "--appendonly", row.appendonly)
			known, err := server.Client().Command(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			want := row.want
			if known["waitaof"] == nil { // before Redis 7.2
				want = "it has no WAITAOF, which came with Redis 7.2; use a later one, or durability none or replica"
			}
			err = CheckDisk(t.Context(), server.Client())
			if want == "" && err != nil || want != "" && (!errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%v; want %q", err, want)
			}
		})
	}
	gone := redistest.Server(t)
	gone.Kill()
	if err := CheckDisk(t.Context(), open(t, gone.URL())); err == nil || errors.Is(err, ErrUnsuitable) {
		t.Errorf("a store that is away: %v", err)
	}
}
