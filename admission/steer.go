package admission

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/admission/policy"
)

const (
	scoreEvery = 5 * time.Second  // between two calls of the scorer
	scoreFor   = 15 * time.Second // for which a score counts
	scoreLimit = 4 * time.Second  // deadline of a call
)

// steering adapts the rate of a room to its origin's health. One gateway leads and sets the rate; its state belongs to the
// goroutine of the loop.
type steering struct {
	identity
	view  *view
	store *store

	fence int64          // of the lead; 0: this gateway does not lead
	state adaptive.State // of the controller, while this gateway leads
	found int64          // the rate that the store has, as far as this gateway knows
	last  int64          // the last rate that any leader found

	seen atomic.Pointer[Steering]

	floored int64 // since when AtMin counts, mono; 0: it does not
	warned  bool  // AtMin was logged

	scoring sync.Mutex // held during a call of the scorer
	score   atomic.Pointer[scored]
	asked   int64 // mono
	failed  int64 // mono of the last error that was logged

	patience adaptive.Patience
}

type scored struct {
	value float64
	at    int64 // mono
}

// Steering is the state of an adaptive room.
type Steering struct {
	Origin OriginHealth
	Level  adaptive.Level // Unknown where there were too few requests; the rate then stays
	Leader bool           // this gateway sets the rate
	// AtMin is for how long the rate has been min_rate without improving the origin. From Unmoved on the rate is not what makes
	// the origin slow or fail.
	AtMin time.Duration
}

// Unmoved is a time in which an origin serves its backlog and admitted visitors finish their visits.
const Unmoved = time.Minute

// Steering returns the newest state; nil unless the room is adaptive.
func (r *steering) Steering() *Steering { return r.seen.Load() }

// steer calls Steer every second until ctx ends.
func (r *steering) steer(ctx context.Context) {
	eachSecond(ctx, r.Steer, func(err error) { r.c.o.Log.Error("cannot adapt the rate", "room", r.id, "error", err) })
}

// Steer reads the origin's health once and, where this gateway leads, sets the rate. Run calls it every second; tests may.
func (r *steering) Steer(ctx context.Context) error {
	st, p := r, r.view.schedule.Load().At(r.view.RedisNow()).Policy
	snap := r.view.Snapshot()
	if p.Strategy != StrategyAdaptive {
		st.fence, st.floored = 0, 0
		st.seen.Store(nil)
		return nil
	}
	if !snap.Known || r.store.away.Load() {
		return nil
	}
	if snap.Target > 0 {
		st.last = snap.Target
	}
	origin, err := r.c.OriginHealth(ctx, p.Origin)
	if err != nil {
		return err
	}
	if st.fence == 0 {
		if err := r.lead(ctx, &p); err != nil {
			return err
		}
	} else {
		r.consult(ctx, p.Adaptive.Scorer)
	}
	if s := st.score.Load(); s != nil && p.Adaptive.Scorer != nil && r.c.mono()-s.at < int64(scoreFor) {
		origin.Score, origin.Scored = s.value, true
	}
	bounds := controllerPolicy(&p)
	seen := &Steering{Origin: origin, Level: bounds.Level(origin.Health), Leader: st.fence != 0}
	if st.fence != 0 {
		rate := int64(0) // renew the lead, keep the rate
		if !st.patience.Waits(seen.Level, origin.Jobs, r.view.RedisNow()) && !r.holds(snap) {
			st.state = adaptive.Next(bounds, st.state, r.view.RedisNow(), origin.Health, r.usage(snap))
			rate = st.state.Rate
		} else if st.found != st.state.Rate {
			rate = st.state.Rate // the store has lost the rate
		}
		if err := r.setRate(ctx, rate); err != nil {
			return err
		}
	}
	seen.AtMin = r.atMin(snap, seen)
	st.seen.Store(seen)
	return nil
}

// controllerPolicy returns the bounds of the controller.
func controllerPolicy(p *Policy) adaptive.Policy {
	a := p.Adaptive
	return adaptive.Policy{Mode: a.Mode, MinRate: p.MinRate, MaxRate: p.MaxRate, TargetP95: a.TargetP95, MaxErrorRate: a.MaxErrorRate}
}

