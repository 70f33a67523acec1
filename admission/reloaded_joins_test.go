package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// A join limit that a reload loosens refuses nobody by the former limit: neither at a gateway where the store has refused a
// join, nor at one that has counted them itself. The new one holds.
func TestJoins_LoosenedByReload(t *testing.T) {
	t.Parallel()
	const who = "address 1network 1"
	limits := basePolicy
	limits.Rate, limits.Burst = 0, 1000
	limits.Joins, limits.JoinsPer, limits.Wide, limits.WidePer = 3, time.Hour, 6, time.Hour
	for name, row := range map[string]struct {
		first  []string // addresses that join as often as they may
		loosen func(p *Policy)
		more   int // places that it comes to
	}{
		"more of an address": {slices.Repeat([]string{who}, 3), func(p *Policy) { p.Joins = 5 }, 2},
		"more of a network": {append(slices.Repeat([]string{"address 2network 1"}, 3), slices.Repeat([]string{"address 3network 1"}, 3)...),
			func(p *Policy) { p.Wide = 8 }, 2},
		"in a shorter time": {slices.Repeat([]string{who}, 3), func(p *Policy) { p.JoinsPer = time.Minute }, 3},
		"no limit":          {slices.Repeat([]string{who}, 3), func(p *Policy) { p.Joins = 0 }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
			join := func(r *Room, address string, want Refusal) {
				t.Helper()
				if _, refusal, err := r.Join(ctx5(t), Arrival{ID: testID(), Address: address}); err != nil || refusal != want {
					t.Errorf("%q joins: refused as %q, want %q (%v)", address, refusal, want, err)
				}
			}
			counted, told := testRoom(t, client, prefix, c, limits), testRoom(t, client, prefix, c, limits)
			for _, address := range row.first {
				join(counted, address, Granted)
			}
			loose := limits
			row.loosen(&loose)
			gateways := []*Room{told, counted}
			for _, r := range gateways {
				join(r, who, TooMany)
			}
			c.pass(2 * time.Minute)
			for _, r := range gateways {
				join(r, who, TooMany)
				r.setPolicy(loose)
				mustTick(t, r)
			}
			for i := range row.more {
				join(gateways[i%2], who, Granted)
			}
			if loose.Joins > 0 {
				join(told, who, TooMany)
				join(counted, who, TooMany)
			}
		})
	}
}

// A join after a reload and before the first snapshot that shows it counts no longer than the new limit requires.
func TestJoins_CountedDuringReload(t *testing.T) {
	t.Parallel()
	p, c := basePolicy, newTestClock()
	p.Rate, p.Burst, p.Joins, p.JoinsPer = 0, 1000, 3, time.Hour
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	join := func() {
		t.Helper()
		if _, refusal, err := r.Join(ctx5(t), Arrival{ID: testID(), Address: "address 1network 1"}); err != nil || refusal != Granted {
			t.Fatalf("refused as %q (%v)", refusal, err)
		}
	}
	p.JoinsPer = time.Minute
	r.setPolicy(p)
	join()
	c.pass(time.Second)
	mustTick(t, r)
	join()
	join()
	c.pass(2 * time.Minute)
	join()
}
