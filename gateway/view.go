package gateway

import (
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
)

// View is what operators see of a room beside its queue.
type View struct {
	Line   *admission.Room
	File   admission.Policy // by the configuration, without live changes
	Origin string           // its id

	room *room
}

// Views returns the rooms in the order of the configuration.
func (g *Gateway) Views() []View {
	s := g.state.Load()
	views := make([]View, 0, len(s.rooms))
	for _, r := range s.rooms {
		views = append(views, View{Line: r.queue, File: r.options.Policy, Origin: r.origin.ID(), room: r})
	}
	return views
}

// Wait returns the wait estimate of somebody who joins now.
func (v View) Wait() eta.Estimate { return v.room.forecaster.Room().JoinNow() }

// WaitError returns the median of announced over real waits in the last quarter of an hour; false while nobody was admitted to
// whom a wait had been announced.
func (v View) WaitError() (float64, bool) { return v.room.forecaster.Error() }

// WaitCoverage returns the share of those admitted in the last quarter of an hour whose wait was in the range that was announced
// on joining; false where WaitError is.
func (v View) WaitCoverage() (float64, bool) { return v.room.forecaster.Coverage() }

// Guard returns what joining costs: how many tries a proof of work takes at most now, how many proofs made a ticket, and how many
// joins were refused, by reason, on this gateway since it started; false where a ticket costs nothing.
func (v View) Guard() (number, proofs int64, refused map[string]int64, ok bool) {
	r := v.room
	if !r.options.Guard.asks() && r.options.Policy.Joins == 0 {
		return 0, 0, nil, false
	}
	refused = map[string]int64{}
	for reason, c := range r.metrics.refused {
		if n := counted(c); n > 0 {
			refused[reason] = n
		}
	}
	return r.proofEffort(), counted(r.metrics.proofs["accepted"]), refused, true
}

// OriginStats returns an origin's p95 time to first byte (seconds) and share of failed requests over the last minute; zeros while
// it was sent nothing.
func (g *Gateway) OriginStats(id string) (p95, failed float64) {
	if u := g.state.Load().origins[id]; u != nil {
		p95, failed, _ = u.recent.Quantile(time.Now(), time.Minute, 0.95)
	}
	return p95, failed
}
