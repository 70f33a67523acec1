package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

// visit is one request on its way: its facts, what its tokens are worth, and the response. Visits are pooled: nothing of one
// may be kept after the request.
type visit struct {
	g *Gateway
	request
	tokens  tokenCheck
	grant   grant
	out     answer.Writer
	ctx     *fasthttp.RequestCtx // nil where the request is served without fasthttp
	outcome outcome
	left    bool // to another handler

	proxied  proxy.Forward
	onHeader func(*fasthttp.ResponseHeader) // originHeader, bound once
}

// grant is what the visitor is given with the response, and its memory.
type grant struct {
	token, pass []byte // signed
	nonce       [22]byte
	hasNonce    bool
	newSession  bool // the pass is the first of a session: the response is for nobody else
	session     [22]byte
}

func (g *Gateway) acquire(req *wire.Request, ctx *fasthttp.RequestCtx) *visit {
	v := g.visits.Get().(*visit)
	v.g, v.req, v.state, v.ctx, v.start = g, req, g.state.Load(), ctx, time.Now()
	v.out.Begin(req, ctx, v.start)
	return v
}

func (g *Gateway) release(v *visit) {
	r, token, pass := &v.request, v.grant.token[:0], v.grant.pass[:0]
	v.request = request{readings: r.readings, binding: r.binding, memory: r.memory}
	v.tokens, v.grant = tokenCheck{}, grant{token: token, pass: pass}
	v.g, v.ctx, v.outcome, v.left, v.proxied = nil, nil, proxied, false, proxy.Forward{}
	v.out.Reset()
	g.visits.Put(v)
}

// cookie adds a cookie to the response. maxAge is in seconds; 0 deletes it.
func (v *visit) cookie(name string, value []byte, maxAge int64) {
	v.out.Cookie(name, value, maxAge, v.state.options.SameSite, v.peer.Secure)
}

// client returns who may repeat a claim: whoever has the account, else whoever has the nonce cookie or, without cookies, the
// same network with the same user agent.
func (v *visit) client() admission.Client {
	b := append(v.memory[1][:0], v.room.id...)
	switch nonce := v.nonce(); {
	case v.account.state == accountKnown:
		b = append(append(b, "\x00account\x00"...), v.account.base[:]...)
	case len(nonce) > 0 && len(nonce) <= 64:
		b = append(append(b, "\x00nonce\x00"...), nonce...)
	default:
		b = append(b, "\x00network\x00"...)
		b = client.Network(v.peer.Addr).Addr().AppendTo(b)
		b = append(append(b, 0), v.req.Peek("user-agent")...)
	}
	v.memory[1] = b
	sum := sha256.Sum256(b)
	return admission.Client(sum[:16])
}

// nonce returns the client's nonce: that of its cookie, or one that the response gives it.
func (v *visit) nonce() []byte {
	if v.grant.hasNonce {
		return v.grant.nonce[:]
	}
	return v.jar.Nonce.First()
}

// giveNonce gives a client that may keep cookies a nonce of its own, if it has none. Call it before client.
func (v *visit) giveNonce() {
	if len(v.nonce()) > 0 {
		return
	}
	var b [16]byte
	rand.Read(b[:])
	base64.RawURLEncoding.Encode(v.grant.nonce[:], b[:])
	v.grant.hasNonce = true
	v.cookie(v.names().Nonce, v.grant.nonce[:], day)
}

func randomID() (id token.ID) {
	rand.Read(id[:])
	return id
}
