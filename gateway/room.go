package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/token"
)

// line is what the request path asks of a room's line.
type line interface {
	Snapshot() *admission.Snapshot
	RedisNow() int64
	Stepped() (by, at int64)
	Now() int64
	Age() time.Duration
	Ahead(order int64) int64
	Arriving() int64
	UnheardBefore(order int64) int64
	Expected() int64
	Settled(admission.ID) bool
	Join(context.Context, admission.Arrival) (admission.Standing, admission.Refusal, error)
	Check(context.Context, admission.Ticket) (admission.Standing, error)
	Claim(context.Context, admission.Ticket) (admission.Standing, error)
	Leave(context.Context, admission.Ticket) error
	Refuses() admission.Refusal
	Charge(context.Context) bool
	Lot(*admission.Draw) (commitment, seed [32]byte, known bool)
	DrawsApart() bool
	sessions
}

// sessions is what the request path asks about those who were let in.
type sessions interface {
	Touch(sid admission.ID, off bool)
	Revoked(sid admission.ID) bool
	Revoke(sid admission.ID)
}

var _ line = (*admission.Room)(nil)

// room is a configured room. It is immutable but for its outlook, which is shared by all configurations of the room.
type room struct {
	id      string
	index   int // in state.rooms
	line    line
	origin  *upstream
	options Room
	page    *page.Page
	plain   client.CookieNames
	secure  client.CookieNames
	bypass  []route.Bypass
	cors    map[string]bool
	metrics *roomMetrics
	proofs  *guard.Proofs // nil where none are asked for
	// identity is nil where places are no accounts'.
	identity *identified
	// preflights is what the room's preflights are metered by.
	preflights token.ID

	estimator eta.Estimator
	*outlooks
}

func (r *room) names(secure bool) *client.CookieNames {
	if secure {
		return &r.secure
	}
	return &r.plain
}

// prospect is where a ticket stands and what its holder is told to do.
type prospect struct {
	position int64 // from 1; 0: not known
	wait     wait
	interval float64 // s
	most     float64 // s; the longest that the interval may be

	gathering *pace.Gathering // before the opening of a lottery
}

// poll is when to poll next, in seconds.
func (p *prospect) poll(random float64) int {
	if p.gathering != nil {
		return p.gathering.Next(random)
	}
	return pace.Spread(p.interval, p.most, random)
}

// heldFor shortens an interval so that a ticket that was checked just now stays present until the poll.
func heldFor(t *admission.Ticket, seconds int) int {
	if t.Hold <= 0 {
		return seconds
	}
	return max(1, min(seconds, int((t.Hold-admission.HoldSlack)/time.Second)))
}

// prospect of a ticket of that order. It is the same on every gateway that has read the same snapshot.
func (r *room) prospect(o *outlook, order int64) prospect {
	var p prospect
	if o.gathers && order == 0 {
		g := o.gathering
		g.Left = float64(o.snapshot.Policy.OpensAt-r.line.RedisNow()) / 1e6
		p.gathering = &g
		return p
	}
	if !o.snapshot.Known || order == 0 {
		p.interval, p.most = o.pace.Interval(0, 0, false), o.pace.Most(0, false)
		return p
	}
	ahead := max(r.line.Ahead(order), 0) + r.line.UnheardBefore(order)
	p.position = ahead + 1
	if e := o.forecast.At(ahead); e.Known {
		least := int64(0)
		if floor := o.snapshot.Policy.MinWait; floor > 0 {
			least = max(0, (max(order, o.snapshot.Drawn)+floor.Microseconds()-r.line.Now()+999_999)/1e6)
		}
		p.wait = wait{true, max(ceil(e.Seconds), least), max(ceil(e.Low), least), max(ceil(e.High), least)}
	}
	p.interval, p.most = o.pace.Interval(ahead, float64(p.wait.seconds), p.wait.known), o.pace.Most(float64(p.wait.seconds), p.wait.known)
	return p
}

func ceil(f float64) int64 {
	n := int64(f)
	if float64(n) < f {
		n++
	}
	return n
}

