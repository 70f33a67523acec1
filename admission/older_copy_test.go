package admission

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// copyOf returns the values of keys, for putBack.
func copyOf(t *testing.T, client redis.UniversalClient, keys []string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, k := range keys {
		if v, err := client.Dump(ctx5(t), k).Result(); err == nil {
			values[k] = v
		}
	}
	return values
}

// putBack replaces all of the room's data with an older copy, as the promotion of a replica that lagged does.
func putBack(t *testing.T, client redis.UniversalClient, keys []string, values map[string]string) {
	t.Helper()
	must(t, client.Del(ctx5(t), keys...).Err())
	for k, v := range values {
		must(t, client.Restore(ctx5(t), k, 0, v).Err())
	}
}

// A replica that lagged is promoted. Before the gateway that knows the lost writes calls it, another gateway that does not know
// them calls it more often than there were lost calls.
func TestOlderCopy_FoundAfterCallsOfOthers(t *testing.T) {
	for _, other := range []string{"started anew", "cut off before"} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
			a := testRoom(t, client, prefix, c, basePolicy)
			b := testRoom(t, client, prefix, c, basePolicy)
			for range 5 {
				mustJoin(t, a, testID(), testClient(1)) // the burst
			}
			tk := mustJoin(t, a, testID(), testClient(2)).Ticket
			c.pass(100 * time.Millisecond)
			mustTick(t, a)
			mustTick(t, b)
			older := copyOf(t, client, a.keys)
			c.pass(time.Second)
			mustTick(t, a)
			if s, err := a.Claim(ctx5(t), tk); err != nil || s.State != Active {
				t.Fatalf("%+v %v", s, err)
			}
			epoch := a.Snapshot().Epoch

			putBack(t, client, a.keys, older)
			c.pass(1500 * time.Millisecond)
			if other == "started anew" {
				b = testRoom(t, client, prefix, c, basePolicy)
			}
			for range 20 {
				c.pass(100 * time.Millisecond)
				mustTick(t, b)
			}
			permit := PermitUse{ID: testID(), Epoch: epoch, Expires: c.us/1_000_000 + 60}
			if got, err := a.RedeemPermit(ctx5(t), permit); err != nil || got != PermitOutdated {
				t.Errorf("a permit that may have been redeemed: %v %v", got, err)
			}
			mustTick(t, a)
			if a.Snapshot().Epoch == epoch {
				t.Error("the loss was not found")
			}
			c.pass(3 * time.Second)
			mustTick(t, b)
			thief := tk
			thief.Client = testClient(3)
			if s, err := b.Claim(ctx5(t), thief); s.State == Active {
				t.Errorf("a second session of one ticket: %+v %v", s, err)
			}
		})
	}
}

// The same in an idle room, of which gateways read the snapshot alone. The gateway that knows the lost change has noticed the outage.
func TestOlderCopy_FoundInIdleRoom(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	a, b := testRoom(t, client, prefix, c, basePolicy), testRoom(t, client, prefix, c, basePolicy)
	older := copyOf(t, client, a.keys)
	c.pass(time.Second)
	must(t, a.Patch(ctx5(t), "ann", Live{Rate: new(int64(7000))}))
	mustTick(t, a)

	putBack(t, client, a.keys, older)
	a.store.failed(ErrStore)
	for range 3 {
		c.pass(time.Second)
		mustTick(t, b)
	}
	if ok, err := a.ticker.readIdle(ctx5(t)); err != nil {
		t.Fatal(err)
	} else if !ok {
		mustTick(t, a)
	}
	if rate := a.Snapshot().Policy.Rate; rate != 7000 {
		t.Errorf("the operator's change is lost: rate %d", rate)
	}
}

// A reply to a script that writes nothing has a number that the store keeps.
func TestOlderCopy_ReadIsNoLoss(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	a, b := testRoom(t, client, prefix, c, basePolicy), testRoom(t, client, prefix, c, basePolicy)
	tk := mustJoin(t, a, testID(), testClient(1)).Ticket
	epoch := a.Snapshot().Epoch
	for range 3 {
		c.pass(700 * time.Millisecond)
		if _, err := b.Lookup(ctx5(t), tk.ID); err != nil {
			t.Fatal(err)
		}
		c.pass(700 * time.Millisecond)
		mustTick(t, a)
		mustTick(t, b)
	}
	if got := b.Snapshot().Epoch; got != epoch {
		t.Errorf("the epoch went from %s to %s without a loss", epoch, got)
	}
}
