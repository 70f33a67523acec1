package forecast

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/pace"
)

// Settings are the settings of a room's forecasts.
type Settings struct {
	Room       string
	Policy     admission.Policy // of the configuration, without live changes
	PollBudget int              // polls per second of all waiting visitors; 0: no limit
	Estimator  eta.Estimator
	Learns     bool         // the estimator uses the weights of hours that were measured
	Log        *slog.Logger // nil: nothing is logged
}

// Forecaster keeps the forecast of a room's newest snapshot and measures the accuracy of forecasts. All configurations of a
// room share it. Its methods are safe for concurrent use.
type Forecaster struct {
	queue  *admission.Room
	latest atomic.Pointer[Room]

	mu        sync.Mutex // held while the next forecast is computed
	settings  Settings
	predictor *eta.Predictor
	primed    bool // by the store's history
	joins     guard.Rate
	fallback  string // of the last forecast
	input     input

	accuracy accuracy
}

// input is memory for an eta.Input.
type input struct {
	buckets        []eta.Bucket
	passed, sample []eta.AgeCount
	holds          []eta.Hold
}

// Room is the forecast of one snapshot.
type Room struct {
	Snapshot *admission.Snapshot
	Waits    *eta.Forecast // by how many tickets are ahead; nil while the snapshot is unknown
	JoinRate float64       // joins a second
	Events
	polls    pace.Plan
	prequeue pace.Gathering // before the opening of a lottery; Left is computed for each ticket
}

// New returns a forecaster. Use has to be called before its other methods.
func New(e eta.Estimator, learns bool) *Forecaster {
	return &Forecaster{predictor: eta.NewPredictor(e, learns)}
}

// Use sets the queue, which is the same for all configurations of a room, and replaces the settings. What was learnt is kept.
func (f *Forecaster) Use(queue *admission.Room, s Settings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queue == nil {
		f.queue = queue
	}
	f.predictor.Replace(s.Estimator, s.Learns)
	f.settings = s
}

