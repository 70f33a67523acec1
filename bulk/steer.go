package bulk

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/bulk/store"
)

// recent measures how the runs of this process fare, second by second.
type recent struct{ adaptive.Recent }

// ran counts a run by its end. What a downstream refused, answered wrongly or not at all failed; one that it judged to be bad
// for good was answered. What never reached it does not count.
func (r *recent) ran(a *store.Ack) {
	switch a.Verdict {
	case store.Done, store.Rejected:
		r.Add(a.Took, false)
	case store.Retry, store.Throttled, store.Held:
		r.Add(a.Took, true)
	}
}

// steerStore is what the search for the rate needs of the store.
type steerStore interface {
	Steer(ctx context.Context, report string, fence, rate int64, control string) (store.Steering, error)
}

// People is how bulk work and the visitors of an origin know of each other; *admission.Core is one.
type People interface {
	// OriginHealth is how visitors fare.
	OriginHealth(ctx context.Context, origin string) (admission.OriginHealth, error)
	// TellJobs tells gateways that jobs run which give way.
	TellJobs(ctx context.Context, origin string) error
}

var _ People = (*admission.Core)(nil)

// started is how many jobs had been started at a time.
type started struct{ at, jobs int64 }

// startRate is how many jobs a second were started of late; 0 where that is not known. It looks back on as many seconds as it
// takes for 15 at that rate (thousandths), so that chance says little.
func startRate(lately []started, rate int64) float64 {
	if len(lately) == 0 {
		return 0
	}
	last := lately[len(lately)-1]
	span := min(int64(adaptive.LongSpan), max(adaptive.ShortSpan, 15_000/max(1, rate)))
	for i := len(lately) - 1; i >= 0; i-- {
		if dt := last.at - lately[i].at; dt >= span*1e6-500_000 {
			return float64(last.jobs-lately[i].jobs) / (float64(dt) / 1e6)
		}
	}
	return 0
}

// steerer finds the global rate, together with the other processes.
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
	lately []started
	found  int64 // the last rate that any process found
	pinned bool  // operators set the rate
	mute   bool  // gateways say nothing, which was logged
}

// Visitors in line are looked for so much more often than the rate is found, once a second.
const glances = 5

func (s *steerer) run(ctx context.Context) {
	for n := 1; sleep(ctx, time.Second/glances); n++ {
		look := s.glance
		if n%glances == 0 {
			look = s.steer
		}
		if err := look(ctx); err != nil {
			s.role.failed(ctx, err)
			continue
		}
		s.role.ok()
	}
}

// steer is one look; the leader sets the rate.
func (s *steerer) steer(ctx context.Context) error {
	said, _ := s.recent.Turn().MarshalText() // never fails
	report, p := string(said), s.pace.Load()
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
		s.hearing(p.People, people.Gateways > 0)
	}
	s.lately = append(s.lately, started{got.Now, got.Starts})
	if len(s.lately) > 2*adaptive.LongSpan {
		s.lately = s.lately[adaptive.LongSpan:]
	}
	jobs, err := mergeReports(got.Reports)
	if err != nil {
		return fmt.Errorf("reports of other processes: %w", err)
	}
	if got.Fence != 0 && got.Fence != s.fence {
		s.begin(got.Control)
	}
	s.fence, s.pinned = got.Fence, got.Pinned
	s.metrics.steered(&steered{jobs: jobs, people: people, leader: s.fence != 0, found: s.found, pinned: got.Pinned})
	if s.fence == 0 || got.Pinned {
		return nil
	}
	if n := len(s.lately); s.state.yields(p) && n > 1 && s.lately[n-1].jobs > s.lately[n-2].jobs {
		if err := s.people.TellJobs(ctx, p.People); err != nil {
			return err
		}
	}
	s.state = s.state.next(p, got.Now, jobs, people, adaptive.Usage{Rate: startRate(s.lately, s.state.rate(p)), Wanted: got.Queued > 0})
	return s.set(ctx, p)
}

// set tells the store what was found, and where the search stands.
func (s *steerer) set(ctx context.Context, p *Pace) error {
	text, err := s.state.MarshalText()
	if err != nil {
		return err
	}
	s.found = s.state.rate(p)
	_, err = s.store.Steer(ctx, "", s.fence, s.found, string(text))
	return err
}

// glance gives way at once where somebody began to wait for the origin.
func (s *steerer) glance(ctx context.Context) error {
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

// begin goes on where the last leader stood.
func (s *steerer) begin(text string) {
	s.state = pacing{}
	if text != "" {
		if err := s.state.UnmarshalText([]byte(text)); err != nil {
			s.log.Warn("the search for the rate begins anew", "error", err)
		}
	}
	// A store that lost it: what was known here last.
	for _, c := range []*adaptive.State{&s.state.Jobs, &s.state.People} {
		if c.Rate == 0 {
			c.Rate = s.found
		}
	}
}

// hearing logs when gateways fall silent, and when they are heard again.
func (s *steerer) hearing(origin string, heard bool) {
	switch {
	case heard && s.mute:
		s.log.Info("gateways are heard again", "origin", origin)
	case !heard && !s.mute:
		s.log.Info("no gateway says anything of people_first.origin: it has no visitors, or the gateways have another store or prefix", "origin", origin)
	}
	s.mute = !heard
}
