package gateway

import (
	"net/netip"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/recent"
)

// View represents a room for operators.
type View struct {
	Queue  *admission.Room
	File   admission.Policy // of the configuration, without live changes
	Origin string           // its id

	room        *room
	accountKeys [][]byte
	clients     *recent.Clients
}

// Views returns the rooms in the order of the configuration.
func (g *Gateway) Views() []View {
	s := g.state.Load()
	views := make([]View, 0, len(s.rooms))
	for _, r := range s.rooms {
		views = append(views, View{Queue: r.queue, File: r.options.Policy, Origin: r.originID(), room: r, accountKeys: s.options.AccountKeys, clients: g.meters.clients})
	}
	return views
}

// Wait returns the wait estimate of a visitor who joins now.
func (v View) Wait() eta.Estimate { return v.room.forecaster.Room().JoinNow() }

// Simulate returns the future of the queue as it is and with a change; see forecast.Forecaster.
func (v View) Simulate(c forecast.Change) (now, with eta.Outcome, ok bool) {
	return v.room.forecaster.Simulate(c)
}

// WaitError returns the median of announced over actual waits in the last quarter of an hour; false without an admission for which a
// wait was announced.
func (v View) WaitError() (float64, bool) { return v.room.forecaster.Error() }

// WaitCoverage returns the share of admissions in the last quarter of an hour whose wait was in the announced range; false where
// WaitError is.
func (v View) WaitCoverage() (float64, bool) { return v.room.forecaster.Coverage() }

// Guard returns the highest number of tries of a proof of work now, and the accepted proofs and the refused joins by reason of this
// gateway since its start; false without a guard and a join limit.
func (v View) Guard() (number, proofs int64, refused map[string]int64, ok bool) {
	r := v.room
	if !r.mayRequireSolution() && r.options.Policy.Joins == 0 {
		return 0, 0, nil, false
	}
	refused = map[string]int64{}
	for reason, c := range r.metrics.Refused {
		if n := metrics.Value(c); n > 0 {
			refused[reason] = n
		}
	}
	return r.proofEffort(), metrics.Value(r.metrics.Proofs["accepted"]), refused, true
}

// Clients returns the tickets and sessions whose holders received a token of this gateway at an address of a prefix, the newest first,
// at most limit, and the number of all. They are remembered for absence.
func (v View) Clients(prefix netip.Prefix, limit int) (newest []recent.Use, all int) {
	return v.clients.In(v.room.id, prefix, v.Queue.RedisNow(), limit)
}

// ChallengeLevels returns the levels of the challenge that operators can set live.
func (v View) ChallengeLevels() []string { return v.room.pages.levels() }

// Account returns the ids that places of an account have in the room; none where the room does not keep one place for each account.
func (v View) Account(name string) (ids []admission.ID) {
	if v.room.identity == nil {
		return nil
	}
	for _, base := range v.room.accountIDs(v.accountKeys, []byte(name)) {
		ids = append(ids, base.Places()...)
	}
	return ids
}

// Page returns the page of the room's visitors.
func (v View) Page() *page.Page { return v.room.page() }

// OriginStats returns the p95 time to first byte of an origin in seconds and its share of failed requests, over the last minute; zeros
// without requests.
func (g *Gateway) OriginStats(id string) (p95, failed float64) {
	if u := g.state.Load().origins[id]; u != nil {
		return u.LastMinute(time.Now())
	}
	return 0, 0
}

// figures are what the collector of metrics reads of a gateway.
type figures struct{ *Gateway }

func (f figures) EachOrigin(each func(id string, stats proxy.Stats)) {
	for id, u := range f.state.Load().origins {
		each(id, u.Stats())
	}
}

func (f figures) EachRoom(each func(*metrics.RoomFigures)) {
	for _, r := range f.state.Load().rooms {
		each(&metrics.RoomFigures{
			ID: r.id, Queue: r.queue, Forecaster: r.forecaster, Policy: &r.options.Policy, Model: r.options.Estimator == "model", ProofEffort: r.proofEffort(),
		})
	}
}

// EachQueue calls each with the queue of each room.
func EachQueue(g *Gateway, each func(*admission.Room)) {
	for _, r := range g.state.Load().rooms {
		each(r.queue)
	}
}
