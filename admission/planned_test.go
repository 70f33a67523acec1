package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Live events reach every gateway with its next tick, also one that starts later, stay through a reload, and outlive a store that lost its
// data.
func TestLiveEvents_ReachGatewaysAndSurvive(t *testing.T) {
	server := redistest.Server(t)
	client := server.Client()
	c := newTestClock()
	r := testRoom(t, client, "wr", c, basePolicy)
	other := testRoom(t, client, "wr", c, basePolicy)
	mustTick(t, r)
	mustTick(t, other)
	now := r.RedisNow()
	sale := Event{ID: "a1", Name: "sale", Starts: now - 1e6, Ends: now + 3600e6, Rate: 77_000}
	if done, err := r.PublishEvents(ctx5(t), "ann", "", []Event{sale}); err != nil || !done {
		t.Fatalf("%v, %v", done, err)
	}
	if done, err := other.PublishEvents(ctx5(t), "ann", "", nil); err != nil || done {
		t.Fatalf("events were replaced by a caller who did not know them: %v, %v", done, err)
	}
	inForce := func(name string, r *Room) {
		t.Helper()
		c.pass(time.Second)
		mustTick(t, r)
		mustTick(t, r) // the first reads the snapshot of the store, the second builds one of the schedule
		if p := r.Snapshot().Policy; p.Rate != sale.Rate || len(r.LiveEvents()) != 1 {
			t.Fatalf("%s: a rate of %d and the events %v", name, p.Rate, r.LiveEvents())
		}
	}
	inForce("the gateway that changed it", r)
	inForce("another gateway", other)
	inForce("a gateway that starts later", testRoom(t, client, "wr", c, basePolicy))
	changed := basePolicy
	changed.MaxActive = 9
	r.setPolicy(changed)
	inForce("after a reload", r)
	if r.Snapshot().Policy.MaxActive != 9 {
		t.Error("the reload is not in force")
	}
	must(t, client.FlushAll(ctx5(t)).Err())
	inForce("after a loss of the store's data", r)
	inForce("a new gateway after the loss", testRoom(t, client, "wr", c, basePolicy))
	_, text, err := r.ReadEvents(ctx5(t))
	must(t, err)
	if done, err := r.PublishEvents(ctx5(t), "ann", text, nil); err != nil || !done {
		t.Fatalf("%v, %v", done, err)
	}
	c.pass(time.Second)
	mustTick(t, other)
	if p := other.Snapshot().Policy; p.Rate != basePolicy.Rate || len(other.LiveEvents()) != 0 {
		t.Errorf("removed events are still in force: a rate of %d", p.Rate)
	}
}
