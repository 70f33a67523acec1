package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// A clock step of the store is distinguished from time that has passed: in the latter this machine's clock advances too.
func TestStepped_IgnoresThisMachinesClock(t *testing.T) {
	t.Parallel()
	const minutes = 10 * time.Minute
	for _, row := range []struct {
		name                string
		store, machine, own time.Duration // by how much Redis's clock, this machine's monotonic clock and its wall clock go on
		then                time.Duration // what passes on all of them afterwards
		want                time.Duration
	}{
		{"time passes", minutes, minutes, minutes, 0, 0},
		{"a master whose clock is ahead", minutes, 0, 0, 0, minutes},
		{"… an hour later", minutes, 0, 0, time.Hour, minutes},
		{"… when every token of before has ended", minutes, 0, 0, 25 * time.Hour, 0},
		{"the machine was asleep", minutes, 0, minutes, 0, 0},
		{"the machine's clock is set to another time", minutes, 0, time.Hour, 0, minutes},
		{"a late answer", time.Second, 0, 0, 0, 0},
		{"a master whose clock is behind", -minutes, 0, 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newTestClock()
			var mono, own int64
			r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
			r.c.ownMono, r.c.ownWall = func() int64 { return mono }, func() int64 { return own }
			c.pass(time.Second)
			mono, own = int64(time.Hour), 0
			r.view.anchor.Store(nil)
			mustTick(t, r)
			before := c.us
			c.us += row.store.Microseconds()
			mono, own = mono+int64(row.machine), own+row.own.Microseconds()
			mustTick(t, r)
			for range 2 {
				c.pass(row.then / 2)
				mono, own = mono+int64(row.then/2), own+row.then.Microseconds()/2
				mustTick(t, r)
			}
			by, at := r.Stepped()
			if by != row.want.Microseconds() || by > 0 && at != before {
				t.Errorf("stepped by %d µs at %d, want %s at %d", by, at, row.want, before)
			}
		})
	}
}

// A clock that steps forward and back again has no step in force.
func TestStepped_SecondStepCancelsFirst(t *testing.T) {
	t.Parallel()
	a := &anchor{wall: 1e12, mono: 1e15, own: 1e12}
	for _, row := range []struct{ by, want int64 }{{300e6, 300e6}, {60e6, 360e6}, {-60e6, 300e6}, {-400e6, 0}, {5e6, 5e6}} {
		next := &anchor{wall: a.wall + 1e6 + row.by, mono: a.mono + 1e9, own: a.own + 1e6}
		next.step = a.stepTo(next)
		if next.step.by != row.want {
			t.Errorf("after a step of %d: %+v, want %d", row.by, next.step, row.want)
		}
		a = next
	}
}
