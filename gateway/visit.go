package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/token"
)

// visit is one request on its way. Visits are pooled: nothing of one may be kept after the handler has returned.
type visit struct {
	g     *Gateway
	state *state
	req   *proxy.Request
	res   *fasthttp.Response   // ours, where the origin does not answer
	ctx   *fasthttp.RequestCtx // nil where the request is served without fasthttp
	start time.Time

	target []byte // as it was sent, in origin form
	host   []byte // in lower case, without port
	peer   client.Peer
	room   *room
	jar    client.Jar
	who    client.Kind
	now    int64 // µs of Redis's clock

	promised wait  // on joining, for the token
	used     int64 // seconds of session.max, likewise

	outcome  outcome
	left     bool  // to fasthttp: nothing was done
	answered bool  // an answer has gone out; there is no other
	code     int   // of that answer
	sent     int64 // its body's bytes

	origin  bool // the JSON answer may be read by the page of cors_origins that asked
	cookies [3]setCookie
	nset    int
	private bool   // a first pass is among the cookies: the answer is for nobody else
	newPass []byte // for X-Waiting-Room-Pass

	shut     coming // of a room that is closed: until when
	keeps    bool   // the place of the ticket that it brought to a closed room
	lobby    bool   // the page itself was asked for: there is no request to let through
	to       proxy.Forward
	onHeader func(*fasthttp.ResponseHeader) // originHeader, bound once
	direct   *fasthttp.Response             // res where ctx is nil
	account  account
	unfit    *problem // why a token that verifies does not count
	forgery  bool     // a token has a wrong signature: no other is looked at, as each look may cost as much as ten requests
	session  bool     // sid is set
	hint     string   // where a problem says that its challenge is
	sid      token.ID
	sidBuf   [22]byte

	readings                         route.Readings // of the path
	hostBuf, body, token, pass, text []byte
	nonceBuf                         [22]byte
	bindText                         []byte // of bindBuf
	bindBuf                          [bindSize]byte
	bindKnown                        bool
	ended                            []byte // a pass that ended or was revoked; it points into the request
}

// setCookie is a Set-Cookie value to send.
type setCookie struct{ value []byte }

func (g *Gateway) acquire(req *proxy.Request) *visit {
	v := g.visits.Get().(*visit)
	v.g, v.req, v.state, v.start = g, req, g.state.Load(), time.Now()
	v.res = v.direct
	return v
}

func (g *Gateway) release(v *visit) {
	readings, hostBuf, body, tok, pass, text, cookies := v.readings, v.hostBuf, v.body, v.token, v.pass, v.text, v.cookies
	*v = visit{onHeader: v.onHeader, direct: v.direct, readings: readings, hostBuf: hostBuf[:0], token: tok[:0], pass: pass[:0], text: text[:0], cookies: cookies}
	if cap(body) <= 64<<10 {
		v.body = body[:0]
	}
	g.visits.Put(v)
}

// names are the room's cookies as this visitor's connection has them.
func (v *visit) names() *client.CookieNames { return v.room.names(v.peer.Secure) }

// cookie puts a cookie on the answer.
func (v *visit) cookie(name string, value []byte, maxAge int64) {
	at := v.nset
	for i := range v.cookies[:v.nset] { // the newest of a name counts
		if sameCookie(v.cookies[i].value, name) {
			at = i
		}
	}
	c := &v.cookies[at]
	c.value = client.AppendCookie(c.value[:0], name, value, maxAge, v.state.options.SameSite, v.peer.Secure)
	v.nset = max(v.nset, at+1)
}

func sameCookie(value []byte, name string) bool {
	return len(value) > len(name) && value[len(name)] == '=' && string(value[:len(name)]) == name
}

// day is how long a waiting token and its cookies live after the last renewal, in seconds.
const day = 24 * 3600

// client tells who may repeat a claim: whoever brings the account, else whoever holds the nonce cookie or, without
// cookies, the same network with the same user agent.
func (v *visit) client() admission.Client {
	v.text = append(v.text[:0], v.room.id...)
	if v.account.state == accountKnown {
		v.text = append(append(v.text, "\x00account\x00"...), v.account.base[:]...)
	} else if nonce := v.jar.Nonce.First(); len(nonce) > 0 && len(nonce) <= 64 {
		v.text = append(append(v.text, "\x00nonce\x00"...), nonce...)
	} else {
		v.text = append(v.text, "\x00network\x00"...)
		v.text = client.Network(v.peer.Addr).Addr().AppendTo(v.text)
		v.text = append(append(v.text, 0), v.req.Peek("user-agent")...)
	}
	sum := sha256.Sum256(v.text)
	return admission.Client(sum[:16])
}

