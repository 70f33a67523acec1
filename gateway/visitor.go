package gateway

import (
	"bytes"
	"errors"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/token"
)

// endpoint is what lies under /.waiting-room/{room}/.
type endpoint struct {
	name  string
	allow string // methods, for Allow and for preflights
	serve func(*visit)
}

var endpoints = []endpoint{
	{"status", "GET, HEAD, OPTIONS", (*visit).serveStatus},
	{"tickets", "POST, DELETE, OPTIONS", (*visit).serveTickets},
	{"events", "GET, OPTIONS", (*visit).serveEvents},
	{"claim", "POST, OPTIONS", (*visit).serveClaim},
	{"challenge", "GET, HEAD, OPTIONS", (*visit).serveChallenge},
	{"draw", "GET, HEAD, OPTIONS", (*visit).serveDraw},
	{"", "GET, HEAD, OPTIONS", (*visit).servePage},
}

const jwks = "jwks.json"

// visitor answers what is asked of the gateway itself. rest is what follows /.waiting-room.
func (v *visit) visitor(rest []byte) {
	q := v.req
	v.outcome = waiting
	if v.who = client.KindOf(q); v.who != client.Navigation {
		v.who = client.API // the answers here are JSON for everybody else
	}
	if !v.state.table.Knows(v.host) {
		v.refuse(problemUnknownHost, "", "")
		return
	}
	id, name, _ := bytes.Cut(bytes.TrimPrefix(rest, []byte("/")), []byte("/"))
	if string(id) == jwks && len(name) == 0 {
		v.serveKeys()
		return
	}
	if len(name) == 0 && bytes.HasPrefix(id, []byte("pow-")) && v.serveScript(string(id)) {
		return
	}
	r := v.state.byID[string(id)]
	if r == nil || !v.state.table.Serves(r.index, v.host) {
		p := problemUnknownRoom
		if len(id) == 0 {
			p = problemUnknownPath
		}
		v.refuse(p, "", "")
		return
	}
	v.room, v.now = r, r.line.RedisNow()
	if site := q.Peek("origin"); len(site) > 0 {
		v.origin = r.cors[string(site)]
	}
	for i := range endpoints {
		e := &endpoints[i]
		if e.name != string(name) {
			continue
		}
		switch {
		case q.Is("OPTIONS"):
			v.options(e)
		case !allows(e.allow, q.Method()):
			v.refuse(problemMethod, "", "")
			v.res.Header.Set("Allow", e.allow)
		case (q.Is("POST") || q.Is("DELETE")) && v.crossSite():
			v.refuse(problemCrossSite, "", "")
		default:
			v.jar.Read(q, v.names())
			v.identify()
			e.serve(v)
		}
		if v.origin {
			v.cors()
		}
		return
	}
	v.refuse(problemUnknownPath, "", "")
}

func allows(list string, method []byte) bool {
	for m := range strings.SplitSeq(list, ", ") {
		if m == string(method) {
			return true
		}
	}
	return false
}

// cors lets the page of a configured site read the answer.
func (v *visit) cors() {
	h := &v.res.Header
	h.SetBytesV("Access-Control-Allow-Origin", v.req.Peek("origin"))
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Expose-Headers", "Retry-After, X-Waiting-Room, X-Waiting-Room-Pass")
}

func (v *visit) options(e *endpoint) {
	v.body = v.body[:0]
	h := v.begin(fasthttp.StatusNoContent, "")
	h.Set("Allow", e.allow)
	if v.origin {
		h.Set("Access-Control-Allow-Methods", e.allow)
		h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, Idempotency-Key, X-Waiting-Room-Token, X-Waiting-Room-Pass")
		h.Set("Access-Control-Max-Age", "600")
	}
	v.end()
}

// crossSite tells a request that another site's page made.
func (v *visit) crossSite() bool {
	if v.origin {
		return false
	}
	site := v.req.Peek("origin")
	if len(site) == 0 {
		return string(v.req.Peek("sec-fetch-site")) == "cross-site"
	}
	_, authority, ok := bytes.Cut(site, []byte("://"))
	return !ok || !bytes.EqualFold(authority, v.req.Host())
}

