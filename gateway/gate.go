package gateway

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/token"
)

// clarify answers a request whose path does not lead to one room. A client that only reads is sent to the path that
// browsers would have asked for.
func (v *visit) clarify(why route.Kind) {
	v.who = client.KindOf(v.req)
	path := route.PathOf(v.target)
	if why == route.TwoRooms && (v.req.Is("GET") || v.req.Is("HEAD")) {
		v.text = route.AppendResolved(v.text[:0], path)
		if !bytes.Equal(v.text, path) {
			v.text = append(v.text, v.target[len(path):]...)
			v.outcome, v.body = refused, v.body[:0]
			v.begin(fasthttp.StatusPermanentRedirect, "").SetBytesV("Location", v.text)
			v.end()
			return
		}
	}
	detail := ""
	if why == route.TooMany {
		detail = "The path has more readings than are looked up, or is too long for the rules of this host. Send it shorter, or without dot segments, empty segments, parameters and escapes that it does not need."
	}
	v.refuse(problemPath, detail, "")
}

// gate decides about a request to a protected path (docs/architecture.md#a-request).
func (v *visit) gate() {
	r := v.room
	q := v.req
	policy := &r.line.Snapshot().Policy
	if policy.Open() {
		v.forward(r.origin, nil)
		return
	}
	if q.Is("OPTIONS") {
		if v.who = client.KindOf(q); v.who == client.Preflight {
			v.preflight(policy)
			return
		}
	}
	for i := range r.bypass {
		if r.bypass[i].Matches(q, &v.readings, v.peer.Addr) {
			v.outcome = bypassed
			v.forward(r.origin, nil)
			return
		}
	}
	v.now = r.line.RedisNow()
	v.jar.Read(q, v.names())
	if p, ok := v.findPass(); ok {
		v.proceed(&p, policy)
		return
	}
	v.who = client.KindOf(q)
	switch {
	case !v.who.MayJoin():
		v.passless(policy)
	default:
		v.identify()
		v.enterOrWait(policy)
	}
}

// enterOrWait is for those who may take a ticket. Where the room is closed it refuses them, and has the store hear of the ticket that
// they bring, so that their place is there when the room opens.
func (v *visit) enterOrWait(policy *admission.Policy) {
	if policy.Method != admission.Reject {
		v.queue()
		return
	}
	if w, ok, _ := v.findTicket(false); ok {
		v.adopt(&w)
		p := v.room.prospect(v.room.outlook(), w.Order)
		s, err := v.room.line.Check(v.g.life, v.ticket(&w, problemClosed.retry, p.wait))
		switch {
		case err != nil:
		case s.State == admission.Admitted || s.State == admission.Active:
			v.queue()
			return
		case s.State == admission.Waiting:
			if v.keeps = true; s.Renewed {
				v.sign(&s.Ticket, w.IssuedAt)
			}
		}
	}
	v.reject(admission.Closed, nil)
}

// proceed lets a visitor with a valid pass through, and renews the pass past half its life.
func (v *visit) proceed(p *token.Pass, policy *admission.Policy) {
	r := v.room
	now := v.now / 1e6
	if q := r.options.SessionRequests; q.N > 0 {
		if wait := v.g.metered.take(q.key(p.Session), v.start.Sub(v.g.began), q, r.line.Snapshot().Gateways); wait > 0 {
			v.tooMany(wait)
			return
		}
	}
	ttl := int64(policy.SessionTTL.Seconds())
	longer := false
	switch {
	case r.options.Renew && 2*(p.Expires-now) < ttl:
		longer = v.renew(p, now+v.life(policy, p.IssuedAt, now))
	case v.rebinds(p.Bind):
		v.renew(p, p.Expires)
	}
	if v.g.touched.due(p.Session, now, max(1, ttl/4)) || longer {
		r.line.Touch(admission.ID(p.Session), p.Off)
	}
	v.forward(r.origin, p)
}

