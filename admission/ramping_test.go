package admission

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission/ramp"
	"github.com/anteroom/anteroom/internal/redistest"
)

var climb = ramp.Spec{From: 50_000, Step: 10_000, Every: time.Minute, Until: 70_000, Breach: ramp.Hold}

// stepAll passes time with ticks and lets every gateway take the step that is due.
func stepAll(t *testing.T, c *testClock, rooms []*Room, d time.Duration) {
	t.Helper()
	for ; d > 0; d -= 4 * time.Second {
		c.pass(min(d, 4*time.Second))
		for _, r := range rooms {
			mustTick(t, r)
		}
	}
	for _, r := range rooms {
		if err := r.StepRamp(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rooms {
		mustTick(t, r)
	}
}

func ramps(t *testing.T, r *Room) (list []string) {
	t.Helper()
	entries, err := r.c.Audit(ctx5(t), 100, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Backward(entries) {
		text := e.Who + ": " + e.Action
		for _, change := range e.Changes {
			if text += " " + change.Field; change.After != nil {
				text += " " + *change.After
			}
		}
		list = append(list, text)
	}
	return list
}

// Three gateways see the ramp; each step is taken once, also when the gateway that began it has gone.
func TestRamp_StepsOnceOverGateways(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	rooms := []*Room{testRoom(t, client, prefix, c, basePolicy), testRoom(t, client, prefix, c, basePolicy), testRoom(t, client, prefix, c, basePolicy)}
	if _, running := rooms[1].Ramp(); running {
		t.Error("a ramp before one began")
	}
	if _, err := rooms[0].StopRamp(ctx5(t), "ann"); !errors.Is(err, ErrNoRamp) {
		t.Errorf("stopped none: %v", err)
	}
	if _, err := rooms[0].StartRamp(ctx5(t), "ann", climb); err != nil {
		t.Fatal(err)
	}
	stepAll(t, c, rooms, 10*time.Second)
	if _, err := rooms[1].StartRamp(ctx5(t), "bob", climb); !errors.Is(err, ErrRamp) {
		t.Errorf("a second ramp: %v", err)
	}
	rooms = rooms[1:]
	for _, want := range []int64{50_000, 60_000, 70_000, 70_000} {
		for i, r := range rooms {
			if got := r.Snapshot().Policy.Rate; got != want {
				t.Errorf("gateway %d has the rate %d, want %d", i, got, want)
			}
		}
		stepAll(t, c, rooms, time.Minute)
	}
	if now, _ := rooms[1].Ramp(); now.State != ramp.Done || now.Steps != 2 {
		t.Errorf("it ended as %+v", now)
	}
	want := []string{"ann: ramp rate 50000", "ramp of ann: ramp step rate 60000", "ramp of ann: ramp step rate 70000"}
	if got := ramps(t, rooms[0]); !slices.Equal(got, want) {
		t.Errorf("audit log %q, want %q", got, want)
	}
}

// A change of the rate by hand stops the ramp, with the change itself; other changes do not.
func TestRamp_StopsByHand(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	rooms := []*Room{testRoom(t, client, prefix, c, basePolicy), testRoom(t, client, prefix, c, basePolicy)}
	if _, err := rooms[0].StartRamp(ctx5(t), "ann", climb); err != nil {
		t.Fatal(err)
	}
	text, rate := "hello", int64(5_000)
	if err := rooms[1].Patch(ctx5(t), "bob", Live{Message: &text}); err != nil {
		t.Fatal(err)
	}
	stepAll(t, c, rooms, time.Minute)
	if now, _ := rooms[0].Ramp(); now.Rate != 60_000 || now.State != ramp.Running {
		t.Fatalf("after a message it is %+v", now)
	}
	if err := rooms[1].Patch(ctx5(t), "bob", Live{Rate: &rate}); err != nil {
		t.Fatal(err)
	}
	stepAll(t, c, rooms, 3*time.Minute)
	for i, r := range rooms {
		now, _ := r.Ramp()
		if now.State != ramp.Stopped || now.Reason != "bob changed the rate" || r.Snapshot().Policy.Rate != rate {
			t.Errorf("gateway %d: %+v, rate %d", i, now, r.Snapshot().Policy.Rate)
		}
	}
	if _, err := rooms[0].StartRamp(ctx5(t), "ann", climb); err != nil {
		t.Fatal(err)
	}
	if now, err := rooms[1].StopRamp(ctx5(t), "bob"); err != nil || now.State != ramp.Stopped {
		t.Errorf("stopped as %+v: %v", now, err)
	}
	stepAll(t, c, rooms, 3*time.Minute)
	if got := rooms[0].Snapshot().Policy.Rate; got != 50_000 {
		t.Errorf("the rate is %d after the ramp was stopped", got)
	}
}

// A gateway that knows the ramp writes it back to a store that has lost the room.
func TestRamp_SurvivesLossOfData(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	rooms := []*Room{testRoom(t, client, prefix, c, basePolicy)}
	if _, err := rooms[0].StartRamp(ctx5(t), "ann", climb); err != nil {
		t.Fatal(err)
	}
	stepAll(t, c, rooms, 10*time.Second)
	keys, err := client.Keys(ctx5(t), prefix+":{room*").Result()
	if err != nil || client.Del(ctx5(t), keys...).Err() != nil {
		t.Fatal(err)
	}
	stepAll(t, c, rooms, 4*time.Second)
	fresh := append(rooms, testRoom(t, client, prefix, c, basePolicy))
	stepAll(t, c, fresh, time.Minute)
	for i, r := range fresh {
		if now, ok := r.Ramp(); !ok || now.Rate != 60_000 || now.State != ramp.Running || r.Snapshot().Policy.Rate != 60_000 {
			t.Errorf("gateway %d: %+v %t, rate %d", i, now, ok, r.Snapshot().Policy.Rate)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("3:3:ann{}")
	f.Add("1:0:")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseRecord(text); err == nil && r.version < 0 && text == "" {
			t.Error(r)
		}
	})
}
