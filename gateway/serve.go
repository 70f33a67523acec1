package gateway

import (
	"bytes"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/accesslog"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/wire"
)

// direct serves a request without fasthttp. It returns false for event streams, which handle serves because they take over the
// connection.
func (g *Gateway) direct(req *wire.Request) (taken bool) {
	v := g.begin(req, nil)
	defer g.finish(v)
	taken = true // also after a panic
	at := v.locate()
	if v.left = at.Kind == route.ToOwn && bytes.HasSuffix(at.Rest, []byte("/events")); v.left {
		return false
	}
	v.serve(at)
	return taken
}

// handle serves a request through fasthttp.
func (g *Gateway) handle(ctx *fasthttp.RequestCtx) {
	v := g.begin(wire.RequestOf(ctx), ctx)
	defer g.finish(v)
	if r := wire.CheckRequest(ctx); r != nil {
		v.peer.Addr = v.req.Peer() // a refused header has no other facts
		v.refuse(&answer.Problem{Status: r.Status, Code: r.Code, Title: "The request is not served", Detail: r.Detail, Level: answer.Quiet, Close: r.Close})
		return
	}
	v.serve(v.locate())
}

// serve decides about a request and carries the decision out.
func (v *visit) serve(at route.Place) {
	v.identifyPeer()
	v.warnMisnamed()
	if v.trace.On() {
		v.trace.at = at
	}
	d, p := v.decide(at)
	v.write(&d, p)
}

// decide returns the decision about a request that leads to at.
func (v *visit) decide(at route.Place) (decision, *answer.Problem) {
	st := v.state
	switch at.Kind {
	case route.ToOwn:
		return serveOwn(v, at.Rest)
	case route.TwoRooms, route.TooMany:
		return clarify(v, at.Kind)
	case route.ToRoom:
		v.room = st.rooms[at.Room]
		return enter(v)
	}
	switch {
	case st.byDefault != nil:
		return toOrigin(st.byDefault, proxied, onNoRoom), nil
	case st.table.HasRooms() && !st.table.Knows(v.host):
		v.kind = client.KindOf(v.req)
		return decision{}, answer.UnknownHost
	case len(st.order) > 0:
		return toOrigin(st.order[0], proxied, onNoRoom), nil
	}
	return decision{}, answer.NoOrigin
}

// begin starts a request. After NotReady each response ends its connection.
func (g *Gateway) begin(req *wire.Request, ctx *fasthttp.RequestCtx) *visit {
	g.life.running.Add(1)
	v := g.acquire(req, ctx)
	if g.life.leaving.Load() {
		req.CloseAfter()
	}
	return v
}

// finish sends the response, and counts and logs the request. A panic ends the request, not the process.
func (g *Gateway) finish(v *visit) {
	if fault := recover(); fault != nil {
		g.metrics.Panics.Inc()
		g.log.Error("fault in a request", "room", v.roomID(), "fault", fault, "stack", string(debug.Stack()))
		v.out.Abandon(v.deny(answer.Internal.Status))
		v.outcome = failed
	}
	defer g.life.running.Add(-1)
	defer g.release(v)
	if v.left {
		return
	}
	v.out.Finish()
	if v.call != nil {
		v.call.Respond(&check.Response{Room: v.roomID(), HTTP: v.out.Response()})
	}
	took := time.Since(v.start)
	m := g.metrics.None
	if v.room != nil {
		m = v.room.metrics
	}
	m.Requests[v.outcome].Inc()
	if v.trace.On() {
		finishTrace(v, took)
	}
	metrics.Observe(m.Seconds[v.outcome], took, v.trace.TraceID())
	if v.state.options.Access.Output != nil {
		g.logAccess(v, took)
	}
}

func (g *Gateway) logAccess(v *visit, took time.Duration) {
	sent := v.out.Sent()
	e := accesslog.Entry{
		At: v.start, Took: took, Addr: v.peer.Addr, Room: v.roomID(), Outcome: v.outcome.String(), Status: sent.Code, Bytes: sent.Bytes,
	}
	if len(v.target) > 0 { // empty: the header was refused, and the request is a substitute
		e.Method, e.Host, e.Target, e.Protocol = v.req.Method(), v.req.Host(), v.target, v.req.Protocol()
		e.UserAgent, e.Referer = v.req.Peek("user-agent"), v.req.Peek("referer")
	}
	g.access.Write(&e)
}

// warnMisnamed logs once for each configuration that a trusted proxy reports its clients in a header field that is not trusted. All
// clients of such a proxy count as one address, and share the limits of that address.
func (v *visit) warnMisnamed() {
	header := v.state.options.TrustedHeader
	if !v.peer.Trusted || v.state.misnamed.Load() {
		return
	}
	if other := v.peer.Misnamed(v.req, header); other != "" && !v.state.misnamed.Swap(true) {
		v.g.log.Warn("a trusted proxy reports the visitor in a header that is not trusted; all its visitors share its address. If the proxy always writes that header, set trusted_header to it",
			"proxy", v.req.Peer().String(), "header", other, "trusted_header", header)
	}
}
