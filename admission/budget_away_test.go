package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// If only the budget of the origin does not respond, as on a master of its own that is down, nobody is admitted; snapshots and
// operators' changes go on. Admissions resume when the budget is back.
func TestTick_GoesOnWithoutBudget(t *testing.T) {
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 10_000, 1000
	p.Budgeted, p.Budget = true, Budget{Origin: "shop", Rate: 10_000, Burst: 1000, Weight: 1000, Weights: 1000}
	r := testRoom(t, client, prefix, c, p)
	for range 40 {
		mustJoin(t, r, testID(), testClient(1))
	}
	ticks := func() {
		t.Helper()
		for range 12 {
			c.pass(250 * time.Millisecond)
			mustTick(t, r)
		}
	}
	ticks()
	before := r.Snapshot().Admissions
	if before < 8 {
		t.Fatalf("%d admitted with the budget", before)
	}
	bucket := budgetKeys(prefix, "shop")[0]
	must(t, client.Rename(ctx5(t), bucket, bucket+"away").Err())
	must(t, client.Set(ctx5(t), bucket, "of another type", 0).Err())
	ticks()
	gone := r.Snapshot().Admissions
	ticks()
	s := r.Snapshot()
	if s.Admissions != gone || gone > before+5 || s.RedisTime != c.us || r.store.away.Load() {
		t.Errorf("%d admitted, then %d more, snapshot %d µs old, down %t", gone-before, s.Admissions-gone, c.us-s.RedisTime, r.store.away.Load())
	}
	must(t, r.Patch(ctx5(t), "ann", Live{Rate: new(int64(9000))}))
	if got := r.Snapshot().Policy.Rate; got != 9000 {
		t.Errorf("a change of the rate: %d", got)
	}
	must(t, client.Rename(ctx5(t), bucket+"away", bucket).Err())
	for range 3 {
		mustJoin(t, r, testID(), testClient(1))
	}
	ticks()
	if n := r.Snapshot().Admissions - s.Admissions; n < 5 {
		t.Errorf("%d admitted when the budget was back", n)
	}
}