// renew signs a pass anew, until expires, and reports whether it is good for longer than before.
func (v *visit) renew(p *token.Pass, expires int64) (longer bool) {
	renewed := *p
	if expires <= p.Expires && !v.rebinds(p.Bind) {
		return false // it has reached session.max
	}
	renewed.Expires, renewed.Bind = max(expires, p.Expires), string(v.bind())
	renewed.Off = v.room.line.Age() > v.room.line.Snapshot().Policy.SessionTTL
	v.pass = v.g.cache.Ring().AppendPass(v.pass[:0], &renewed)
	v.passCookie(&renewed)
	if len(v.req.Peek("x-waiting-room-pass")) > 0 {
		v.newPass = v.pass
	}
	return expires > p.Expires
}

// preflight lets a CORS preflight through, which carries no pass. It is counted by a limit of its own, so that it is no
// way to ask the site more than visitors do.
func (v *visit) preflight(policy *admission.Policy) {
	r := v.room
	snap := r.line.Snapshot()
	if policy.Method == admission.Reject && snap.Active+snap.Admitted == 0 {
		v.refuse(problemClosed, "", "")
		v.res.Header.Set("X-Waiting-Room", stateRejected)
		return
	}
	quota := preflightQuota(snap)
	mine := Quota{N: max(10, quota.N/4), Per: quota.Per}
	if wait := v.g.metered.take(v.preflights(), v.start.Sub(v.g.began), mine, snap.Gateways); wait > 0 {
		v.refuse(problemPreflights.after(seconds(wait)), "", "")
		return
	}
	if wait := v.g.metered.take(r.preflights, v.start.Sub(v.g.began), quota, snap.Gateways); wait > 0 {
		v.refuse(problemPreflights.after(seconds(wait)), "", "")
		return
	}
	v.forward(r.origin, nil)
}

// preflights returns the id by which the preflights of the client address are metered: one may take a quarter of the room's.
func (v *visit) preflights() token.ID {
	id := v.room.preflights
	for i, b := range proxy.ClientKey(v.peer.Addr) {
		id[i] ^= b
	}
	return id
}

// preflightQuota returns how many preflights a room lets through in a second, over all gateways: 50, ten for each visitor
// that it admits in a second, or two for each session, whichever is most.
func preflightQuota(s *admission.Snapshot) Quota {
	return Quota{N: max(50, s.Policy.Rate*10/1000, 2*s.Active), Per: time.Second}
}

// passless answers a request that may not take a ticket: it goes on while the room does not limit, charged to the
// limiter. Where a place costs more than waiting, such a request goes nowhere: its headers are the client's to choose.
func (v *visit) passless(policy *admission.Policy) {
	r := v.room
	p := problemPassNeeded
	switch {
	case policy.Method == admission.Reject:
		v.reject(admission.Closed, nil)
		return
	case v.who == client.Upgrade:
	case !r.guarded(policy) && r.line.Charge(v.g.life):
		v.forward(r.origin, nil)
		return
	case v.who == client.Prefetch:
		p = problemPrefetch
	}
	v.refuse(p, "", "")
	v.res.Header.Set("X-Waiting-Room", stateWaiting)
	v.outcome = waiting
}

// queue is for those who may take a ticket: with one they are checked, without they get one.
func (v *visit) queue() {
	w, ok, _ := v.findTicket(false)
	if !ok {
		v.join("")
		return
	}
	v.adopt(&w)
	o := v.room.outlook()
	p := v.room.prospect(o, w.Order)
	seconds := p.poll(v.g.random())
	t := v.ticket(&w, seconds, p.wait)
	s, err := v.room.line.Check(v.g.life, t)
	if err != nil {
		v.fail(err)
		return
	}
	if (s.State == admission.Admitted || s.State == admission.Active) && !s.Offline {
		if s, err = v.claim(s.Ticket, t.Client); err != nil && !errors.Is(err, admission.ErrNotYet) {
			v.fail(err)
			return
		}
	}
	switch s.State {
	case admission.Active:
		v.enter(&s, &w)
	case admission.Waiting, admission.Admitted:
		if s.Renewed || v.rebinds(w.Bind) {
			w = v.sign(&s.Ticket, w.IssuedAt)
		}
		v.wait(o, &w, seconds, "")
	case admission.Refused:
		v.reject(admission.TooMany, &s)
	default:
		v.join(reasonOf(&s))
	}
}

