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

// Check are the options of checks, by which other proxies ask about requests that they forward themselves.
type Check struct {
	Trusted []netip.Prefix // whose checks are answered
	Dialect dialect.Dialect
	Deny    int // status for visitors who have to wait; 0: 401
}

// On reports whether checks are answered. Then the gateway may be without origins, which the proxies have.
func (c *Check) On() bool { return len(c.Trusted) > 0 }

// checkExtra is how much longer than a visitor's header the header of a check may be: the proxy adds fields that describe the request.
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
	if !g.life.open(ln, server, g.access.Run, g.streams.Run) {
		return ln.Close()
	}
	g.startLoops()
	return server.Serve(ln)
}

// checks answers the checks of a gateway.
type checks struct{ g *Gateway }

// direct answers a check without fasthttp.
func (c checks) direct(q *wire.Request) bool {
	c.serve(q, nil, nil)
	return true
}

// handle answers a check through fasthttp.
func (c checks) handle(ctx *fasthttp.RequestCtx) {
	c.serve(wire.RequestOf(ctx), ctx, wire.CheckRequest(ctx))
}

// serve answers the check q. refusal is why the check itself is refused, or nil.
func (c checks) serve(q *wire.Request, ctx *fasthttp.RequestCtx, refusal *http1.Refusal) {
	v := c.g.begin(q, ctx)
	defer c.g.finish(v)
	v.beside = true
	v.cookieless = !v.state.options.Check.Dialect.Cookies()
	if q.HasBody() {
		q.CloseAfter() // some proxies describe the length of a body that they do not send: what follows may be the next check
	}
	answerCheck(v, q.Peer(), readCheck(v, q, refusal))
}

// Check decides about the request that q describes, as about an HTTP check, and answers q.
func (g *Gateway) Check(q check.Question) {
	g.life.running.Add(1)
	v := g.acquire(nil, nil)
	defer g.finish(v)
	if v.described == nil {
		v.described = &wire.Description{}
	}
	v.req = v.described.Blank(q.Peer())
	v.out.Begin(v.req, nil, v.start)
	v.beside, v.asked = true, q
	answerCheck(v, q.Peer(), readQuestion(v, q))
}

// answerCheck writes the response to a check of a proxy. fault is why it is refused, or nil.
func answerCheck(v *visit, proxy netip.Addr, fault *check.Fault) {
	if fault != nil {
		v.g.metrics.ChecksRefused[fault.Name].Inc()
		problem, how := answer.CheckRefused, "grpc"
		if v.asked == nil {
			how = v.state.options.Check.Dialect.String()
		}
		v.fault(problem.Level, "a check is refused; the proxy denies the visitor's request", problem.Code, fault.Name,
			"reason", fault.Name, "detail", fault.Detail, "proxy", proxy.String(), "check.dialect", how)
		v.refuse(problem.With(fault.Detail).WithoutLog())
		return
	}
	decideCheck(v)
}

// readCheck makes the request that the check q describes the request of v.
func readCheck(v *visit, q *wire.Request, refusal *http1.Refusal) *check.Fault {
	o := &v.state.options
	switch {
	case !forwarded.Contains(o.Check.Trusted, q.Peer()):
		v.peer.Addr = q.Peer()
		return check.UnknownPeer
	case refusal != nil:
		return check.DoubtfulRequest
	}
	if v.described == nil {
		v.described = &wire.Description{}
	}
	if fault := check.Describe(o.Check.Dialect, v.described, q, v.state.hops); fault != nil {
		return fault
	}
	return readDescription(v)
}

// readQuestion makes the request that q describes the request of v.
func readQuestion(v *visit, q check.Question) *check.Fault {
	if !forwarded.Contains(v.state.options.Check.Trusted, q.Peer()) {
		v.peer.Addr = q.Peer()
		return check.UnknownPeer
	}
	if fault := q.Describe(v.described, v.state.hops); fault != nil {
		return fault
	}
	return readDescription(v)
}

// readDescription makes the described request the request of v.
func readDescription(v *visit) *check.Fault {
	limits := v.g.limits.OfDescribed()
	described, refusal := v.described.Request(&limits)
	if refusal != nil {
		return check.DoubtfulRequest
	}
	v.req = described
	v.peer = client.Peer{Addr: described.Peer(), Secure: described.Secure()}
	return nil
}

// decideCheck decides about the described request and writes the response.
func decideCheck(v *visit) {
	d, p := decideBeside(v, v.locate())
	if p == nil && d.action == doProxy {
		v.outcome = d.outcome
		pass(v, &d)
		return
	}
	v.write(&d, p)
}

