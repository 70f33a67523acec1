package gateway

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/token"
)

// outlooks holds a room's newest outlook, and what has been learnt of how they come true. All configurations of a room
// share it.
type outlooks struct {
	latest    atomic.Pointer[outlook]
	mu        sync.Mutex // held while the next is made
	predictor *eta.Predictor
	learns    bool // the weights of hours
	taught    bool
	buckets   []eta.Bucket
	heads     []eta.AgeCount
	sample    []eta.AgeCount
	holds     []eta.Hold
	joins     guard.Rate
	fallback  string       // of the last forecast
	errors    recent       // promised over real of those let in lately
	kept      recent       // failed: the wait lay outside the range that was promised
	log       *slog.Logger // nil: none
}

// outlook is what one snapshot says about waiting.
type outlook struct {
	snapshot *admission.Snapshot
	forecast *eta.Forecast
	pace     pace.Plan
	joining  float64 // joins a second

	gathering pace.Gathering // before the opening of a lottery; Left is as of then
	coming
}

// outlook gives what the newest snapshot says. It is worked out once for each by whoever asks first; those who come
// meanwhile get the one before.
func (r *room) outlook() *outlook {
	s := r.line.Snapshot()
	o := r.latest.Load()
	if o != nil && o.snapshot == s {
		return o
	}
	if o != nil && !r.mu.TryLock() {
		return o
	}
	if o == nil {
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	if o = r.latest.Load(); o != nil && o.snapshot == s {
		return o
	}
	o = &outlook{snapshot: s, forecast: r.forecast(s)}
	if s.Known {
		o.joining = r.joins.Observe(s.RedisTime, s.Joins)
	}
	var tail float64
	if e := o.forecast.At(s.Waiting); e.Known {
		tail = e.Seconds
	}
	o.pace = pace.New(s.Policy.LongestPoll(), r.options.PollBudget, s.Waiting, r.line.Arriving(), tail)
	if o.gathers = s.Gathering(); o.gathers {
		o.gathering = pace.Gathering{
			Spread: s.Policy.Spread(s.Prequeued).Seconds(), People: s.Prequeued, Budget: r.options.PollBudget, Quarter: s.Policy.Absence.Seconds() / 4,
		}
	}
	o.coming = r.coming(s)
	r.latest.Store(o)
	return o
}

func (r *room) forecast(s *admission.Snapshot) *eta.Forecast {
	if !s.Known {
		return nil
	}
	r.buckets = r.buckets[:0]
	for _, f := range s.Flow {
		r.buckets = append(r.buckets, eta.Bucket{Second: f.Second, Admitted: f.Admitted, Busy: float64(f.Busy) / 1000})
	}
	r.heads, r.sample = ages(r.heads[:0], s.Heads), ages(r.sample[:0], s.Sample)
	r.holds = holds(r.holds[:0], s.Holds)
	hold := s.Hold
	if p := &s.Policy; p.Method == admission.Lottery && p.OpensAt > s.RedisTime {
		hold = max(hold, s.RoomTime+p.OpensAt-s.RedisTime)
	}
	rate, set := float64(r.line.Expected())/1000, float64(s.Policy.Rate)/1000
	switch {
	case s.Policy.Method == admission.Reject, s.Policy.Method == admission.Passthrough: // nobody is let in from the line
		rate, set = 0, 0
	case s.Policy.Adapts():
		set = 0
	}
	f := r.predictor.Forecast(eta.Input{
		Now: s.RoomTime, Wall: s.RedisTime, Since: s.Since, Hold: hold, Buckets: r.buckets,
		Rate: rate, Set: set, Schedule: r.steps(s), Paused: s.Policy.Paused,
		Waiting: s.Waiting, Parked: s.Parked, MaxActive: s.Policy.MaxActive, Active: s.Admitted + s.Active,
		Came: s.Came, Gone: s.Gone, Admitted: s.Admissions, Head: s.Oldest, Tail: s.Time, Ahead: r.line.Ahead,
		Heads: r.heads, Sample: r.sample, Holds: r.holds, OrderAt: func(ahead int64) int64 { return max(s.OrderAt(ahead), s.Drawn) }, // a drawn ticket has waited since the opening
	})
	if why := f.Fallback(); why != r.fallback {
		r.fallback = why
		switch {
		case r.log == nil:
		case why == eta.FallbackNone:
			r.log.Info("the model is used for estimates", "room", r.id)
		default:
			r.log.Warn("the model is not used for estimates; window is", "room", r.id, "reason", why)
		}
	}
	return f
}

// ages appends a snapshot's counts by time in the queue.
func ages(list []eta.AgeCount, counts []admission.AgeCount) []eta.AgeCount {
	for _, c := range counts {
		list = append(list, eta.AgeCount{Bucket: int(c.Bucket), Present: float64(c.Present) / 1000, Absent: float64(c.Absent) / 1000, Exposure: float64(c.Exposure) / 1000})
	}
	return list
}

// holds appends a snapshot's holds.
func holds(list []eta.Hold, seconds []int64) []eta.Hold {
	for _, s := range seconds {
		if s < 0 {
			list = append(list, eta.Hold{Seconds: float64(-1 - s), Silent: true})
		} else {
			list = append(list, eta.Hold{Seconds: float64(s)})
		}
	}
	return list
}

// use puts the estimator of a configuration in the place of the one so far; what was learnt stays.
func (o *outlooks) use(e eta.Estimator, learns bool, log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.predictor.Replace(e, learns)
	o.log, o.learns = log, learns
}

// teach tells a room that learns the weights of hours what its store remembers of the last day.
func (r *room) teach(ctx context.Context) error {
	r.mu.Lock()
	due := r.learns && !r.taught
	r.mu.Unlock()
	if !due {
		return nil
	}
	line, ok := r.line.(*admission.Room)
	if !ok {
		return nil
	}
	minutes, err := line.History(ctx, 24*60)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taught = true
	for _, m := range minutes[:max(0, len(minutes)-eta.MaxBuckets/60)] { // those behind are in the snapshot, second by second
		if m.Waiting > 0 {
			r.predictor.Taught(m.At*1e6, m.Admissions, 60)
		}
	}
	return nil
}

// promise is what the holder of a token was promised on joining.
func promise(w *token.Waiting) wait {
	return wait{w.Promised > 0, w.Promised, w.PromisedLow, w.PromisedHigh}
}

// cameTrue holds what somebody was promised on joining against how long it took, in seconds. Waits under a second are not
// judged.
func (r *room) cameTrue(told wait, real float64) {
	if !told.known || real < 1 {
		return
	}
	now, ratio := time.Now(), float64(told.seconds)/real
	r.metrics.etaError.Observe(ratio)
	r.errors.add(now, ratio, false)
	outcome := within // figures are rounded up to whole seconds
	switch {
	case real <= float64(told.low-1):
		outcome = below
	case real > float64(told.high):
		outcome = above
	}
	r.metrics.promises[outcome].Inc()
	r.kept.add(now, 1, outcome != within)
	if r.mu.TryLock() { // one of many: nobody waits for it
		r.predictor.Remind(float64(told.seconds), real)
		r.mu.Unlock()
	}
}
