package gateway

import (
	"net"
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/listener"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/forwarded"
	"github.com/anteroom/anteroom/token"
)

// Check holds the options of checks, by which other proxies ask about requests that they forward themselves.
type Check struct {
	Trusted []netip.Prefix // addresses of the proxies; other checks are refused
	Dialect dialect.Dialect
	Deny    int // status for visitors who have to wait; 0: 401
}

// On reports whether the gateway answers checks. Then it needs no origins, which the proxies have.
func (c *Check) On() bool { return len(c.Trusted) > 0 }

// Limits of the fields by which a proxy describes a request, in addition to the limits of a visitor's header.
const (
	checkExtraBytes = 2 << 10
	checkExtraLines = 16
)

// ServeCheck serves the checks that arrive at ln until Shutdown, and then returns nil.
func (g *Gateway) ServeCheck(ln net.Listener) error {
	limits := g.limits
	if limits.Header > 0 {
		limits.Header += limits.Target + checkExtraBytes
	}
	if limits.Headers > 0 {
		limits.Headers += checkExtraLines
	}
	if limits.Target > 0 {
		limits.Target += len(check.Path)
	}
	c := checks{g}
	server := &fasthttp.Server{Handler: c.handle, Logger: fasthttpLog{g.log}, ReadBufferSize: max(limits.Header, 16<<10), Concurrency: 1 << 20}
	wire.ServerOptions(server)
	ln = listener.New(ln, g.log, g.metrics.AcceptErrors.Inc)
	ln = wire.Listener(ln, limits, c.direct)
	if !g.life.open(ln, server, g.access.Run, g.streams.Run, boardSampler{g}.run) {
		return ln.Close()
	}
	g.startLoops()
	return server.Serve(ln)
}

// checks serves checks over HTTP.
type checks struct{ g *Gateway }

// direct serves a check without fasthttp.
func (c checks) direct(q *wire.Request) bool {
	c.serve(q, nil, nil)
	return true
}

// handle serves a check through fasthttp.
func (c checks) handle(ctx *fasthttp.RequestCtx) {
	c.serve(wire.RequestOf(ctx), ctx, wire.CheckRequest(ctx))
}

// serve responds to the check q. refusal is the reason why its own header is refused, or nil.
func (c checks) serve(q *wire.Request, ctx *fasthttp.RequestCtx, refusal *http1.Refusal) {
	v := c.g.begin(q, ctx)
	defer c.g.finish(v)
	v.isCheck = true
	v.cookieless = !v.state.options.Check.Dialect.Cookies()
	if q.HasBody() {
		q.CloseAfter() // some proxies describe the length of a body that they do not send: what follows may be the next check
	}
	serveCheck(v, q.Peer(), readCheck(v, q, refusal))
}

// Check responds to a check that is not an HTTP request, with the same decision.
func (g *Gateway) Check(c check.Call) {
	g.life.running.Add(1)
	v := g.acquire(nil, nil)
	defer g.finish(v)
	if v.described == nil {
		v.described = &wire.Description{}
	}
	v.req = v.described.Blank(c.Peer())
	v.out.Begin(v.req, nil, v.start)
	v.isCheck, v.call = true, c
	serveCheck(v, c.Peer(), readCall(v, c))
}

// serveCheck decides about the described request and writes the response to the check. A fault refuses the check itself.
func serveCheck(v *visit, proxy netip.Addr, fault *check.Fault) {
	if fault != nil {
		v.g.metrics.ChecksRefused[fault.Name].Inc()
		problem, in := answer.CheckRefused, "grpc"
		if v.call == nil {
			in = v.state.options.Check.Dialect.String()
		}
		v.fault(problem.Level, "a check is refused; the proxy denies the visitor's request", problem.Code, fault.Name,
			"reason", fault.Name, "detail", fault.Detail, "proxy", proxy.String(), "check.dialect", in)
		v.refuse(problem.With(fault.Detail).WithoutLog())
		return
	}
	d, p := decideDescribed(v, v.locate())
	if p == nil && d.action == doProxy {
		v.outcome = d.outcome
		pass(v, &d)
		return
	}
	v.write(&d, p)
}

// readCheck makes v a visit of the request that the check q describes.
func readCheck(v *visit, q *wire.Request, refusal *http1.Refusal) *check.Fault {
	o := &v.state.options
	switch {
	case !forwarded.Contains(o.Check.Trusted, q.Peer()):
		v.peer.Addr = q.Peer()
		return check.UnknownPeer
	case refusal != nil:
		return check.InvalidRequest
	}
	if v.described == nil {
		v.described = &wire.Description{}
	}
	if fault := check.Describe(o.Check.Dialect, v.described, q, v.state.hops); fault != nil {
		return fault
	}
	return readDescription(v)
}

// readCall makes v a visit of the request that c describes.
func readCall(v *visit, c check.Call) *check.Fault {
	if !forwarded.Contains(v.state.options.Check.Trusted, c.Peer()) {
		v.peer.Addr = c.Peer()
		return check.UnknownPeer
	}
	if fault := c.Describe(v.described, v.state.hops); fault != nil {
		return fault
	}
	return readDescription(v)
}

// readDescription makes v a visit of the described request.
func readDescription(v *visit) *check.Fault {
	limits := v.g.limits.OfDescribed()
	described, refusal := v.described.Request(&limits)
	if refusal != nil {
		return check.InvalidRequest
	}
	v.req = described
	v.peer = client.Peer{Addr: described.Peer(), Secure: described.Secure()}
	return nil
}

