package gateway

import (
	"bytes"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/token"
)

// clarify responds to a request whose path does not lead to exactly one room. GET and HEAD are redirected to the path that a browser
// would request.
func clarify(v *visit, why route.Kind) (decision, *answer.Problem) {
	v.kind = client.KindOf(v.req)
	path := route.PathOf(v.target)
	if why == route.TwoRooms && v.isRead() {
		to := route.AppendResolved(v.memory[1][:0], path)
		v.memory[1] = to
		if !bytes.Equal(to, path) {
			d := v.empty(308, [2]string{"Location", string(append(to, v.target[len(path):]...))})
			d.outcome, d.ground = refused, onRedirect
			return d, nil
		}
	}
	if why == route.TooMany {
		return decision{}, answer.AmbiguousPath.With("The path has too many possible readings, or is too long for the rules of this host. Send a shorter path, or one without dot segments, empty segments, parameters and unneeded escapes.")
	}
	return decision{}, answer.AmbiguousPath
}

// enter decides about a request to a path of a room. An open room, a bypass rule or a pass lets the request reach the origin.
// Otherwise the client joins, or is shown its place in the queue.
func enter(v *visit) (decision, *answer.Problem) {
	r := v.room
	policy := &r.queue.Snapshot().Policy
	if policy.Open() {
		return toOrigin(r.origin, proxied, onOpenRoom), nil
	}
	if v.req.Is("OPTIONS") {
		if v.kind = client.KindOf(v.req); v.kind == client.Preflight {
			return passPreflight(v)
		}
	}
	for i := range r.rules.bypass {
		if r.rules.bypass[i].Matches(v.req, &v.readings, v.peer.Addr) {
			d := toOrigin(r.origin, bypassed, onBypass)
			d.rule = i
			return d, nil
		}
	}
	v.enterRoom()
	if p, ok := v.tokens.findPass(); ok {
		return withPass(v, &p, policy)
	}
	if v.kind = client.KindOf(v.req); !v.kind.MayJoin() {
		return withoutPass(v, policy)
	}
	v.tokens.identify()
	decideQueued := queueUp
	if v.isCheck {
		decideQueued = admitNow
	}
	d, problem := decideQueued(v, policy)
	if problem == nil && d.action == doProxy { // the session that this request has started has no permit yet, or was claimed again
		d.permit, problem = checkPermit(v, d.session)
	}
	return d, problem
}

// withPass forwards the request of a visitor with a valid pass. It renews the pass after half of the pass's life, and also if gateways keep
// the sessions of the room alive (session.renew: server) and the pass was signed before they did. A step that needs a permit is refused
// without one.
func withPass(v *visit, p *token.Pass, policy *admission.Policy) (decision, *answer.Problem) {
	r := v.room
	now := v.now / 1e6
	if q := r.options.SessionRequests; q.N > 0 {
		if wait := v.g.meters.requests.Take(q.Key(p.Session), v.g.meters.at(v.start), q, r.queue.Snapshot().Gateways); wait > 0 {
			v.kind = client.KindOf(v.req)
			r.metrics.OverQuota.Inc()
			return decision{}, answer.SessionRequests.After(seconds(wait))
		}
	}
	permit, refusal := checkPermit(v, p.Session)
	if refusal != nil {
		return decision{}, refusal
	}
	ttl := int64(policy.SessionTTL.Seconds())
	renewed := false
	switch {
	case policy.PassLife > 0 && !p.Live, policy.PassLife == 0 && r.options.Renew && 2*(p.Expires-now) < ttl:
		renewed = v.grant.renewPass(p, now+v.sessionLife(policy, p.IssuedAt, now))
	case v.binding.Changes(p.Bind):
		v.grant.renewPass(p, p.Expires)
	}
	if v.tokens.reportDue(p.Session, now) || renewed {
		r.store.Touch(admission.ID(p.Session), p.Off)
	}
	return decision{action: doProxy, ground: onPass, origin: r.origin, session: p.Session, permit: permit}, nil
}