// decideBeside returns the decision about a request that another proxy describes: that of the proxy path, except that nobody gets a
// place, and that the visitors' socket serves the paths below /.waiting-room.
func decideBeside(v *visit, at route.Place) (decision, *answer.Problem) {
	switch at.Kind {
	case route.TwoRooms, route.TooMany:
		v.kind = client.KindOf(v.req)
		return decision{}, answer.AmbiguousPath
	case route.ToOwn:
		if v.kind = client.KindOf(v.req); !v.readings.AreOwn() || !route.IsOwn(route.PathOf(v.target)) {
			return decision{}, answer.AmbiguousPath
		}
		return toOrigin(nil, bypassed), nil
	}
	d, p := v.decide(at)
	if p == answer.NoOrigin {
		return toOrigin(nil, proxied), nil
	}
	return d, p
}

// pass writes that the described request may go on.
func pass(v *visit, d *decision) {
	state, session, remove := "bypass", "", answer.NoField
	if d.session != (token.ID{}) {
		state, session = "pass", v.sessionText(d.session)
	}
	if v.asked == nil && v.state.options.Check.Dialect.RemovesFields() {
		if remove = removeAliases; session == "" {
			remove = removeSession
		}
	}
	v.out.Passed(state, session, remove)
}

// The fields by which Envoy removes a session that the visitor has sent: its aliases, and the field itself where the check has none.
var (
	removeAliases = [2]string{"X-Envoy-Auth-Headers-To-Remove", strings.Join(check.SessionNames(true), ",")}
	removeSession = [2]string{"X-Envoy-Auth-Headers-To-Remove", strings.Join(check.SessionNames(false), ",")}
)

// queueBeside decides about a described request without a pass. The visitor is admitted now, or has to wait: a ticket is given, polled
// and claimed below /.waiting-room only, which the page's script does.
func queueBeside(v *visit, policy *admission.Policy) (decision, *answer.Problem) {
	if policy.Method == admission.Reject {
		return decision{}, v.reject(admission.Closed, nil, false)
	}
	if w, ok, _ := v.tokens.findTicket(false); ok {
		return wait(v, v.room.forecaster.Room(), &w, 0, ""), nil
	}
	if v.room.asks() && v.account.state != accountKnown {
		return requireSolution(v, "")
	}
	a, p := newArrival(v)
	if p != nil {
		return decision{}, v.refuseAccount(p)
	}
	if v.cookieless {
		return mustWait(v), nil
	}
	addEndedPass(v, &a)
	a.Now, a.Held = true, v.room.asks()
	s, refusal, err := v.room.store.Join(v.g.life.ctx, a.Arrival)
	if a.Return != nil && !a.Account && noOrderKept(err) {
		a, _ = newArrival(v)
		a.Now, a.Held = true, v.room.asks()
		s, refusal, err = v.room.store.Join(v.g.life.ctx, a.Arrival)
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

// mustWait shows a visitor without a ticket that there is a queue.
func mustWait(v *visit) decision {
	f := v.room.forecaster.Room()
	t := forecast.Ticket{Wait: v.room.forecaster.Ticket(f, v.room.queue.Now()).Wait}
	s := v.status(f, &token.Waiting{}, &t, waitingState(f, 0))
	s.Refresh, s.Reason = v.room.forecaster.FirstPoll(f, false, &t, random()), answer.ReasonNoTicket
	return decision{action: doWait, outcome: waiting, status: s}
}

// deny returns the status of a response that does not let the request go on; status is that of the proxy path. The response to a check
// has the status that the proxy carries to the visitor.
func (v *visit) deny(status int) int {
	deny := v.state.options.Check.Deny
	switch {
	case !v.beside:
		return status
	case status == answer.CheckRefused.Status, status == answer.AmbiguousPath.Status, status == answer.UnknownHost.Status:
		return answer.CheckRefused.Status
	case v.tokens.pass != nil: // the room's page would redirect the visitor back to the room
		if !v.state.options.Check.Dialect.CanDeny(status) {
			return 403
		}
		return status
	case deny < 400 && (v.kind != client.Navigation || status == answer.Internal.Status):
		return 401 // only browsers are redirected, and not by a fault
	}
	return deny
}

// redirectToQueue redirects a browser to the room's page on the visitors' socket, where check.deny is a redirect, and reports whether it
// did.
func (v *visit) redirectToQueue(status int, state string) bool {
	status = v.deny(status)
	if !v.beside || status >= 400 || v.room == nil {
		return false
	}
	v.out.Body = v.out.Body[:0]
	v.out.Document(status, "", [2]string{"Location", route.Own + "/" + v.room.id + "/"}, [2]string{"X-Waiting-Room", state})
	return true
}