// remember gives a client that keeps cookies a nonce of its own, if it has none. Call it before client.
func (v *visit) remember() {
	if len(v.jar.Nonce.All()) > 0 {
		return
	}
	var b [16]byte
	rand.Read(b[:])
	base64.RawURLEncoding.Encode(v.nonceBuf[:], b[:])
	v.jar.Nonce.Add(v.nonceBuf[:])
	v.cookie(v.names().Nonce, v.nonceBuf[:], day)
}

// findPass gives the first valid pass among what the request carries.
func (v *visit) findPass() (token.Pass, bool) {
	if h := v.req.Peek("x-waiting-room-pass"); len(h) > 0 {
		if p, ok := v.verifyPass(h); ok {
			return p, true
		}
	}
	for _, raw := range v.jar.Pass.All() {
		if p, ok := v.verifyPass(raw); ok {
			return p, true
		}
	}
	return token.Pass{}, false
}

// rejected counts a token that does not verify.
func (v *visit) rejected(err error) {
	v.forgery = v.forgery || errors.Is(err, token.ErrSignature)
	v.g.metrics.reject(token.Reason(err))
}

func (v *visit) verifyPass(raw []byte) (token.Pass, bool) {
	if v.forgery {
		return token.Pass{}, false
	}
	p, err := v.g.cache.VerifyPass(raw, v.room.id, v.now/1e6)
	if errors.Is(err, token.ErrExpired) {
		p, err = v.beforeStep(raw)
	}
	if err != nil {
		if errors.Is(err, token.ErrExpired) && v.ended == nil {
			v.ended = raw
		}
		v.rejected(err)
		return p, false
	}
	if !v.fitsPass(&p) {
		v.g.metrics.reject("bind")
		return p, false
	}
	if v.room.line.Revoked(admission.ID(p.Session)) {
		v.ended = raw
		return p, false
	}
	return p, true
}

// beforeStep verifies a pass that has ended by Redis's clock as it is, but was signed before that stepped forward.
func (v *visit) beforeStep(raw []byte) (token.Pass, error) {
	by, at := v.room.line.Stepped()
	if by == 0 {
		return token.Pass{}, token.ErrExpired
	}
	p, err := v.g.cache.VerifyPass(raw, v.room.id, (v.now-by)/1e6)
	if err == nil && p.Expires > at/1e6+int64(v.room.line.Snapshot().Policy.SessionTTL/time.Second) {
		return token.Pass{}, token.ErrExpired // it was signed since
	}
	return p, err
}

// findTicket gives the first valid waiting token among what the request carries, and whether it carries any. The
// Authorization header is looked at under /.waiting-room/ only: elsewhere it is the origin's.
func (v *visit) findTicket(authorization bool) (w token.Waiting, ok, any bool) {
	q := v.req
	try := func(raw []byte) bool {
		var err error
		any = true
		if v.forgery {
			return false
		}
		if w, err = v.g.cache.VerifyWaiting(raw, v.room.id, v.now/1e6); err != nil {
			v.rejected(err)
			return false
		}
		if !v.fitsWaiting(&w) {
			v.g.metrics.reject("bind")
			v.unfit = problemBound
			return false
		}
		if w.Account && v.account.state == accountKnown && !v.owns(&w) {
			v.unfit = problemOtherAccount
			return false
		}
		v.promised, v.used = promise(&w), w.Used
		return true
	}
	if raw := q.Peek("x-waiting-room-token"); len(raw) > 0 && try(raw) {
		return w, true, true
	}
	if authorization {
		raw := bearer(q)
		theirs := v.room.identity != nil && v.room.identity.keys != nil && !token.Ours(raw)
		if len(raw) > 0 && !theirs && try(raw) {
			return w, true, true
		}
	}
	for _, raw := range v.jar.Ticket.All() {
		if try(raw) {
			return w, true, true
		}
	}
	return token.Waiting{}, false, any
}