// firstPoll is when the holder of a new ticket is to poll first, in seconds.
func (r *room) firstPoll(o *outlook, w *token.Waiting, p *prospect, random float64) int {
	if p.gathering != nil && w.Epoch != "" {
		return p.poll(random)
	}
	if p.gathering != nil { // what nobody has confirmed is not drawn
		return min(o.pace.First(0, 0, false, random), max(1, int(p.gathering.Left)))
	}
	if w.Epoch != "" { // it is enrolled, and polls to be let in
		return o.pace.First(0, float64(p.wait.seconds), p.wait.known, random)
	}
	return o.pace.First(r.line.Arriving(), float64(p.wait.seconds), p.wait.known, random)
}

// guarded reports whether a place in the room, or the use of one, is limited by more than the line.
func (r *room) guarded(policy *admission.Policy) bool {
	return r.identity != nil || r.options.Guard.asks() || policy.Joins > 0 || r.options.SessionRequests.N > 0
}

// preflightsOf returns the id by which a room's preflights are metered.
func preflightsOf(room string) token.ID {
	sum := sha256.Sum256([]byte("preflights\x00" + room))
	return token.ID(sum[:16])
}

// newRoom makes a room ready. keys are those of its jwks_url, nil without one. old is the room of that id so far, or nil.
func newRoom(o Room, l line, origin *upstream, m *Metrics, keys *accountKeys, old *room, idKey []byte) (*room, error) {
	if len(o.Hosts) == 0 {
		o.Hosts = []string{"*"}
	}
	if len(o.Paths) == 0 {
		o.Paths = []string{"/"}
	}
	if c := &o.Guard.Captcha; c.Provider != "" {
		if len(c.Hosts) == 0 {
			c.Hosts = o.Hosts
		}
		if slices.Contains(c.Hosts, "*") {
			return nil, fmt.Errorf("rooms.%s.guard.captcha.hosts: want the hosts that answers may be given on: the room's hosts name every one", o.ID)
		}
	}
	if o.PageStatus == 0 {
		o.PageStatus = 200
	}
	if o.Estimator == "" {
		o.Estimator = "window"
	}
	r := &room{
		id: o.ID, line: l, origin: origin, options: o,
		plain: client.NamesOf(o.ID, false), secure: client.NamesOf(o.ID, true),
		cors: map[string]bool{}, metrics: m.room(o.ID), preflights: preflightsOf(o.ID),
	}
	for _, site := range o.CORSOrigins {
		r.cors[site] = true
	}
	if o.Identity.OnePlace {
		r.identity = &identified{Identity: o.Identity, header: strings.ToLower(o.Identity.Header), keys: keys}
	}
	var err error
	if r.bypass, err = route.NewBypass(o.Bypass); err != nil {
		return nil, fmt.Errorf("rooms.%s.%w", o.ID, err)
	}
	o.Page.Room, o.Page.Absence = o.ID, o.Policy.Absence
	if r.options.Guard.asks() {
		o.Page.Guard.Script = func(lang string) string { return route.Own + "/" + scripts().Name(lang) }
		o.Page.Guard.Scripts, o.Page.Guard.Frames = o.Guard.Captcha.Sources()
	}
	if p := o.Guard.Proof; p != "" && p != ProofNone {
		r.proofs = guard.NewProofs(derive(idKey, "altcha", o.ID))
	}
	if r.page, err = page.New(o.Page); err != nil {
		return nil, fmt.Errorf("rooms.%s.page: %w", o.ID, err)
	}
	r.estimator, err = eta.New(o.Estimator, o.ETA)
	if err != nil {
		return nil, fmt.Errorf("rooms.%s.eta.estimator: %w", o.ID, err)
	}
	if old != nil {
		r.outlooks = old.outlooks // Reload has it use the estimator
	} else {
		r.outlooks = &outlooks{predictor: eta.NewPredictor(r.estimator, o.LearnWeights), learns: o.LearnWeights}
	}
	return r, nil
}