func (v *visit) serveKeys() {
	if !v.req.Is("GET") && !v.req.Is("HEAD") {
		v.refuse(problemMethod, "", "")
		v.res.Header.Set("Allow", "GET, HEAD")
		return
	}
	v.outcome = proxied
	v.body = append(v.body[:0], v.g.cache.Ring().JWKS()...)
	v.begin(200, typeJSON)
	v.end()
}

// need gives the waiting token of a request, or answers that there is none.
func (v *visit) need() (token.Waiting, bool) {
	w, ok, any := v.findTicket(true)
	if !ok {
		p := problemTokenMissing
		switch {
		case v.unfit != nil:
			p = v.unfit
		case any:
			p = problemTokenInvalid
		}
		v.refuse(p, "", "")
		v.res.Header.Set("WWW-Authenticate", `Bearer realm="waiting-room"`)
	}
	return w, ok
}

// serveStatus tells where a ticket stands; when it was let in, it claims.
func (v *visit) serveStatus() {
	w, ok := v.need()
	if !ok {
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
	v.tell(200, o, &w, &s, &t, seconds)
}

// tell answers with the status object of a ticket that was checked.
func (v *visit) tell(code int, o *outlook, w *token.Waiting, s *admission.Standing, t *admission.Ticket, seconds int) {
	if (s.State == admission.Admitted || s.State == admission.Active) && !s.Offline {
		claimed, err := v.claim(s.Ticket, t.Client)
		if err != nil && !errors.Is(err, admission.ErrNotYet) {
			v.fail(err)
			return
		}
		*s = claimed
	}
	v.same(s)
	if s.State != admission.Active && o.snapshot.Policy.Open() {
		if s.State == admission.Waiting && s.Renewed {
			*w = v.sign(&s.Ticket, w.IssuedAt)
		}
		v.tellOpen(code, o, w, seconds)
		return
	}
	switch s.State {
	case admission.Active:
		v.tellAdmitted(code, w, s, v.firstTime(s, w))
	case admission.Waiting, admission.Admitted:
		v.tellWaiting(code, o, w, s, seconds)
	case admission.Expired:
		v.tellExpired(code, reasonOf(s))
	case admission.Refused:
		v.tellRefused(code, o, w, s)
	default:
		out := v.status(o, w, &prospect{}, stateName(s.State))
		out.admittedAt = s.AdmittedAt
		v.json(code, &out)
	}
}

// tellOpen says that the room holds nobody up now: no pass is needed, so none is made, which would let its holder past the line
// that there may be later. A place that w has stays; no other is given.
func (v *visit) tellOpen(code int, o *outlook, w *token.Waiting, seconds int) {
	out := v.status(o, w, &prospect{}, stateAdmitted)
	out.refresh, out.token = seconds, v.token
	v.json(code, &out)
}

func (v *visit) tellWaiting(code int, o *outlook, w *token.Waiting, s *admission.Standing, seconds int) {
	unordered := w.Order == 0
	if s.Renewed || v.rebinds(w.Bind) {
		*w = v.sign(&s.Ticket, w.IssuedAt)
	}
	p := v.room.prospect(o, s.Ticket.Order)
	if unordered && s.Ticket.Order != 0 {
		seconds = heldFor(&s.Ticket, p.poll(v.g.random())) // it was drawn since
	}
	out := v.status(o, w, &p, o.stateOf(s.Ticket.Order))
	out.refresh, out.token = seconds, v.token
	v.json(code, &out)
}

// firstTime gives the state that a session's client is told, admitted with the first pass and active with later ones, and
// measures the wait with the first. Without the store a session is made at once, and nobody knows who was told before.
func (v *visit) firstTime(s *admission.Standing, w *token.Waiting) string {
	if !s.First && !s.Offline {
		return stateActive
	}
	v.observeWait(s, w)
	return stateAdmitted
}

func (v *visit) tellAdmitted(code int, w *token.Waiting, s *admission.Standing, state string) {
	p := v.admit(s)
	out := v.status(v.room.outlook(), w, &prospect{}, state)
	out.admittedAt, out.expiresAt, out.pass = s.AdmittedAt, p.Expires, v.pass
	v.json(code, &out)
}

// tellExpired answers that a place is lost, with a new one.
func (v *visit) tellExpired(code int, reason string) {
	o := v.room.outlook()
	if v.room.asks() { // a new place costs what it costs everybody
		policy := &o.snapshot.Policy
		v.json(code, &status{room: v.room.id, state: "expired", reason: reason, refresh: 1, message: policy.Message, paused: policy.Paused})
		return
	}
	a, barred := v.place()
	var s admission.Standing
	var refusal admission.Refusal
	var err error
	if barred == nil {
		s, refusal, err = v.room.line.Join(v.g.life, a)
	}
	o = v.room.outlook()
	if barred != nil || err != nil || refusal != admission.Granted {
		policy := &o.snapshot.Policy
		retry := problemFull.retry
		if refusal == admission.TooMany {
			v.refusedJoin(refusalReason(refusal, &s))
			retry = seconds(s.Retry)
		}
		v.json(code, &status{room: v.room.id, state: "expired", reason: reason, refresh: retry, message: policy.Message, paused: policy.Paused})
		return
	}
	if s.Ticket.Order == 0 && !s.Gathering {
		s.Ticket.Order = v.room.line.Now()
	}
	var p prospect
	if s.State == admission.Waiting {
		p = v.room.prospect(o, s.Ticket.Order)
	}
	v.promised, v.used = p.wait, 0
	w := v.sign(&s.Ticket, v.joinedSecond(s.Ticket.Order))
	out := v.status(o, &w, &p, "expired")
	out.reason, out.token, out.refresh = reason, v.token, v.room.firstPoll(o, &w, &p, v.g.random())
	v.json(code, &out)
}

func (v *visit) leave() {
	w, ok := v.need()
	if !ok {
		return
	}
	if err := v.room.line.Leave(v.g.life, v.ticket(&w, 0, wait{})); err != nil && !errors.Is(err, admission.ErrUnknown) {
		v.fail(err)
		return
	}
	v.cookie(v.names().Ticket, nil, 0)
	v.cookie(v.names().Nonce, nil, 0)
	v.body = v.body[:0]
	v.begin(fasthttp.StatusNoContent, "").Set("X-Waiting-Room", "ended")
	v.end()
}

func (v *visit) serveClaim() {
	w, ok := v.need()
	if !ok {
		return
	}
	v.adopt(&w)
	p := v.room.prospect(v.room.outlook(), w.Order)
	t := v.ticket(&w, p.poll(v.g.random()), p.wait)
	if _, err := v.room.line.Check(v.g.life, t); err != nil { // it enrols, and hears of the visitor
		v.fail(err)
		return
	}
	s, err := v.room.line.Claim(v.g.life, t)
	if err == nil {
		v.same(&s)
	}
	switch o := v.room.outlook(); {
	case err == nil && s.State == admission.Active:
		v.tellAdmitted(200, &w, &s, v.firstTime(&s, &w))
	case o.snapshot.Policy.Open() && (err == nil || errors.Is(err, admission.ErrNotYet)):
		v.tellOpen(200, o, &w, 0)
	case err != nil:
		v.fail(err)
	case s.State == admission.Waiting, s.State == admission.Admitted:
		v.refuse(problemNotYet, "", "")
	case s.State == admission.Refused:
		v.refuse(problemTooMany.after(seconds(s.Retry)), "", "")
	default:
		v.refuse(problemOfStanding(&s), "", "")
	}
}

// servePage shows the page itself; whoever need not wait goes on to the room.
func (v *visit) servePage() {
	v.who, v.lobby = client.Navigation, true
	policy := &v.room.line.Snapshot().Policy
	if policy.Open() {
		v.goOn()
		return
	}
	if _, ok := v.findPass(); ok {
		v.goOn()
		return
	}
	v.enterOrWait(policy)
}

// goOn leads to the room's first plain path on this host.
func (v *visit) goOn() {
	to := "/"
	for _, path := range v.room.options.Paths {
		if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n") {
			to = path
			break
		}
	}
	v.body = v.body[:0]
	h := v.begin(fasthttp.StatusSeeOther, "")
	h.Set("Location", to)
	h.Set("X-Waiting-Room", stateAdmitted)
	v.end()
}