// ticket returns what a waiting token claims, for the line. seconds and told are the polling interval and the wait that the
// answer is about to advise.
func (v *visit) ticket(w *token.Waiting, seconds int, told wait) admission.Ticket {
	return ticketOf(w, seconds, told, v.client())
}

func ticketOf(w *token.Waiting, seconds int, told wait, client admission.Client) admission.Ticket {
	t := admission.Ticket{
		ID: admission.ID(w.ID), Order: w.Order, Seen: w.Seen, Hold: time.Duration(min(w.Hold, day)) * time.Second, Heard: w.Heard, Epoch: w.Epoch, Fence: w.Fence,
		Interval: time.Duration(seconds) * time.Second, Client: client, Joined: w.IssuedAt,
	}
	if told.known {
		t.Wait = time.Duration(max(1, told.seconds)) * time.Second
	}
	if w.AddrHash != "" && !t.Counted() {
		if raw, err := base64.RawURLEncoding.DecodeString(w.AddrHash); err == nil {
			t.Address = string(raw)
		}
	}
	return t
}

// addressOf is the claim ah of a ticket's token: one that was counted needs none.
func addressOf(t *admission.Ticket) string {
	if t.Address == "" || t.Counted() {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(t.Address))
}

// sign makes the waiting token of a ticket and puts it into v.token and its cookie. joined is in seconds of Redis's
// clock.
func (v *visit) sign(t *admission.Ticket, joined int64) token.Waiting {
	w := token.Waiting{
		ID: token.ID(t.ID), Room: v.room.id, Order: t.Order, Seen: t.Seen, Hold: int64(t.Hold / time.Second), Heard: t.Heard, Epoch: t.Epoch, Fence: t.Fence,
		IssuedAt: joined, Expires: v.now/1e6 + day, AddrHash: addressOf(t), Bind: string(v.bind()),
		Account: v.account.state == accountKnown && v.ours(t.ID), Used: v.used,
	}
	if p := &v.promised; p.known {
		w.Promised, w.PromisedLow, w.PromisedHigh = p.seconds, p.low, p.high
	}
	v.token = v.g.cache.Ring().AppendWaiting(v.token[:0], &w)
	v.cookie(v.names().Ticket, v.token, day)
	return w
}

// admit makes the pass of a session and puts it into v.pass and its cookie.
func (v *visit) admit(s *admission.Standing) token.Pass {
	policy := &v.room.line.Snapshot().Policy
	now := v.now / 1e6
	p := token.Pass{
		ID: randomID(), Session: token.ID(s.Ticket.ID), Room: v.room.id, IssuedAt: now - v.used, Bind: string(v.bind()), Off: s.Offline,
	}
	p.Expires = now + max(1, v.life(policy, p.IssuedAt, now))
	p.Order, p.Fence = v.arrived(s)
	v.pass = v.g.cache.Ring().AppendPass(v.pass[:0], &p)
	v.passCookie(&p)
	v.private = true
	return p
}

// life is for how many seconds from now a pass of that age counts: the session's ttl, within its most.
func (v *visit) life(policy *admission.Policy, issued, now int64) int64 {
	life := max(1, int64(policy.SessionTTL/time.Second))
	if most := int64(v.room.options.MaxSession / time.Second); most > 0 {
		life = min(life, issued+most-now)
	}
	return life
}

func randomID() (id token.ID) {
	rand.Read(id[:])
	return id
}

// joinedAt is when a ticket was taken, in µs of Redis's clock: its order where that is of the same second (order time is
// Redis's clock as long as that never went back), else the second.
func joinedAt(w *token.Waiting) int64 {
	if w.Order/1e6 == w.IssuedAt {
		return w.Order
	}
	return w.IssuedAt * 1e6
}

// joinedSecond is when a ticket of that order was taken, in seconds of Redis's clock. As long as that never went back it is
// order time, but for the error of estimating them: then the order itself is the time.
func (v *visit) joinedSecond(order int64) int64 {
	now := v.room.line.Now()
	if order == 0 || now == 0 {
		return v.now / 1e6
	}
	if apart := v.room.line.RedisNow() - now; apart > -clockError && apart < clockError {
		return order / 1e6
	}
	return (v.now - max(0, now-order)) / 1e6
}

// clockError bounds how far two estimates of one clock are apart, in µs.
const clockError = 100_000