// reasonOf is why a ticket is over, as visitors are told.
func reasonOf(s *admission.Standing) string {
	switch {
	case s.State == admission.Refused:
		return "joins"
	case s.State == admission.Lapsed:
		return "lapsed"
	case s.Reason == admission.ReasonLate, s.Reason == admission.ReasonReset, s.Reason == admission.ReasonRemoved:
		return s.Reason
	case s.State == admission.Expired:
		return admission.ReasonLate
	}
	return "ended"
}

// claim makes a session of an admitted ticket. When the store does not answer, the visitor goes on waiting: the admission
// stands, and the next poll claims it.
func (v *visit) claim(t admission.Ticket, client admission.Client) (admission.Standing, error) {
	t.Client = client
	s, err := v.room.line.Claim(v.g.life, t)
	if errors.Is(err, admission.ErrStore) {
		return admission.Standing{State: admission.Waiting, Ticket: t, Offline: true}, nil
	}
	return s, err
}

// join takes a ticket, or lets the request itself through at once. lost, when not empty, is why a former ticket is
// replaced.
func (v *visit) join(lost string) {
	asks := v.room.asks()
	if v.who == client.Navigation && (!asks || v.account.state == accountKnown) {
		v.remember()
	}
	a, ok := v.arrival()
	if !ok {
		return
	}
	v.used = 0
	back := v.comeBack(&a)
	if asks && !a.Account && !back {
		v.askFirst(lost)
		return
	}
	a.Held = asks // a place that an account or a pass has costs nothing more
	s, refusal, err := v.room.line.Join(v.g.life, a)
	if back && !a.Account && noneKept(err) {
		if asks {
			v.askFirst(lost)
			return
		}
		v.used = 0
		a, _ = v.place()
		s, refusal, err = v.room.line.Join(v.g.life, a)
	}
	switch {
	case asks && err == nil && refusal == admission.Granted && s.State == admission.Ended:
		v.askFirst(lost)
		return
	case err != nil:
		v.fail(err)
		return
	case refusal != admission.Granted:
		v.reject(refusal, &s)
		return
	}
	if s.State == admission.Admitted {
		if s, err = v.claim(s.Ticket, a.Client); err != nil {
			v.fail(err)
			return
		}
	}
	if s.State == admission.Active {
		v.atOnce(&s)
		v.enter(&s, nil)
		return
	}
	v.remember()
	o := v.room.outlook()
	v.promised = v.room.prospect(o, s.Ticket.Order).wait
	w := v.sign(&s.Ticket, v.joinedWith(&a, s.Ticket.Order))
	v.wait(o, &w, 0, lost)
}

// enter lets a visitor who has just got a session through with this request.
func (v *visit) enter(s *admission.Standing, w *token.Waiting) {
	if w != nil {
		v.firstTime(s, w)
	}
	p := v.admit(s)
	if v.who == client.API {
		v.newPass = v.pass
	}
	v.outcome = letIn
	if v.lobby {
		v.goOn()
		return
	}
	v.forward(v.room.origin, &p)
}

// observeWait notes how long somebody waited, and how good the promise was.
func (v *visit) observeWait(s *admission.Standing, w *token.Waiting) {
	if s.AdmittedAt == 0 {
		return
	}
	real := max(0, float64(s.AdmittedAt-joinedAt(w))/1e6)
	v.room.metrics.wait.Observe(real)
	v.room.cameTrue(promise(w), real)
}