// decideDescribed returns the decision about a request that another proxy describes. It is that about a request at the visitors' socket, except
// that nobody gets a place, and that a request below /.waiting-room passes: the proxy sends it to the visitors' socket.
func decideDescribed(v *visit, at route.Place) (decision, *answer.Problem) {
	switch at.Kind {
	case route.TwoRooms, route.TooMany:
		v.kind = client.KindOf(v.req)
		return decision{}, answer.AmbiguousPath
	case route.ToOwn:
		if v.kind = client.KindOf(v.req); !v.readings.AreOwn() || !route.IsOwn(route.PathOf(v.target)) {
			return decision{}, answer.AmbiguousPath
		}
		return toOrigin(nil, bypassed, onOther), nil
	}
	d, p := v.decide(at)
	if p == answer.NoOrigin {
		return toOrigin(nil, proxied, onNoRoom), nil
	}
	return d, p
}

// pass writes the response to a check whose described request may go on.
func pass(v *visit, d *decision) {
	state, session, remove := "bypass", "", answer.NoField
	if d.session != (token.ID{}) {
		state, session = "pass", v.sessionText(d.session)
	}
	if v.call == nil && v.state.options.Check.Dialect.RemovesFields() {
		if remove = removeAliases; session == "" {
			remove = removeSession
		}
	}
	v.out.Passed(state, session, remove)
}

// The field that lists what Envoy removes from the request: the aliases of X-Waiting-Room-Session, and that field itself if the response has none.
var (
	removeAliases = [2]string{"X-Envoy-Auth-Headers-To-Remove", strings.Join(check.SessionNames(true), ",")}
	removeSession = [2]string{"X-Envoy-Auth-Headers-To-Remove", strings.Join(check.SessionNames(false), ",")}
)

// admitNow decides about a described request without a pass: its visitor is admitted now, or has to wait. A check assigns no place. The script of
// the page takes a ticket, polls and claims at the visitors' socket.
func admitNow(v *visit, policy *admission.Policy) (decision, *answer.Problem) {
	if policy.Closed() {
		return decision{}, v.reject(admission.Closed, nil, false)
	}
	if w, ok, _ := v.tokens.findTicket(false); ok {
		return wait(v, v.room.forecaster.Room(), &w, 0, ""), nil
	}
	if v.room.requiresSolution() && v.account.state != accountKnown {
		return requireSolution(v, "")
	}
	a, p := newArrival(v)
	if p != nil {
		return decision{}, v.refuseAccount(p)
	}
	if v.cookieless || needsPermit(v) { // the visitor would not get the pass: with a step the check is denied, and HAProxy drops that cookie
		return mustWait(v), nil
	}
	addEndedPass(v, &a)
	a.SessionOnly, a.Held = true, v.room.requiresSolution()
	s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	if a.Return != nil && !a.Account && v.noOrderKept(err) {
		a, _ = newArrival(v)
		a.SessionOnly, a.Held = true, v.room.requiresSolution()
		s, refusal, err = v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	}
	switch {
	case err != nil:
		return decision{}, problemOf(err)
	case refusal == admission.Granted && s.State == admission.Active:
		return admit(v, &s, a.usedBy(&s)), nil
	case refusal == admission.Granted, refusal == admission.MustWait:
		return mustWait(v), nil
	}
	return decision{}, v.reject(refusal, &s, false)
}

// mustWait returns the decision to show the queue to a visitor without a ticket.
func mustWait(v *visit) decision {
	f := v.room.forecaster.Room()
	t := forecast.Ticket{Wait: v.room.forecaster.Ticket(f, v.room.queue.Now()).Wait}
	s := statusOf(v, f, &token.Waiting{}, &t, waitingState(f, 0))
	s.Refresh, s.Reason = v.room.forecaster.FirstPoll(f, false, &t, random()), answer.ReasonNoTicket
	return decision{action: doWait, outcome: waiting, ground: onQueue, status: s}
}

// deny returns the status of a response that does not let the request go on. status is that of a response at the visitors' socket; a response to a
// check has one that the proxy sends to the visitor.
func (v *visit) deny(status int) int {
	deny := v.state.options.Check.Deny
	switch {
	case !v.isCheck:
		return status
	case status == answer.CheckRefused.Status, status == answer.AmbiguousPath.Status, status == answer.UnknownHost.Status:
		return answer.CheckRefused.Status
	case v.tokens.pass != nil: // the room's page would redirect the visitor back to the room
		if !canDeny(v, status) {
			return 403
		}
		return status
	case deny < 400 && (v.kind != client.Navigation || status == answer.Internal.Status):
		return 401 // only browsers are redirected, and not by a fault
	}
	return deny
}

// canDeny reports whether the proxy that asks can send a status to the visitor.
func canDeny(v *visit, status int) bool {
	if v.call != nil {
		return dialect.CanDenyOverGRPC(status)
	}
	return v.state.options.Check.Dialect.CanDeny(status)
}

// redirectToQueue redirects a browser to the room's page on the visitors' socket if check.deny is a redirect, and reports whether it did.
func (v *visit) redirectToQueue(status int, state string) bool {
	status = v.deny(status)
	if !v.isCheck || status >= 400 || v.room == nil {
		return false
	}
	v.out.Body = v.out.Body[:0]
	v.out.Document(status, "", [2]string{"Location", route.Own + "/" + v.room.id + "/"}, [2]string{"X-Waiting-Room", state})
	return true
}
