package bulk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
)

// Pace configures rate control of the global rate within the bounds of Policy: by the health of jobs (Jobs), of the
// visitors of an origin (People), or of both, in which case the smaller rate applies. The zero value leaves the rate
// to the configuration.
type Pace struct {
	Policy adaptive.Policy // TargetP95 applies to the run time of jobs and to the origin's time to first byte
	Begin  int64           // initial rate, thousandths
	Jobs   bool
	People string // id of the origin whose visitors jobs yield to; empty: none
}

// On reports whether rate control is enabled.
func (p *Pace) On() bool { return p.Jobs || p.People != "" }

const (
	// MaxErrors is the share of failed runs above which a downstream is unhealthy.
	MaxErrors = 0.05
	// early is the share of the target at which jobs yield to visitors: an adaptive room reacts at the target itself.
	early = 0.7
	// silence is how long after the last report of a gateway the origin is taken to have no visitors.
	silence = 15 * time.Second
)

// pacing is the state of rate control. Its text is JSON.
type pacing struct {
	Jobs   adaptive.State `json:"jobs"`
	People adaptive.State `json:"people"`
	Heard  int64          `json:"heard,omitempty"` // last report of a gateway, µs
}

// MarshalText returns the form in which the store keeps the state.
func (s pacing) MarshalText() ([]byte, error) {
	type plain pacing
	return json.Marshal(plain(s))
}

// UnmarshalText parses it.
func (s *pacing) UnmarshalText(text []byte) error {
	if len(text) > 4*adaptive.MostState {
		return fmt.Errorf("%w: %d bytes", adaptive.ErrState, len(text))
	}
	type plain pacing
	var got plain
	if err := json.Unmarshal(text, &got); err != nil {
		return fmt.Errorf("%w: %w", adaptive.ErrState, err)
	}
	*s = pacing(got)
	return nil
}

// rate returns the rate to apply, thousandths a second.
func (s pacing) rate(p *Pace) int64 {
	switch {
	case !p.Jobs:
		return s.People.Rate
	case p.People == "":
		return s.Jobs.Rate
	}
	return min(s.Jobs.Rate, s.People.Rate)
}

// next is one step, once a second. now is Redis's clock in µs, or any other that advances.
func (s pacing) next(p *Pace, now int64, jobs adaptive.Health, people admission.OriginHealth, u adaptive.Usage) pacing {
	for _, c := range []*adaptive.State{&s.Jobs, &s.People} {
		c.Rate = cmp.Or(c.Rate, p.Begin)
	}
	if p.Jobs {
		s.Jobs = adaptive.Next(p.Policy, s.Jobs, now, jobs, u)
	}
	if p.People != "" {
		s.giveWay(p.Policy, now, people, u)
	}
	return s
}

// giveWay lowers the rate to the minimum while visitors wait or their origin is unhealthy, halves it every second
// while the origin nears its target, and otherwise lets it grow as any adaptive rate.
func (s *pacing) giveWay(p adaptive.Policy, now int64, h admission.OriginHealth, u adaptive.Usage) {
	p.Mode, p.TargetP95 = adaptive.ModeGradient, time.Duration(early*float64(p.TargetP95))
	c := &s.People
	c.Rate = max(p.MinRate, min(p.MaxRate, c.Rate))
	if h.Gateways > 0 || s.Heard == 0 || s.Heard > now {
		s.Heard = now
	}
	level := p.Level(h.Health)
	switch {
	case h.Gateways == 0 && now-s.Heard < silence.Microseconds():
		c.At = max(c.At, now) // gateways may be cut off, with visitors waiting
	case h.Waiting > 0 || level > adaptive.Healthy:
		if level > adaptive.Healthy && c.Level <= adaptive.Healthy {
			c.Ceiling = c.Rate
		}
		c.At, c.Level, c.Rate = max(c.At, now), level, max(p.MinRate, c.Rate/2)
		if h.Waiting > 0 || level == adaptive.Unhealthy {
			c.Rate = p.MinRate
		}
	case level == adaptive.Unknown: // too few visitors to measure
		*c = adaptive.Next(p, *c, now, adaptive.Health{Requests: adaptive.Enough}, u)
	default:
		h.Span = 0 // the rate of jobs does not determine visitors' requests
		*c = adaptive.Next(p, *c, now, h.Health, u)
	}
}

// yields reports whether jobs can still yield to visitors.
func (s pacing) yields(p *Pace) bool { return p.People != "" && s.rate(p) > p.Policy.MinRate }

// yield returns the state with the rate for visitors lowered to the minimum, for the moment at which a visitor begins to wait.
func (s pacing) yield(p *Pace) pacing {
	s.People.Rate = p.Policy.MinRate
	return s
}

// mergeReports returns the health of the downstream from the reports of all processes: of the last seconds or, with
// too few runs, of half a minute.
func mergeReports(reports []string) (adaptive.Health, error) {
	var all adaptive.Report
	for _, text := range reports {
		var report adaptive.Report
		if err := report.UnmarshalText([]byte(text)); err != nil {
			return adaptive.Health{}, err
		}
		all.Merge(&report)
	}
	return all.Health(), nil
}