// wait tells somebody where they stand. seconds is when they are to ask again; 0: for the first time.
func (v *visit) wait(o *outlook, w *token.Waiting, seconds int, lost string) {
	v.outcome = waiting
	p := v.room.prospect(o, w.Order)
	if seconds == 0 {
		seconds = v.room.firstPoll(o, w, &p, v.g.random())
	}
	s := v.status(o, w, &p, o.stateOf(w.Order))
	s.refresh, s.token = seconds, v.token
	if v.who == client.Navigation {
		view := s.view()
		if lost != "" {
			view.State, view.Reason = "expired", lost
		}
		v.showPage(v.room.options.PageStatus, &view)
		v.res.Header.Set("X-Waiting-Room", s.state)
		return
	}
	s.reason = lost
	code := 503
	if v.req.Is("GET") || v.req.Is("HEAD") {
		code = 202
	}
	v.json(code, &s)
}

// status is what a ticket's holder is told.
func (v *visit) status(o *outlook, w *token.Waiting, p *prospect, state string) status {
	return v.room.status(o, w, p, state, v.now)
}

// status of a ticket at now, in µs of Redis's clock.
func (r *room) status(o *outlook, w *token.Waiting, p *prospect, state string, now int64) status {
	policy := &o.snapshot.Policy
	s := status{
		room: r.id, state: state, position: p.position, waiting: o.snapshot.Waiting + o.unheard, eta: p.wait,
		joinedAt: joinedAt(w), message: policy.Message, paused: policy.Paused,
		compat: r.options.Compat == CompatCloudflare, policy: policy, inEvent: o.event, now: now,
	}
	switch state {
	case statePrequeue:
		s.waiting, s.opensAt = o.snapshot.Prequeued, o.opens
	case stateRejected:
		s.opensAt = o.opens
	case stateWaiting:
		s.closesAt = o.closes
	}
	return s
}

// view is the page's form of a status.
func (s *status) view() page.View {
	view := page.View{
		State: s.state, Reason: s.reason, Position: s.position, Waiting: max(s.waiting, s.position),
		ETASeconds: s.eta.seconds, ETALow: s.eta.low, ETAHigh: s.eta.high, ETAKnown: s.eta.known,
		RefreshAfter: s.refresh, Message: s.message, Paused: s.paused,
	}
	if s.position > 0 {
		view.Ahead = s.position - 1
	}
	if s.opensAt > 0 {
		view.OpensAt = formatTime(s.opensAt)
	}
	if s.closesAt > 0 {
		view.ClosesAt = formatTime(s.closesAt)
	}
	if s.joinedAt > 0 {
		view.JoinedAt = formatTime(s.joinedAt)
	}
	return view
}

// reject answers that no ticket is given.
func (v *visit) reject(why admission.Refusal, s *admission.Standing) {
	p := problemOfRefusal(why)
	if p == problemClosed {
		v.shut = v.room.outlook().coming
		if p = p.until(&v.shut, v.now); v.keeps {
			p = p.after(min(p.retry, problemClosed.retry))
		}
	}
	if why == admission.TooMany {
		p = p.after(seconds(s.Retry))
	}
	v.refusedJoin(refusalReason(why, s))
	if v.who != client.Navigation || p == problemStore || p == problemSpentAccount {
		v.refuse(p, "", "")
		if p != problemStore {
			v.res.Header.Set("X-Waiting-Room", stateRejected)
		}
		return
	}
	policy := &v.room.line.Snapshot().Policy
	v.outcome = refused
	view := page.View{State: stateRejected, Reason: p.code[strings.LastIndexByte(p.code, '_')+1:], RefreshAfter: p.retry, Message: policy.Message, Paused: policy.Paused}
	if v.shut.opens > 0 {
		view.OpensAt, view.RefreshAfter = formatTime(v.shut.opens), min(p.retry, problemClosed.retry)
	}
	v.showPage(p.status, &view)
}
