package eta

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// crowd simulates a queue visitor by visitor: each tick admits by rate and max_active, and sessions end at random.
type crowd struct {
	waiting, inside int64
	plan            Plan
	session         float64 // mean, s
	due             float64
	rng             *rand.Rand
}

// step runs a quarter of a second.
func (c *crowd) step() (admitted int64) {
	const seconds = tick / 1e6
	for range c.inside {
		if c.rng.Float64() < seconds/c.session {
			c.inside--
		}
	}
	if c.plan.Paused {
		return 0
	}
	c.due = min(c.due+c.plan.Rate*seconds, max(1, c.plan.Rate))
	n := min(int64(c.due), c.waiting)
	if c.plan.MaxActive > 0 {
		n = min(n, max(0, c.plan.MaxActive-c.inside))
	}
	c.due -= float64(n)
	c.waiting -= n
	c.inside += n
	return n
}

// present returns the room after some minutes under its own plan, as a gateway sees it.
func (c *crowd) present() Input {
	in := Input{Now: start * 1e6, Since: start * 1e6, Rate: c.plan.Rate, Set: c.plan.Rate, MaxActive: c.plan.MaxActive, Paused: c.plan.Paused}
	for range 300 * 4 {
		second := floorSeconds(in.Now)
		if n := len(in.Buckets); n == 0 || in.Buckets[n-1].Second != second {
			in.Buckets = append(in.Buckets, Bucket{Second: second})
		}
		b := &in.Buckets[len(in.Buckets)-1]
		b.Admitted += c.step()
		if !c.plan.Paused {
			b.Busy += tick / 1e6
		}
		in.Now += tick
	}
	in.Waiting, in.Active = c.waiting, c.inside
	return in
}

// empties runs the crowd until nobody waits, and returns the time.
func (c *crowd) empties() (float64, bool) {
	for i := range 8 * 3600 * 4 {
		if c.waiting == 0 {
			return float64(i) * tick / 1e6, true
		}
		c.step()
	}
	return 0, false
}

// The outcome of a plan is that of a crowd that lives under it.
func TestSimulate_MatchesCrowd(t *testing.T) {
	for _, row := range []struct {
		name         string
		now, with    Plan
		waiting      int64
		tolerance    float64
		insideWithin float64
	}{
		{"the rate is doubled", Plan{Rate: 5}, Plan{Rate: 10}, 6000, 0.05, 0.15},
		{"the rate is halved", Plan{Rate: 10}, Plan{Rate: 5}, 6000, 0.05, 0.15},
		{"a full room gets twice the places", Plan{Rate: 20, MaxActive: 200}, Plan{Rate: 20, MaxActive: 400}, 3000, 0.15, 0.1},
		{"a full room loses half of its places", Plan{Rate: 20, MaxActive: 400}, Plan{Rate: 20, MaxActive: 200}, 4000, 0.15, 0.1},
		{"a full room gets no limit", Plan{Rate: 5, MaxActive: 100}, Plan{Rate: 5}, 2000, 0.1, 0.15},
		{"the rate of a full room is raised", Plan{Rate: 10, MaxActive: 200}, Plan{Rate: 20, MaxActive: 200}, 3000, 0.15, 0.1},
		{"nothing changes", Plan{Rate: 8}, Plan{Rate: 8}, 6000, 0.05, 0.15},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &crowd{waiting: row.waiting, plan: row.now, session: 60, rng: rand.New(rand.NewPCG(7, 1))}
			in := c.present()
			o := Simulate(in, row.with, 300)
			c.plan = row.with
			real, empties := c.empties()
			if !o.Empties || !empties || math.Abs(o.Seconds-real) > row.tolerance*real {
				t.Errorf("empty in %.0f s (%v), the crowd in %.0f s (%v)", o.Seconds, o.Empties, real, empties)
			}
			if math.Abs(o.Inside-float64(c.inside)) > row.insideWithin*float64(c.inside)+10 {
				t.Errorf("%.0f inside then, in the crowd %d", o.Inside, c.inside)
			}
			if o.Newcomer.Seconds < o.Last.Seconds || o.Newcomer.Low > o.Newcomer.Seconds || o.Newcomer.High < o.Newcomer.Seconds {
				t.Errorf("a newcomer waits %+v, the last %+v", o.Newcomer, o.Last)
			}
		})
	}
}

func TestSimulate_WhereNobodyIsAdmitted(t *testing.T) {
	c := &crowd{waiting: 500, plan: Plan{Rate: 5}, session: 60, rng: rand.New(rand.NewPCG(7, 1))}
	in := c.present()
	in.Waiting = 500
	for _, p := range []Plan{{Rate: 5, Paused: true}, {Rate: 0}} {
		if o := Simulate(in, p, 300); o.Empties || o.Newcomer.Known || o.Last.Known || o.Inside != float64(in.Active) {
			t.Errorf("%+v: %+v", p, o)
		}
	}
}

// A higher rate or limit never makes the queue longer, and Simulate changes nothing of its input.
func TestSimulate_IsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{
			Now: start * 1e6, Since: (start - 600) * 1e6, Rate: rapid.Float64Range(0.1, 100).Draw(t, "rate"), Waiting: rapid.Int64Range(0, 100_000).Draw(t, "waiting"),
			Active: rapid.Int64Range(0, 5000).Draw(t, "active"),
		}
		p := Plan{Rate: rapid.Float64Range(0.1, 100).Draw(t, "planned"), MaxActive: rapid.Int64Range(0, 5000).Draw(t, "most")}
		more := p
		if more.Rate *= rapid.Float64Range(1, 3).Draw(t, "more"); p.MaxActive > 0 {
			more.MaxActive += rapid.Int64Range(0, 1000).Draw(t, "places")
		}
		less, greater := Simulate(in, p, 300), Simulate(in, more, 300)
		if less.Empties && (!greater.Empties || greater.Seconds > less.Seconds*1.001+0.01) {
			t.Fatalf("%+v: empty in %v s (%v); %+v: in %v s (%v)", p, less.Seconds, less.Empties, more, greater.Seconds, greater.Empties)
		}
		for _, o := range []Outcome{less, greater} {
			if math.IsNaN(o.Inside) || o.Inside < 0 || math.IsNaN(o.Seconds) {
				t.Fatalf("%+v", o)
			}
		}
	})
}