// atMin returns the newest Steering.AtMin.
func (r *steering) atMin(s *Snapshot, seen *Steering) time.Duration {
	st, p := r, &s.Policy
	if !p.Adapts() || r.holds(s) || p.Rate > p.MinRate || seen.Level < adaptive.Strained {
		st.floored, st.warned = 0, false
		return 0
	}
	now := r.c.mono()
	if st.floored == 0 {
		st.floored = max(1, now)
	}
	d := time.Duration(now - st.floored)
	if d >= Unmoved && !st.warned {
		st.warned = true
		r.c.o.Log.Warn("the rate is at min_rate and the origin has not improved. Set target_p95 above its latency without a queue, or find what else slows it",
			"room", r.id, "p95", seen.Origin.P95.String(), "target_p95", p.Adaptive.TargetP95.String(), "error_rate", seen.Origin.ErrorRate(), "max_error_rate", p.Adaptive.MaxErrorRate)
	}
	return d
}

// holds reports whether the rate must not be changed now: nobody is admitted, or not by it.
func (r *steering) holds(s *Snapshot) bool {
	p := &s.Policy
	return p.Paused || p.Method == Reject || p.Method == Passthrough || !p.Enabled || s.RoomTime < s.Hold || slices.Contains(s.Live, "rate")
}

// usage returns how much of the rate was used in the last full seconds.
func (r *steering) usage(s *Snapshot) adaptive.Usage {
	// As many seconds as 15 admissions take, to limit the influence of chance.
	span := int64(30)
	if s.Policy.Rate > 0 {
		span = min(30, max(3, 15_000/s.Policy.Rate))
	}
	now := s.RoomTime / 1e6
	var admitted int64
	for i := len(s.Flow) - 1; i >= 0 && s.Flow[i].Second >= now-span; i-- {
		if s.Flow[i].Second < now {
			admitted += s.Flow[i].Admitted
		}
	}
	return adaptive.Usage{Rate: float64(admitted) / float64(span), Wanted: s.Waiting > 0}
}

// lead tries to make this gateway the one that sets the rate.
func (r *steering) lead(ctx context.Context, p *Policy) error {
	st := r
	fence, found, text, err := r.callRate(ctx, 0, 0, "")
	if err != nil || fence == 0 {
		return err
	}
	var state adaptive.State
	if text != "" {
		if err := state.UnmarshalText([]byte(text)); err != nil {
			r.c.o.Log.Warn("cannot read the state of the controller; it starts anew", "room", r.id, "error", err)
		}
	}
	if state.Rate == 0 {
		// The store lost the rate, or the room is new: use the last known rate, or the configured one.
		for _, rate := range []int64{found, st.last, p.Rate} {
			if state.Rate == 0 {
				state.Rate = rate
			}
		}
	}
	st.fence, st.state, st.found = fence, state, found
	return nil
}

// setRate renews the lead and, unless rate is 0, sets the rate.
func (r *steering) setRate(ctx context.Context, rate int64) error {
	st := r
	text, err := st.state.MarshalText()
	if err != nil {
		return err
	}
	fence, found, _, err := r.callRate(ctx, st.fence, rate, string(text))
	if err != nil {
		return err
	}
	if st.fence != fence {
		st.fence = 0 // another gateway leads, or the store lost the lead
	}
	st.found = found
	return nil
}

// callRate runs room_rate.
func (r *steering) callRate(ctx context.Context, fence, rate int64, text string) (leads, found int64, state string, err error) {
	_, v, err := r.store.do(ctx, r.tickTimeout(), "room_rate", r.c.o.Gateway, fence, rate, text)
	if err != nil {
		return 0, 0, "", err
	}
	if len(v) != 3 {
		return 0, 0, "", fmt.Errorf("room_rate replied %v", v)
	}
	return asInt(v[0]), asInt(v[1]), asString(v[2]), nil
}

// consult calls the scorer in a goroutine of its own, since it may be slow.
func (r *steering) consult(ctx context.Context, scorer policy.Scorer) {
	st, now := r, r.c.mono()
	if scorer == nil || st.asked != 0 && now-st.asked < int64(scoreEvery) || !st.scoring.TryLock() {
		return
	}
	st.asked = max(1, now)
	r.c.loops.Go(func() {
		defer st.scoring.Unlock()
		asking, cancel := context.WithTimeout(ctx, scoreLimit)
		defer cancel()
		v, err := scorer.Score(asking)
		if err == nil && (math.IsNaN(v) || v < 0 || v > 1) {
			err = fmt.Errorf("a score of %v is not within 0 and 1", v)
		}
		if err != nil {
			if mono := r.c.mono(); ctx.Err() == nil && (st.failed == 0 || mono-st.failed > int64(time.Minute)) {
				st.failed = max(1, mono)
				r.c.o.Log.Error("cannot get a score of the origin from admission.prometheus; its last score counts for counts_for", "room", r.id, "error", err, "counts_for", scoreFor.String())
			}
			return
		}
		st.failed = 0
		st.score.Store(&scored{v, r.c.mono()})
	})
}
