package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/board"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/facts"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/published"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/upstream"
	"github.com/anteroom/anteroom/token"
)

// ticketStore has the calls of requests about tickets.
type ticketStore interface {
	Join(context.Context, admission.Arrival) (admission.Standing, admission.Refusal, error)
	Check(context.Context, admission.Ticket) (admission.Standing, error)
	Claim(context.Context, admission.Ticket) (admission.Standing, error)
	Leave(context.Context, admission.Ticket) error
}

// sessionStore has the calls of requests about sessions.
type sessionStore interface {
	Touch(sid admission.ID, off bool)
	Alive(ctx context.Context, sid admission.ID) (alive, sure bool)
	Revoked(sid admission.ID) bool
	Revoke(sid admission.ID)
}

// clock is Redis's clock as requests read it. Stepped returns by how much it was set forward, and when.
type clock interface {
	RedisNow() int64
	Stepped() (by, at int64)
}

// limiter has the call of requests that take no ticket.
type limiter interface {
	Charge(context.Context) bool
}

// store is the part of a room that is replaced: by tests, to inject faults and clock steps, and by Explain, with a store that changes
// nothing.
type store struct {
	clock
	ticketStore
	sessionStore
	limiter
}

// room is a configured room. It is immutable but for its forecaster and its list of revoked sessions, which all configurations of the
// room share.
type room struct {
	id         string
	index      int             // in state.rooms
	queue      *admission.Room // its snapshot, clock and limiter
	store      store
	origin     *upstream.Origin
	options    Room
	pages      pages
	cookies    [2]client.CookieNames // without and with TLS
	rules      rules
	metrics    *metrics.Room
	proofs     *guard.Proofs
	identity   *identified // nil: tickets do not belong to accounts
	preflights token.ID    // under which preflights of the room are counted
	forecasts
	documents
}

// documents are what a room publishes.
type documents struct {
	revoked *published.Revoked
	facts   *facts.Latest
	board   *board.Board
}

// forecasts are what a room estimates waits with.
type forecasts struct {
	estimator  eta.Estimator
	forecaster *forecast.Forecaster
}

// newRoom returns a room, which use has to complete. keys are the keys of its jwks_url, nil without one. old is the room with the
// same id in the configuration before, or nil.
func newRoom(o Room, origin *upstream.Origin, m *metrics.Metrics, keys *accountKeys, old *room, idKey []byte) (*room, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	r := &room{
		id: o.ID, origin: origin, cookies: [2]client.CookieNames{client.NamesOf(o.ID, false), client.NamesOf(o.ID, true)},
		metrics: m.Room(o.ID), preflights: preflightsID(o.ID),
	}
	if o.Identity.OnePlace {
		r.identity = &identified{Identity: o.Identity, header: strings.ToLower(o.Identity.Header), keys: keys}
	}
	var err error
	if r.rules, err = newRules(&o); err != nil {
		return nil, fmt.Errorf("rooms.%s.%w", o.ID, err)
	}
	r.options = o
	r.proofs = guard.NewProofs(sumOf(idKey, "altcha", o.ID))
	if r.pages, err = o.newPages(); err != nil {
		return nil, fmt.Errorf("rooms.%s.page: %w", o.ID, err)
	}
	if r.estimator, err = eta.New(o.Estimator, o.ETA); err != nil {
		return nil, fmt.Errorf("rooms.%s.eta.estimator: %w", o.ID, err)
	}
	if old != nil {
		r.forecaster, r.documents = old.forecaster, old.documents
	} else {
		r.forecaster = forecast.New(r.estimator, o.LearnWeights)
		r.documents = documents{revoked: &published.Revoked{}, facts: facts.NewLatest(route.Own+"/"+o.ID, factsTexts()), board: &board.Board{Room: o.ID}}
	}
	return r, nil
}

// originID returns the id of the room's origin, empty without one.
func (r *room) originID() string {
	if r.origin == nil {
		return ""
	}
	return r.origin.ID()
}

// setDefaults sets the options that the configuration omits.
func (o *Room) setDefaults() error {
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
			return fmt.Errorf("rooms.%s.guard.captcha.hosts: is missing; use the hosts on which the CAPTCHA may be solved, because the room serves every host", o.ID)
		}
	}
	o.Guard.Proof = cmp.Or(o.Guard.Proof, ProofNone)
	o.Policy.Challenge = o.Guard.Proof
	o.PageStatus = cmp.Or(o.PageStatus, 200)
	if o.Estimator == "" {
		o.Estimator = "window"
	}
	return nil
}

// use connects the room with its queue, as the last step of a reload.
func (r *room) use(queue *admission.Room, log *slog.Logger) {
	r.queue, r.store = queue, store{queue, queue, queue, queue}
	r.forecaster.Use(queue, forecast.Settings{
		Room: r.id, Policy: r.options.Policy, PollBudget: r.options.PollBudget, Estimator: r.estimator, Learns: r.options.LearnWeights, Log: log,
	})
}

func (r *room) names(secure bool) *client.CookieNames {
	if secure {
		return &r.cookies[1]
	}
	return &r.cookies[0]
}

// allowsSite reports whether the scripts of a site may read responses.
func (r *room) allowsSite(site []byte) bool {
	return slices.ContainsFunc(r.options.CORSOrigins, func(s string) bool { return s == string(site) })
}

func (r *room) challengePath() string { return route.Own + "/" + r.id + "/challenge" }

// preflightsID returns the id under which preflights of a room are counted.
func preflightsID(room string) token.ID {
	sum := sha256.Sum256([]byte("preflights\x00" + room))
	return token.ID(sum[:16])
}

// guarded reports whether more than the queue limits tickets or their use.
func (r *room) guarded(policy *admission.Policy) bool {
	return r.identity != nil || r.mayRequireSolution() || policy.Joins > 0 || r.options.SessionRequests.N > 0
}

// status returns the status of a ticket at now, in µs of Redis's clock.
func (r *room) status(f *forecast.Room, w *token.Waiting, t *forecast.Ticket, state string, now int64) answer.Status {
	policy := &f.Snapshot.Policy
	s := answer.Status{
		Room: r.id, State: state, Position: t.Position, Waiting: f.Snapshot.Waiting + f.Unheard, ETA: t.Wait,
		JoinedAt: joinedAt(w), Message: policy.Message, Paused: policy.Paused,
		Compat: r.compat(f), Now: now,
	}
	if v := r.facts.Of(&f.Snapshot.Facts, now); v != nil {
		s.Facts = v
	}
	switch state {
	case answer.StatePrequeue:
		s.Waiting, s.OpensAt = f.Snapshot.Prequeued, f.OpensAt
	case answer.StateRejected:
		s.OpensAt = f.OpensAt
		if policy.SoldOut {
			s.Reason = answer.ReasonSoldOut
		}
	case answer.StateWaiting:
		s.ClosesAt = f.ClosesAt
	}
	return s
}

// compat returns the forecast for the object cfWaitingRoom, nil if the room adds none.
func (r *room) compat(f *forecast.Room) *forecast.Room {
	if r.options.Compat != CompatCloudflare {
		return nil
	}
	return f
}
