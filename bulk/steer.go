package bulk

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// recent measures the health of this process's runs, second by second.
type recent struct{ adaptive.Recent }

// ran counts a run by its outcome. Refusals, errors and timeouts of the downstream are failures. A permanent error is
// a response. Runs that never reached the downstream do not count.
func (r *recent) ran(a *store.Ack) {
	switch a.Verdict {
	case store.Done, store.Rejected:
		r.Add(a.Took, false)
	case store.Retry, store.Throttled, store.Held:
		r.Add(a.Took, true)
	}
}

// steerStore is what rate control uses of the store.
type steerStore interface {
	Steer(ctx context.Context, report string, fence, rate int64, control string) (store.Steering, error)
}

// People connects bulk jobs and the visitors of an origin; *admission.Core implements it.
type People interface {
	// OriginHealth returns the health of visitors' requests.
	OriginHealth(ctx context.Context, origin string) (admission.OriginHealth, error)
	// ReportJobs reports to gateways that jobs run which yield to visitors.
	ReportJobs(ctx context.Context, origin string) error
}

var _ People = (*admission.Core)(nil)

// started is the number of jobs started up to a time.
type started struct{ at, jobs int64 }

// startRate returns how many jobs a second were started recently; 0 if unknown. It covers as many seconds as 15 jobs
// take at that rate (thousandths), which limits the effect of chance.
func startRate(starts []started, rate int64) float64 {
	if len(starts) == 0 {
		return 0
	}
	last := starts[len(starts)-1]
	span := min(int64(adaptive.LongSpan), max(adaptive.ShortSpan, 15_000/max(1, rate)))
	for i := len(starts) - 1; i >= 0; i-- {
		if dt := last.at - starts[i].at; dt >= span*1e6-500_000 {
			return float64(last.jobs-starts[i].jobs) / (float64(dt) / 1e6)
		}
	}
	return 0
}

// steerer controls the global rate, together with the other processes.
type steerer struct {
	store   steerStore
	pace    *atomic.Pointer[Pace]
	people  People
	recent  *recent
	metrics *Metrics
	log     *slog.Logger
	role    *role

	fence  int64
	state  pacing
	starts []started
	found  int64 // last rate that any process set
	pinned bool  // an operator has set the rate
	silent bool  // no gateway reports, which was logged
}

// checksPerStep is how many times per step waiting visitors are checked. Steps are a second apart.
const checksPerStep = 5

func (s *steerer) run(ctx context.Context) {
	for n := 1; sleep.For(ctx, time.Second/checksPerStep); n++ {
		do := s.yieldAtOnce
		if n%checksPerStep == 0 {
			do = s.steer
		}
		if err := do(ctx); err != nil {
			s.role.failed(ctx, err)
			continue
		}
		s.role.ok()
	}
}

// steer is one step; the leader sets the rate.
func (s *steerer) steer(ctx context.Context) error {
	text, _ := s.recent.Turn().MarshalText() // never fails
	report, p := string(text), s.pace.Load()
	if !p.On() {
		s.fence = 0
		s.metrics.steered(nil)
		return nil
	}
	got, err := s.store.Steer(ctx, report, s.fence, 0, "")
	if err != nil {
		return err
	}
	if got.Found > 0 {
		s.found = got.Found
	}
	var people admission.OriginHealth
	if p.People != "" {
		if people, err = s.people.OriginHealth(ctx, p.People); err != nil {
			return err
		}
		s.noteReports(p.People, people.Gateways > 0)
	}
	s.starts = append(s.starts, started{got.Now, got.Starts})
	if len(s.starts) > 2*adaptive.LongSpan {
		s.starts = s.starts[adaptive.LongSpan:]
	}
	jobs, err := mergeReports(got.Reports)
	if err != nil {
		return fmt.Errorf("cannot read the reports of other processes: %w", err)
	}
	if got.Fence != 0 && got.Fence != s.fence {
		s.begin(got.Control)
	}
	s.fence, s.pinned = got.Fence, got.Pinned
	s.metrics.steered(&steered{jobs: jobs, people: people, leader: s.fence != 0, found: s.found, pinned: got.Pinned})
	if s.fence == 0 || got.Pinned {
		return nil
	}
	if n := len(s.starts); s.state.yields(p) && n > 1 && s.starts[n-1].jobs > s.starts[n-2].jobs {
		if err := s.people.ReportJobs(ctx, p.People); err != nil {
			return err
		}
	}
	s.state = s.state.next(p, got.Now, jobs, people, adaptive.Usage{Rate: startRate(s.starts, s.state.rate(p)), Wanted: got.Queued > 0})
	return s.set(ctx, p)
}

// set writes the rate and the state of rate control to the store.
func (s *steerer) set(ctx context.Context, p *Pace) error {
	text, err := s.state.MarshalText()
	if err != nil {
		return err
	}
	s.found = s.state.rate(p)
	_, err = s.store.Steer(ctx, "", s.fence, s.found, string(text))
	return err
}

// yieldAtOnce yields when a visitor begins to wait for the origin.
func (s *steerer) yieldAtOnce(ctx context.Context) error {
	p := s.pace.Load()
	if s.fence == 0 || s.pinned || !s.state.yields(p) {
		return nil
	}
	people, err := s.people.OriginHealth(ctx, p.People)
	if err != nil || people.Waiting == 0 {
		return err
	}
	s.state = s.state.yield(p)
	return s.set(ctx, p)
}

// begin continues from the last leader's state.
func (s *steerer) begin(text string) {
	s.state = pacing{}
	if text != "" {
		if err := s.state.UnmarshalText([]byte(text)); err != nil {
			s.log.Warn("cannot read the state of rate control; starting from the initial rate", "error", err)
		}
	}
	// The store lost the state: use the last one known here.
	for _, c := range []*adaptive.State{&s.state.Jobs, &s.state.People} {
		c.Rate = cmp.Or(c.Rate, s.found)
	}
}

// noteReports logs when reports of gateways stop and resume.
func (s *steerer) noteReports(origin string, some bool) {
	switch {
	case some && s.silent:
		s.log.Info("gateways report again", "origin", origin)
	case !some && !s.silent:
		s.log.Info("no gateway reports people_first.origin: it has no visitors, or the gateways use another store or prefix", "origin", origin)
	}
	s.silent = !some
}
