package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// A tick parks thousands of absent tickets at the front, so that a block of departed visitors does not delay those behind it
// for minutes.
func TestTick_ParksThousandsOfAbsentTickets(t *testing.T) {
	clock, client := newTestClock(), redistest.Client(t)
	p := basePolicy
	p.Rate, p.Burst = 1000, 1000
	r := testRoom(t, client, redistest.Prefix(t), clock, p)
	const dead = 12_000
	enter := func(n int, hold time.Duration) {
		t.Helper()
		qs := make([]enterQ, n)
		for i := range qs {
			qs[i] = enterQ{kind: "keyed", id: testID(), client: testClient(1), hold: hold}
		}
		if _, err := r.calls.sendEnter(ctx5(t), qs); err != nil {
			t.Fatal(err)
		}
	}
	for range dead / 500 {
		enter(500, 3*time.Second)
	}
	clock.pass(time.Second)
	mustTick(t, r)
	enter(1, time.Minute)
	admitted := r.Snapshot().Admissions
	clock.pass(3 * time.Second)
	ticks := 0
	for ; ticks < 10 && r.Snapshot().Waiting > 1; ticks++ {
		clock.pass(250 * time.Millisecond)
		began := time.Now()
		mustTick(t, r)
		t.Logf("%d parked; the tick took %s", r.Snapshot().Parked, time.Since(began).Round(100*time.Microsecond))
	}
	if ticks > 4 {
		t.Errorf("%d ticks", ticks)
	}
	for range 8 {
		clock.pass(250 * time.Millisecond)
		mustTick(t, r)
	}
	if s := r.Snapshot(); s.Waiting != 0 || s.Admissions == admitted {
		t.Errorf("the present visitor behind them still waits: %d in the queue, %d admitted", s.Waiting, s.Admissions-admitted)
	}
}
