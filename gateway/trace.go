package gateway

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/span"
	"github.com/anteroom/anteroom/internal/tracing"
	"github.com/anteroom/anteroom/token"
)

// TracerOf returns the tracer of the configuration in force; nil: nothing is traced.
func TracerOf(g *Gateway) *tracing.Tracer { return g.state.Load().options.Tracer }

// callerOf returns what the trace of a request continues. As with the other fields that proxies forward, only a trusted proxy's trace context
// counts: a visitor could otherwise have every request traced, or write into the traces of others.
func callerOf(r *request) span.Caller {
	c := span.Caller{Began: r.start}
	if !r.peer.Trusted {
		return c
	}
	if parent := r.req.Peek(tracing.ParentField); len(parent) > 0 {
		c.Parent, c.State = parent, r.req.Peek(tracing.StateField)
	}
	return c
}

// callsOf returns the context for calls of the room about a ticket.
func callsOf(v *visit, id admission.ID) context.Context {
	if !v.trace.On() {
		return v.g.life.ctx
	}
	v.trace.ticket = token.ID(id)
	v.trace.DecideByTicket(callerOf(&v.request), id)
	return v.trace.Calls(v.g.life.ctx)
}

// callsWithoutTicket returns the context for calls of the room for a request that has no ticket.
func callsWithoutTicket(t *visitTrace, g *Gateway, r *request) context.Context {
	if t.Undecided() {
		t.Decide(callerOf(r))
	}
	return t.Calls(g.life.ctx)
}

// traceJoin records in the trace of a ticket that the request has taken it.
func traceJoin(v *visit, a *admission.Arrival, s *admission.Standing) {
	if !v.trace.On() || (a.Keyed || a.Account) && !s.New {
		return
	}
	state := "waiting"
	if s.State == admission.Active {
		state = "active"
	}
	v.trace.Joined(span.Ticket{ID: s.Ticket.ID, Room: v.room.id}, v.start, state)
}

// traceClaim records in the trace of a ticket that the request has started its session.
func traceClaim(v *visit, s *admission.Standing, w *token.Waiting) {
	if !v.trace.On() || s.AdmittedAt == 0 {
		return
	}
	now, at := time.Now(), v.room.store.RedisNow()
	ago := func(t int64) time.Time { return now.Add(-time.Duration(max(0, at-t)) * time.Microsecond) }
	v.trace.Claimed(span.Ticket{ID: s.Ticket.ID, Room: v.room.id}, ago(joinedAt(w)), ago(s.AdmittedAt))
}

// forwardTraced forwards a request while requests are traced.
func forwardTraced(v *visit, d *decision) proxy.Outcome {
	if v.trace.Undecided() {
		v.trace.Decide(callerOf(&v.request))
	}
	if !v.trace.Traced() {
		return d.origin.Forward(v.req, &v.proxied)
	}
	x, parent, state := v.trace.Exchange(string(v.req.Method()), d.origin.ID())
	v.proxied.DropField = v.state.drops.traced
	if !v.peer.Trusted {
		v.proxied.DropField = v.state.drops.untrusted
	}
	v.proxied.TraceParent, v.proxied.TraceState = parent, state
	out := d.origin.Forward(v.req, &v.proxied)
	v.trace.EndExchange(x, &out, string(route.PathOf(v.target)))
	return out
}

// visitTrace is the trace of a request, and what its span shows of the decision.
type visitTrace struct {
	span.Request
	at       route.Place
	decision ground
	problem  string
	ticket   token.ID // or session
}

// decided notes what was decided about the request.
func (t *visitTrace) decided(d *decision, p *answer.Problem) {
	if p != nil {
		t.problem = p.Code
		return
	}
	t.decision = d.ground
	if d.session != (token.ID{}) {
		t.ticket = d.session
	}
}

// finishTrace ends the trace of a request that took a time.
func finishTrace(v *visit, took time.Duration) {
	t := &v.trace
	if t.Undecided() {
		t.Decide(callerOf(&v.request))
	}
	if !t.Traced() {
		return
	}
	f := span.Facts{
		Method: string(v.req.Method()), Path: string(route.PathOf(v.target)), Scheme: "http", Host: string(v.host), Protocol: strings.TrimPrefix(v.req.Protocol(), "HTTP/"),
		Route: routeOf(v), Client: shownAddress(v), UserAgent: string(v.req.Peek("user-agent")),
		Room: v.roomID(), Outcome: v.outcome.String(), Problem: t.problem, Status: v.out.Sent().Code,
	}
	if v.peer.Secure {
		f.Scheme = "https"
	}
	if t.problem == "" {
		f.Decision = groundNames[t.decision]
	}
	if t.ticket != (token.ID{}) {
		f.Ticket = admission.ID(t.ticket).String()
	}
	t.End(&f, v.start.Add(took))
}

// routeOf returns the rule that a request fits: the path of a room, or an endpoint of the gateway; empty if there is none.
func routeOf(v *visit) string {
	at := &v.trace.at
	if at.Kind != route.ToOwn {
		return at.Path
	}
	_, name, ok := bytes.Cut(bytes.TrimPrefix(at.Rest, []byte("/")), []byte("/"))
	if !ok || v.room == nil {
		return ""
	}
	for i := range endpoints {
		if string(name) == endpoints[i].name {
			return route.Own + "/{room}/" + endpoints[i].name
		}
	}
	return ""
}

// shownAddress returns the address of the client as the access log shows it.
func shownAddress(v *visit) string {
	addr := v.peer.Addr
	if !addr.IsValid() {
		return ""
	}
	if v.state.options.Access.Prefix {
		return client.Network(addr).String()
	}
	return addr.String()
}
