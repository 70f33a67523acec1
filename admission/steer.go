package admission

import (
	"cmp"
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
	// AtMin is for how long the rate has been min_rate while the origin did not improve. Once it reaches Unmoved, the rate is not
	// the cause of the origin's latency or errors.
	AtMin time.Duration
}

// Unmoved is long enough for an origin to serve its backlog and for admitted visitors to finish their visits.
const Unmoved = time.Minute

// Steering returns the newest state; nil unless the room is adaptive.
func (r *steering) Steering() *Steering { return r.seen.Load() }

// steer calls Steer every second until ctx ends.
func (r *steering) steer(ctx context.Context) {
	eachSecond(ctx, r.Steer, func(err error) { r.c.o.Log.Error("cannot adapt the rate", "room", r.id, "error", err) })
}

// Steer reads the origin's health once and, where this gateway leads, sets the rate. Run calls it every second; tests may.
func (r *steering) Steer(ctx context.Context) error {
	p := r.view.schedule.Load().At(r.view.RedisNow()).Policy
	snap := r.view.Snapshot()
	if p.Strategy != StrategyAdaptive {
		r.fence, r.floored = 0, 0
		r.seen.Store(nil)
		return nil
	}
	if !snap.Known || r.store.away.Load() {
		return nil
	}
	if snap.Target > 0 {
		r.last = snap.Target
	}
	origin, err := r.c.OriginHealth(ctx, p.Origin)
	if err != nil {
		return err
	}
	if r.fence == 0 {
		if err := r.lead(ctx, &p); err != nil {
			return err
		}
	} else {
		r.consult(ctx, p.Adaptive.Scorer)
	}
	if s := r.score.Load(); s != nil && p.Adaptive.Scorer != nil && r.c.mono()-s.at < int64(scoreFor) {
		origin.Score, origin.Scored = s.value, true
	}
	bounds := controllerPolicy(&p)
	seen := &Steering{Origin: origin, Level: bounds.Level(origin.Health), Leader: r.fence != 0}
	if r.fence != 0 {
		rate := int64(0) // renew the lead, keep the rate
		if !r.patience.Waits(seen.Level, origin.Jobs, r.view.RedisNow()) && !r.holds(snap) {
			r.state = adaptive.Next(bounds, r.state, r.view.RedisNow(), origin.Health, r.usage(snap))
			rate = r.state.Rate
		} else if r.found != r.state.Rate {
			rate = r.state.Rate // the store has lost the rate
		}
		if err := r.setRate(ctx, rate); err != nil {
			return err
		}
	}
	seen.AtMin = r.atMin(snap, seen)
	r.seen.Store(seen)
	return nil
}

// controllerPolicy returns the bounds of the controller.
func controllerPolicy(p *Policy) adaptive.Policy {
	a := p.Adaptive
	return adaptive.Policy{Mode: a.Mode, MinRate: p.MinRate, MaxRate: p.MaxRate, TargetP95: a.TargetP95, MaxErrorRate: a.MaxErrorRate}
}

// atMin returns the newest Steering.AtMin.
func (r *steering) atMin(s *Snapshot, seen *Steering) time.Duration {
	p := &s.Policy
	if !p.Adapts() || r.holds(s) || p.Rate > p.MinRate || seen.Level < adaptive.Strained {
		r.floored, r.warned = 0, false
		return 0
	}
	now := r.c.mono()
	r.floored = cmp.Or(r.floored, max(1, now))
	d := time.Duration(now - r.floored)
	if d >= Unmoved && !r.warned {
		r.warned = true
		r.c.o.Log.Warn("the rate is at min_rate and the origin has not improved. Set target_p95 above its latency without a queue, or find what else slows it",
			"room", r.id, "p95", seen.Origin.P95.String(), "target_p95", p.Adaptive.TargetP95.String(), "error_rate", seen.Origin.ErrorRate(), "max_error_rate", p.Adaptive.MaxErrorRate)
	}
	return d
}

// holds reports whether the rate must stay as it is: the room admits nobody, or admits by another rule.
func (r *steering) holds(s *Snapshot) bool {
	p := &s.Policy
	return p.Paused || p.Closed() || p.Method == Passthrough || !p.Enabled || s.RoomTime < s.Hold || slices.Contains(s.Live, "rate")
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

// lead tries to take the lead: the right to set the rate.
func (r *steering) lead(ctx context.Context, p *Policy) error {
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
		for _, rate := range []int64{found, r.last, p.Rate} {
			state.Rate = cmp.Or(state.Rate, rate)
		}
	}
	r.fence, r.state, r.found = fence, state, found
	return nil
}

// setRate renews the lead and, unless rate is 0, sets the rate.
func (r *steering) setRate(ctx context.Context, rate int64) error {
	text, err := r.state.MarshalText()
	if err != nil {
		return err
	}
	fence, found, _, err := r.callRate(ctx, r.fence, rate, string(text))
	if err != nil {
		return err
	}
	if r.fence != fence {
		r.fence = 0 // another gateway leads, or the store lost the lead
	}
	r.found = found
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
	now := r.c.mono()
	if scorer == nil || r.asked != 0 && now-r.asked < int64(scoreEvery) || !r.scoring.TryLock() {
		return
	}
	r.asked = max(1, now)
	r.c.loops.Go(func() {
		defer r.scoring.Unlock()
		asking, cancel := context.WithTimeout(ctx, scoreLimit)
		defer cancel()
		v, err := scorer.Score(asking)
		if err == nil && (math.IsNaN(v) || v < 0 || v > 1) {
			err = fmt.Errorf("a score of %v is not within 0 and 1", v)
		}
		if err != nil {
			if mono := r.c.mono(); ctx.Err() == nil && (r.failed == 0 || mono-r.failed > int64(time.Minute)) {
				r.failed = max(1, mono)
				r.c.o.Log.Error("cannot get a score of the origin from admission.prometheus; its last score counts for counts_for", "room", r.id, "error", err, "counts_for", scoreFor.String())
			}
			return
		}
		r.failed = 0
		r.score.Store(&scored{v, r.c.mono()})
	})
}