// passPreflight forwards a CORS preflight, which carries no pass. Preflights have their own limit, so that they cannot load the origin
// more than visitors do.
func passPreflight(v *visit) (decision, *answer.Problem) {
	snap := v.room.queue.Snapshot()
	if snap.Policy.Closed() && snap.Active+snap.Admitted == 0 {
		return decision{}, v.room.closed().In(answer.StateRejected)
	}
	ofRoom := preflightQuota(snap)
	ofAddress := meter.Quota{N: max(10, ofRoom.N/4), Per: ofRoom.Per}
	address := v.room.preflights // the id under which the preflights of the client's address are counted
	for i, b := range proxy.ClientKey(v.peer.Addr) {
		address[i] ^= b
	}
	at := v.g.meters.at(v.start)
	wait := v.g.meters.requests.Take(address, at, ofAddress, snap.Gateways)
	if wait == 0 {
		wait = v.g.meters.requests.Take(v.room.preflights, at, ofRoom, snap.Gateways)
	}
	if wait > 0 {
		return decision{}, answer.TooManyPreflights.After(seconds(wait))
	}
	return toOrigin(v.room.origin, proxied, onPreflight), nil
}

// preflightQuota returns the highest number of preflights of a room in a second, over all gateways: 50, ten times the admission rate,
// or two for each session, whichever is largest.
func preflightQuota(s *admission.Snapshot) meter.Quota {
	return meter.Quota{N: max(50, s.Policy.Rate*10/1000, 2*s.Active), Per: time.Second}
}

// withoutPass decides about a request that may not take a ticket. The request is forwarded if the limiter has capacity for it and no
// queue exists, but never in a guarded room or for a step that needs a permit: the client chooses the header fields that make a request of
// this kind.
func withoutPass(v *visit, policy *admission.Policy) (decision, *answer.Problem) {
	r := v.room
	p := answer.PassNeeded
	switch {
	case policy.Closed():
		return decision{}, v.reject(admission.Closed, nil, false)
	case v.kind == client.Upgrade:
	case !r.guarded(policy) && !needsPermit(v) && r.store.Charge(callsWithoutTicket(&v.trace, v.g, &v.request)):
		return toOrigin(r.origin, proxied, onCapacity), nil
	case v.kind == client.Prefetch:
		p = answer.Prefetch
	}
	return decision{}, p.In(answer.StateWaiting)
}

// queueUp decides about a client that may take a ticket. A ticket in the request is checked even while the room is closed, so that
// the ticket is still alive when the room opens.
func queueUp(v *visit, policy *admission.Policy) (decision, *answer.Problem) {
	closed := policy.Closed()
	w, ok, _ := v.tokens.findTicket(false)
	switch {
	case !ok && closed:
		return decision{}, v.reject(admission.Closed, nil, false)
	case !ok:
		return join(v, "")
	}
	poll := 0
	if closed {
		poll = answer.RoomClosed.Retry
	}
	c, err := v.check(w, poll)
	if s := &c.standing; closed && (err != nil || s.State != admission.Admitted && s.State != admission.Active) {
		keeps := err == nil && s.State == admission.Waiting
		if keeps && s.Renewed {
			v.grant.renewTicket(&c.token, &s.Ticket)
		}
		return decision{}, v.reject(admission.Closed, nil, keeps)
	}
	if err == nil {
		err = v.claimAdmitted(&c)
	}
	if err != nil {
		return decision{}, problemOf(err)
	}
	switch s := &c.standing; s.State {
	case admission.Active:
		v.sessionState(s, &c.token)
		return admit(v, s, c.token.Used), nil
	case admission.Waiting, admission.Admitted:
		if s.Renewed || v.binding.Changes(c.token.Bind) {
			v.grant.renewTicket(&c.token, &s.Ticket)
		}
		return wait(v, c.forecast, &c.token, c.poll, ""), nil
	case admission.Refused:
		return decision{}, v.reject(admission.TooMany, s, false)
	default:
		return join(v, reasonOf(s))
	}
}

