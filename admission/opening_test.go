package admission

import (
	"context"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Of those who gather count who was heard within absence and an eighth of it: who leaves counts no more, and neither does who
// is silent, so that a room that was full has places again. Nobody who is heard is forgotten.
func TestGatheredPlacesThatAreGivenUpCountNoMore(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 9*time.Minute)
	p.Capacity = 10
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	pass := func(d time.Duration) {
		t.Helper()
		for end := c.now() + d.Microseconds(); c.now() < end; {
			c.pass(time.Second)
			mustTick(t, a)
			mustTick(t, b)
		}
	}
	want := func(n int64) {
		t.Helper()
		pass(time.Second)
		if got := a.Snapshot().Prequeued; got != n || b.Snapshot().Prequeued != n {
			t.Fatalf("%d and %d gather, want %d", got, b.Snapshot().Prequeued, n)
		}
	}
	all := gather(t, a, 10)
	want(10)
	if _, refusal, _ := b.Join(ctx5(t), Arrival{ID: testID()}); refusal != Full {
		t.Fatalf("the eleventh of ten: %q", refusal)
	}
	for range 2 { // the second time it is not there
		if err := b.Leave(ctx5(t), all[0].t); err != nil {
			t.Fatal(err)
		}
		want(9)
	}
	gather(t, b, 1)
	want(10)

	// Five are heard through either gateway, the others are silent for absence.
	for i := range 5 {
		pass(40 * time.Second)
		for k, g := range all[1:6] {
			g.heard(mustCheck(t, []*Room{a, b}[(i+k)%2], g.t))
		}
	}
	want(5)
	gather(t, a, 5)
	want(10)

	// A token of before its renewal moves another's place; that one is counted anew, and nobody is forgotten.
	stale := *all[1]
	pass(50 * time.Second)
	for _, g := range all[1:6] {
		g.heard(mustCheck(t, a, g.t))
	}
	mustCheck(t, b, stale.t)
	pass(time.Second)
	if n := a.Snapshot().Prequeued; n < 10 || n > 11 {
		t.Errorf("with a copy of a token %d gather, want 10 or 11", n)
	}

	// A store that comes back empty counts on from what it is told.
	keys, err := client.Keys(context.Background(), prefix+":{room:*").Result()
	if err != nil || client.Del(context.Background(), keys...).Err() != nil {
		t.Fatal(err)
	}
	pass(time.Second)
	before := a.Snapshot().Prequeued
	for _, g := range all[1:6] {
		g.heard(mustCheck(t, b, g.t))
	}
	want(before)
	if err := a.Leave(ctx5(t), all[5].t); err != nil {
		t.Fatal(err)
	}
	want(before - 1)
}

// An opening that is postponed holds against gateways that have not heard of it, whoever is asked at the old time and
// through whomever; who gathered at one of those waits there for its new file, and then has the lot that the others give.
func TestAPostponedOpeningHoldsAgainstOldFiles(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	old := lottery(c.now(), 30*time.Second)
	later := lottery(c.now(), 60*time.Second)
	a, b := testRoom(t, client, prefix, c, old), testRoom(t, client, prefix, c, old)
	all := gather(t, b, 6)
	pass := func(seconds int, check func()) {
		t.Helper()
		for range seconds {
			c.pass(time.Second)
			mustTick(t, b)
			mustTick(t, a)
			check()
		}
	}
	pass(10, func() {})
	a.setPolicy(later)
	pass(45, func() { // over the old time; the last that is heard of is now one, now the other
		for i, r := range []*Room{b, a} {
			s := r.Snapshot()
			if s.Drawn != 0 || !s.Gathering() {
				t.Fatalf("gateway %d: drawn at %d before the later opening", i, s.Drawn)
			}
		}
		if s := mustCheck(t, b, all[0].t); !s.Gathering || s.Ticket.Order != 0 {
			t.Fatalf("at a gateway with the old file: %+v", s)
		}
	})
	if s := b.Snapshot(); s.Policy.OpensAt != later.OpensAt {
		t.Errorf("a gateway with the old file tells %d, want %d", s.Policy.OpensAt, later.OpensAt)
	}
	for _, g := range all[:3] {
		g.heard(mustCheck(t, b, g.t))
	}
	pass(6, func() {})
	drawn := a.Snapshot().Drawn
	if drawn == 0 || b.Snapshot().Drawn != drawn {
		t.Fatalf("after the later opening: drawn %d and %d", drawn, b.Snapshot().Drawn)
	}
	lots := later.Plan.Draw(later.OpensAt)
	for i, g := range all {
		if s := mustCheck(t, b, g.t); s.State != Waiting || s.Ticket.Order != 0 {
			t.Fatalf("a gateway that does not know the draw gives visitor %d %+v", i, s)
		}
		if i%2 == 0 {
			if s := mustCheck(t, a, g.t); s.Ticket.Order != lots.Order(g.t.ID, drawn) {
				t.Fatalf("visitor %d: %+v", i, s)
			}
		}
	}
	b.setPolicy(later)
	pass(2, func() {})
	for i, g := range all {
		if s := mustCheck(t, b, g.t); s.State != Waiting || s.Ticket.Order != lots.Order(g.t.ID, drawn) {
			t.Fatalf("with its new file it gives visitor %d %+v", i, s)
		}
	}
}

// An opening that is brought forward counts ten seconds after the last gateway has heard of it.
func TestAnOpeningIsBroughtForwardByAll(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	first, sooner := lottery(c.now(), 100*time.Second), lottery(c.now(), 40*time.Second)
	a, b := testRoom(t, client, prefix, c, first), testRoom(t, client, prefix, c, first)
	gather(t, a, 2)
	told := func() int64 {
		c.pass(time.Second)
		mustTick(t, a)
		mustTick(t, b)
		return a.Snapshot().Policy.OpensAt
	}
	a.setPolicy(sooner)
	for range 20 {
		if told() != first.OpensAt {
			t.Fatal("one gateway brings the opening forward for all")
		}
	}
	b.setPolicy(sooner)
	for range 11 {
		told()
	}
	if told() != sooner.OpensAt {
		t.Fatal("it is not brought forward though all say so")
	}
	for range 10 {
		told()
	}
	if a.Snapshot().Drawn == 0 {
		t.Error("it does not open")
	}
}

// Who gathered before a reset, and leaves through a gateway that has not heard of it, is not one of those who gather since.
func TestALotFromBeforeAResetTakesNobodyAway(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := lottery(c.now(), 9*time.Minute)
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	before := gather(t, a, 2)
	mustTick(t, b)
	if err := a.Reset(ctx5(t), "test"); err != nil {
		t.Fatal(err)
	}
	gather(t, a, 2)
	if err := b.Leave(ctx5(t), before[0].t); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Second)
	mustTick(t, a)
	if n := a.Snapshot().Prequeued; n != 2 {
		t.Errorf("%d gather, want 2", n)
	}
}
