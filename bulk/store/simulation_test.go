package store_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// TestStore_ReproducesSimulationOnRedis runs the scenarios of docs/congestion.md against the scripts, on a virtual clock: with a tenth of the
// jobs, or with BULK_SCALE times fewer (1: the table of the document).
func TestStore_ReproducesSimulationOnRedis(t *testing.T) {
	short.Skip(t, "makes many cases")
	t.Parallel()
	scale := 10
	if s := os.Getenv("BULK_SCALE"); s != "" {
		var err error
		if scale, err = strconv.Atoi(s); err != nil || scale < 1 {
			t.Fatalf("BULK_SCALE=%s: must be a whole number from 1", s)
		}
	}
	for _, c := range Scenarios(scale) {
		if c.Shared > 0 {
			continue // the scripts count exactly
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			s, err := store.New(store.Options{
				Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: c.Settings, Now: clock.Now,
			})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			r, err := c.Run(t.Context(), s, clock)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Judge(r); err != nil {
				t.Error(err)
			}
			t.Logf("%s   %d pulls, most starts of a tenant in any second %d, took %v", c.Row(r), r.Pulls, r.TenantPeak, time.Since(began))
			if broken, err := s.Audit(t.Context()); err != nil || len(broken) > 0 {
				t.Errorf("audit: %v, %v", broken, err)
			}
		})
	}
}
