package bulk

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
)

// Pace is how the global rate is found, between the bounds of Policy: by how jobs fare (Jobs), by how visitors of an origin do
// (People), or by both, when the smaller rate holds. The zero value leaves the rate to the configuration.
type Pace struct {
	Policy adaptive.Policy // Policy.TargetP95 is of jobs' run time, and of the origin's time to first byte
	Begin  int64           // rate with which a store begins that knows none, thousandths
	Jobs   bool
	People string // an origin's id; empty: no regard for visitors
}

// On says whether the rate is to be found at all.
func (p *Pace) On() bool { return p.Jobs || p.People != "" }

const (
	// MaxErrors is the share of failed runs above which a downstream is unhealthy.
	MaxErrors = 0.05
	// early is the share of the target at which jobs give way to visitors: a room that adapts does so at the whole of it.
	early = 0.7
	// silence is after how long without a word from any gateway visitors are taken to be gone.
	silence = 15 * time.Second
)

// pacing is where the search stands. Its text is JSON.
type pacing struct {
	Jobs   adaptive.State `json:"jobs"`
	People adaptive.State `json:"people"`
	Heard  int64          `json:"heard,omitempty"` // when a gateway said something last, µs
}

// MarshalText is the form of the store.
func (s pacing) MarshalText() ([]byte, error) {
	type plain pacing
	return json.Marshal(plain(s))
}

// UnmarshalText reads it.
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

// rate is the one that holds, thousandths a second.
func (s pacing) rate(p *Pace) int64 {
	switch {
	case !p.Jobs:
		return s.People.Rate
	case p.People == "":
		return s.Jobs.Rate
	}
	return min(s.Jobs.Rate, s.People.Rate)
}

// next is one step, once a second. now is Redis's clock in µs or any other that goes on.
func (s pacing) next(p *Pace, now int64, jobs adaptive.Health, people admission.OriginHealth, u adaptive.Usage) pacing {
	for _, c := range []*adaptive.State{&s.Jobs, &s.People} {
		if c.Rate == 0 {
			c.Rate = p.Begin
		}
	}
	if p.Jobs {
		s.Jobs = adaptive.Next(p.Policy, s.Jobs, now, jobs, u)
	}
	if p.People != "" {
		s.giveWay(p.Policy, now, people, u)
	}
	return s
}

// giveWay leaves the least while visitors wait or their origin is unhealthy, halves the rate every second while it nears its target,
// and lets it grow as any adaptive rate does when they are well.
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
		c.At = max(c.At, now) // they may be cut off, and with them those who wait
	case h.Waiting > 0 || level > adaptive.Healthy:
		if level > adaptive.Healthy && c.Level <= adaptive.Healthy {
			c.Ceiling = c.Rate
		}
		c.At, c.Level, c.Rate = max(c.At, now), level, max(p.MinRate, c.Rate/2)
		if h.Waiting > 0 || level == adaptive.Unhealthy {
			c.Rate = p.MinRate
		}
	case level == adaptive.Unknown: // so few visitors do not mind, and do not tell
		*c = adaptive.Next(p, *c, now, adaptive.Health{Requests: adaptive.Enough}, u)
	default:
		h.Span = 0 // jobs do not make visitors' requests
		*c = adaptive.Next(p, *c, now, h.Health, u)
	}
}

// yields says whether jobs have something to give up for visitors.
func (s pacing) yields(p *Pace) bool { return p.People != "" && s.rate(p) > p.Policy.MinRate }

// yield gives it up, as soon as somebody waits.
func (s pacing) yield(p *Pace) pacing {
	s.People.Rate = p.Policy.MinRate
	return s
}

// mergeReports gives what the reports of all processes say of the downstream: of the last seconds or, where these have too few
// runs, of half a minute.
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