// join takes a ticket, or starts a session if there is capacity. lost is the reason why a former ticket is replaced, or empty.
func join(v *visit, lost string) (decision, *answer.Problem) {
	if lost == "" {
		v.room.metrics.Arrivals.Inc()
	}
	guarded := v.room.requiresSolution()
	// The place of an ended pass is the same if the request is repeated because its response was lost, so its client must be, too.
	if v.kind == client.Navigation && v.tokens.ended == nil && (!guarded || v.account.state == accountKnown) {
		v.grant.giveNonce()
	}
	a, p := newArrival(v)
	if p != nil {
		return decision{}, v.refuseAccount(p)
	}
	back := addEndedPass(v, &a)
	if guarded && !a.Account && !back {
		return requireSolution(v, lost)
	}
	a.Held = guarded // an existing ticket of the account or pass needs no proof
	s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	if back && !a.Account && v.noOrderKept(err) {
		if guarded {
			return requireSolution(v, lost)
		}
		a, _ = newArrival(v)
		s, refusal, err = v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	}
	switch {
	case err != nil:
		return decision{}, problemOf(err)
	case refusal != admission.Granted:
		return decision{}, v.reject(refusal, &s, false)
	case guarded && s.State == admission.Ended:
		return requireSolution(v, lost)
	case s.State == admission.Admitted:
		if s, err = v.claim(s.Ticket, a.Client); err != nil {
			return decision{}, problemOf(err)
		}
	}
	traceJoin(v, &a.Arrival, &s)
	if s.State == admission.Active {
		return admit(v, &s, a.usedBy(&s)), nil
	}
	v.grant.giveNonceAfter(&s)
	r := v.room.forecaster.Room()
	t := v.room.forecaster.Ticket(r, s.Ticket.Order)
	w := v.grant.signTicket(&s.Ticket, v.takenBy(&a, s.Ticket.Order), lineage{t.Wait, a.used})
	return wait(v, r, &w, 0, lost), nil
}

// admit forwards the request of a visitor whose session this request has started.
func admit(v *visit, s *admission.Standing, used int64) decision {
	p := v.grant.signPass(s, used)
	if v.kind == client.API {
		v.out.Pass(v.grant.pass)
	}
	return decision{action: doProxy, outcome: admitted, ground: onAdmission, origin: v.room.origin, session: p.Session}
}

// wait shows a client its place in the queue. poll is the number of seconds until the next poll; 0: the ticket is new. lost is the
// reason why a former ticket was replaced, or empty.
func wait(v *visit, r *forecast.Room, w *token.Waiting, poll int, lost string) decision {
	t := v.room.forecaster.Ticket(r, w.Order)
	if poll == 0 {
		poll = v.room.forecaster.FirstPoll(r, w.Epoch != "", &t, random())
	}
	s := statusOf(v, r, w, &t, waitingState(r, w.Order))
	s.Refresh, s.Token, s.Reason = poll, v.grant.token, v.tokens.reasonToWait(lost)
	code := 503
	if v.isRead() {
		code = 202
	}
	return decision{action: doWait, outcome: waiting, ground: onQueue, code: code, status: s}
}

// reject returns the problem of a refused join. keeps reports whether the client keeps a ticket.
func (v *visit) reject(why admission.Refusal, s *admission.Standing, keeps bool) *answer.Problem {
	v.room.countRefusedJoin(refusalReason(why, s))
	p := problemOfRefusal(why)
	switch p {
	case answer.StoreUnavailable:
		return p
	case answer.AccountSpent:
		return p.In(answer.StateRejected)
	case answer.RoomClosed:
		e := &v.room.forecaster.Room().Events
		if p = v.room.closed().Until(e.OpensAt, e.JoinsAt, v.now); keeps {
			p = p.After(min(p.Retry, answer.RoomClosed.Retry))
		}
	case answer.TooManyJoins:
		p = p.After(seconds(s.Retry))
	}
	p = p.In(answer.StateRejected)
	p.InRoom = true
	return p
}
