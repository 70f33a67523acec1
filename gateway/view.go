package gateway

import (
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
)

// View is what operators see of a room beside its line.
type View struct {
	Line   *admission.Room
	File   admission.Policy // by the configuration, without live changes
	Origin string           // its id

	room *room
}

// Views gives the rooms in the order of the configuration.
func (g *Gateway) Views() []View {
	s := g.state.Load()
	views := make([]View, 0, len(s.rooms))
	for _, r := range s.rooms {
		if l, ok := r.line.(*admission.Room); ok {
			views = append(views, View{Line: l, File: r.options.Policy, Origin: r.origin.ID(), room: r})
		}
	}
	return views
}

// Wait forecasts how long somebody who joins now would wait.
func (v View) Wait() eta.Estimate {
	o := v.room.outlook()
	e := o.forecast.At(o.snapshot.Waiting)
	if o.snapshot.Known && o.snapshot.Waiting == 0 && !o.snapshot.Policy.Paused {
		e = eta.Estimate{Known: true}
	}
	least := o.snapshot.Policy.MinWait.Seconds()
	e.Seconds, e.Low, e.High = max(e.Seconds, least), max(e.Low, least), max(e.High, least)
	return e
}

// WaitError is the median of promised over real waits in the last quarter of an hour; false while nobody was let in who had been promised anything.
func (v View) WaitError() (float64, bool) {
	ratio, _, ok := v.room.errors.look(time.Now(), errorWindow, 0.5)
	return ratio, ok
}

// errorWindow is how far back the errors of estimates count for operators.
const errorWindow = 15 * time.Minute

// WaitCoverage is the share of those let in in the last quarter of an hour whose wait lay within the range that they were
// promised on joining; false where WaitError is.
func (v View) WaitCoverage() (float64, bool) {
	_, missed, ok := v.room.kept.look(time.Now(), errorWindow, 0.5)
	return 1 - missed, ok
}

// Guard is what joining costs: tries that a proof of work takes at most now, proofs that made a place, and joins that were
// given none, by reason, on this gateway since it started; false where a place costs nothing.
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
	return r.numberNow(), counted(r.metrics.proofs["accepted"]), refused, true
}

// OriginStats gives an origin's p95 time to first byte (seconds) and share of failed requests over the last minute; zeros
// while it was asked nothing.
func (g *Gateway) OriginStats(id string) (p95, failed float64) {
	if u := g.state.Load().origins[id]; u != nil {
		p95, failed, _ = u.recent.look(time.Now(), window, 0.95)
	}
	return p95, failed
}
