package gateway

import (
	"crypto/rand"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/span"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

// visit is one request on its way: its facts, the check of its tokens, what the visitor receives, and the response. Visits are
// pooled: nothing of a visit may be kept after the request.
type visit struct {
	g *Gateway
	request
	tokens  tokenCheck
	grant   grant
	out     answer.Writer
	ctx     *fasthttp.RequestCtx // nil where the request is served without fasthttp
	outcome outcome
	left    bool // to another handler

	isCheck    bool       // another proxy asks about the request, which it forwards itself
	cookieless bool       // that proxy sends no cookie of a passing check to the visitor
	call       check.Call // the check, if it is not an HTTP request

	described *wire.Description // memory of described requests

	trace    visitTrace
	proxied  proxy.Forward
	onHeader func(*fasthttp.ResponseHeader) // originHeader, bound once
}

func (g *Gateway) acquire(req *wire.Request, ctx *fasthttp.RequestCtx) *visit {
	v := g.visits.Get().(*visit)
	v.g, v.req, v.state, v.ctx, v.start = g, req, g.state.Load(), ctx, time.Now()
	v.out.Begin(req, ctx, v.start)
	if t := v.state.options.Tracer; t != nil {
		v.trace.Request = span.New(t)
	}
	v.tokens.g, v.tokens.r, v.tokens.trace = g, &v.request, &v.trace
	v.grant.g, v.grant.r, v.grant.out = g, &v.request, &v.out
	return v
}

func (g *Gateway) release(v *visit) {
	v.request.clear()
	v.tokens, v.grant = tokenCheck{}, grant{token: v.grant.token[:0], pass: v.grant.pass[:0]}
	v.g, v.ctx, v.outcome, v.left, v.proxied = nil, nil, proxied, false, proxy.Forward{}
	v.isCheck, v.cookieless, v.call = false, false, nil
	if v.trace.On() {
		v.trace = visitTrace{}
	}
	v.out.Reset()
	g.visits.Put(v)
}

func randomID() (id token.ID) {
	rand.Read(id[:])
	return id
}