// Room returns the forecast of the newest snapshot. The first caller computes it; callers that arrive meanwhile get the
// previous one.
func (f *Forecaster) Room() *Room {
	s := f.queue.Snapshot()
	r := f.latest.Load()
	if r != nil && r.Snapshot == s {
		return r
	}
	if r != nil && !f.mu.TryLock() {
		return r
	}
	if r == nil {
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	if r = f.latest.Load(); r != nil && r.Snapshot == s {
		return r
	}
	r = f.compute(s)
	f.latest.Store(r)
	return r
}

// compute returns the forecast of a snapshot; mu is held.
func (f *Forecaster) compute(s *admission.Snapshot) *Room {
	r := &Room{Snapshot: s, Waits: f.waits(s)}
	if s.Known {
		r.JoinRate = f.joins.Observe(s.RedisTime, s.Joins)
	}
	var tail float64
	if e := r.Waits.At(s.Waiting); e.Known {
		tail = e.Seconds
	}
	budget := f.settings.PollBudget
	r.polls = pace.New(s.Policy.LongestPoll(), budget, s.Waiting, f.queue.Arriving(), tail)
	if s.Gathering() {
		r.prequeue = pace.Gathering{
			Spread: s.Policy.Spread(s.Prequeued).Seconds(), People: s.Prequeued, Budget: budget, Quarter: s.Policy.Absence.Seconds() / 4,
		}
	}
	r.Events = f.events(s)
	return r
}

// waits returns the estimator's forecast; mu is held.
func (f *Forecaster) waits(s *admission.Snapshot) *eta.Forecast {
	if !s.Known {
		return nil
	}
	forecast := f.predictor.Forecast(f.room(s, &f.input))
	f.noteFallback(forecast.Fallback())
	return forecast
}

// room returns the input of estimates for a snapshot; mu is held.
func (f *Forecaster) room(s *admission.Snapshot, in *input) eta.Input {
	in.read(s)
	hold := s.Hold
	if p := &s.Policy; p.Method == admission.Lottery && p.OpensAt > s.RedisTime {
		hold = max(hold, s.RoomTime+p.OpensAt-s.RedisTime)
	}
	rate, set := float64(f.queue.Expected())/1000, float64(s.Policy.Rate)/1000
	switch {
	case s.Policy.Closed(), s.Policy.Method == admission.Passthrough: // nobody is admitted from the queue
		rate, set = 0, 0
	case s.Policy.Adapts():
		set = 0
	}
	return eta.Input{
		Now: s.RoomTime, Wall: s.RedisTime, Since: s.Since, Hold: hold, Buckets: in.buckets,
		Rate: rate, Set: set, Schedule: f.rates(s), Paused: s.Policy.Paused,
		Waiting: s.Waiting, Parked: s.Parked, MaxActive: s.Policy.MaxActive, Active: s.Admitted + s.Active,
		Came: s.Came, Gone: s.Gone, Admitted: s.Admissions, Oldest: s.Oldest, Tail: s.Time, Ahead: f.queue.Ahead,
		Passed: in.passed, Sample: in.sample, Holds: in.holds,
		OrderAt: func(ahead int64) int64 { return max(s.OrderAt(ahead), s.Drawn) }, // a drawn ticket has waited since the opening
	}
}

// noteFallback logs when the use of the model begins or ends.
func (f *Forecaster) noteFallback(reason string) {
	if reason == f.fallback {
		return
	}
	f.fallback = reason
	switch log := f.settings.Log; {
	case log == nil:
	case reason == eta.FallbackNone:
		log.Info("the model is used for estimates", "room", f.settings.Room)
	default:
		log.Warn("the model is not used for estimates; window is", "room", f.settings.Room, "reason", reason)
	}
}

// Model returns the number of recent ranges that contained the actual wait, the number of all, and the reason why the model is not in
// use.
func (f *Forecaster) Model() (held, all int, fallback string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held, all = f.predictor.Held()
	return held, all, f.fallback
}

// read converts the counts of a snapshot.
func (in *input) read(s *admission.Snapshot) {
	in.buckets = in.buckets[:0]
	for _, f := range s.Flow {
		in.buckets = append(in.buckets, eta.Bucket{Second: f.Second, Admitted: f.Admitted, Busy: float64(f.Busy) / 1000})
	}
	in.passed, in.sample = appendAges(in.passed[:0], s.Passed), appendAges(in.sample[:0], s.Sample)
	in.holds = in.holds[:0]
	for _, seconds := range s.Holds {
		if seconds < 0 {
			in.holds = append(in.holds, eta.Hold{Seconds: float64(-1 - seconds), Silent: true})
		} else {
			in.holds = append(in.holds, eta.Hold{Seconds: float64(seconds)})
		}
	}
}

func appendAges(list []eta.AgeCount, counts []admission.AgeCount) []eta.AgeCount {
	for _, c := range counts {
		list = append(list, eta.AgeCount{Bucket: int(c.Bucket), Present: float64(c.Present) / 1000, Absent: float64(c.Absent) / 1000, Exposure: float64(c.Exposure) / 1000})
	}
	return list
}

// Prime passes the history of the last day to an estimator that learns hourly weights. It reads the store once.
func (f *Forecaster) Prime(ctx context.Context) error {
	f.mu.Lock()
	due := f.settings.Learns && !f.primed
	f.mu.Unlock()
	if !due {
		return nil
	}
	minutes, err := f.queue.History(ctx, 24*60)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.primed = true
	for _, m := range minutes[:max(0, len(minutes)-eta.MaxBuckets/60)] { // the snapshot has the later ones by the second
		if m.Waiting > 0 {
			f.predictor.AddMinute(m.At*1e6, m.Admissions, 60)
		}
	}
	return nil
}
