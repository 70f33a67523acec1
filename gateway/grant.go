package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/token"
)

// grant is what the visitor receives with the response: signed tokens and their cookies.
type grant struct {
	g   *Gateway
	r   *request
	out *answer.Writer

	token, pass []byte // signed
	newNonce    [22]byte
	hasNewNonce bool
	newSession  bool     // the pass is the first of a session: no cache may store the response
	session     [22]byte // memory for the text of the session's id
}

// lineage is what the tokens of a ticket or session keep of its beginning.
type lineage struct {
	announced forecast.Wait // on joining
	used      int64         // seconds of session.max that earlier sessions have used
}

func lineageOf(w *token.Waiting) lineage { return lineage{forecast.Announced(w), w.Used} }

// signTicket signs the waiting token of a ticket and adds its cookie. taken is the time of joining, in seconds of Redis's clock.
func (n *grant) signTicket(t *admission.Ticket, taken int64, l lineage) token.Waiting {
	w := token.Waiting{
		ID: token.ID(t.ID), Room: n.r.room.id, Order: t.Order, Seen: t.Seen, Hold: int64(t.Hold / time.Second), Heard: t.Heard, Epoch: t.Epoch, Fence: t.Fence,
		IssuedAt: taken, Expires: n.r.now/1e6 + day, AddrHash: addressClaim(t), Bind: string(n.r.binding.Claim()),
		Account: n.r.account.state == accountKnown && n.r.account.owns(t.ID), Used: l.used,
	}
	if p := &l.announced; p.Known {
		w.Promised, w.PromisedLow, w.PromisedHigh = p.Seconds, p.Low, p.High
	}
	n.token = n.g.cache.Ring().AppendWaiting(n.token[:0], &w)
	n.cookie(n.r.names().Ticket, n.token, day)
	n.remember(w.ID)
	return w
}

// renewTicket signs the token of a ticket that the store has renewed.
func (n *grant) renewTicket(w *token.Waiting, t *admission.Ticket) {
	*w = n.signTicket(t, w.IssuedAt, lineageOf(w))
}

// ticketOf returns the ticket of a waiting token, for the store. The response will advise seconds as the poll interval and announced
// as the wait.
func ticketOf(w *token.Waiting, seconds int, announced forecast.Wait, client admission.Client) admission.Ticket {
	t := admission.Ticket{
		ID: admission.ID(w.ID), Order: w.Order, Seen: w.Seen, Hold: time.Duration(min(w.Hold, day)) * time.Second, Heard: w.Heard, Epoch: w.Epoch, Fence: w.Fence,
		Interval: time.Duration(seconds) * time.Second, Client: client, Joined: w.IssuedAt,
	}
	if announced.Known {
		t.Wait = time.Duration(max(1, announced.Seconds)) * time.Second
	}
	if w.AddrHash != "" && !t.Counted() {
		if raw, err := base64.RawURLEncoding.DecodeString(w.AddrHash); err == nil {
			t.Address = string(raw)
		}
	}
	return t
}

// addressClaim returns the claim ah of the token of a ticket, empty where the join limits have counted the ticket.
func addressClaim(t *admission.Ticket) string {
	if t.Address == "" || t.Counted() {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(t.Address))
}

// signPass signs the first pass of a session and adds its cookie. used is the part of session.max that earlier
// sessions have used, in seconds.
func (n *grant) signPass(s *admission.Standing, used int64) token.Pass {
	now := n.r.now / 1e6
	p := token.Pass{
		ID: randomID(), Session: token.ID(s.Ticket.ID), Room: n.r.room.id, IssuedAt: now - used, Bind: string(n.r.binding.Claim()), Off: s.Offline,
	}
	policy := &n.r.room.queue.Snapshot().Policy
	p.Expires = now + max(1, n.r.sessionLife(policy, p.IssuedAt, now))
	if p.Live = policy.PassLife > 0; p.Live {
		n.r.room.store.Touch(s.Ticket.ID, s.Offline) // this gateway then knows of the session
	}
	p.Order, p.Fence = n.r.arrivedAt(s)
	p.Claimed = s.ClaimedAt
	n.pass = n.g.cache.Ring().AppendPass(n.pass[:0], &p)
	n.passCookie(&p)
	n.remember(p.Session)
	n.newSession = true
	return p
}

// arrivedAt returns the order and the fence that a pass keeps of its visitor: those of the ticket or, if the store has not confirmed
// the ticket, the time of the admission, which is never earlier.
func (r *request) arrivedAt(s *admission.Standing) (order, fence int64) {
	if t := &s.Ticket; t.Order > 0 && t.Fence > 0 && (t.Address == "" || t.Counted()) { // a join limit may give an uncounted ticket a later order
		return t.Order, t.Fence
	}
	if fence = r.room.queue.Snapshot().Fence; fence == 0 || s.AdmittedAt == 0 {
		return 0, 0
	}
	return r.room.queue.Now() - max(0, r.now-s.AdmittedAt), fence
}

// renewPass signs a pass again, until expires, and reports whether its end is later than before.
func (n *grant) renewPass(p *token.Pass, expires int64) (longer bool) {
	if expires <= p.Expires && !n.r.binding.Changes(p.Bind) {
		return false // it has reached session.max
	}
	renewed := *p
	renewed.Expires, renewed.Bind = max(expires, p.Expires), string(n.r.binding.Claim())
	renewed.Live = p.Live || n.r.room.queue.Snapshot().Policy.PassLife > 0
	renewed.Off = n.r.room.queue.Age() > n.r.room.queue.Snapshot().Policy.SessionTTL
	n.pass = n.g.cache.Ring().AppendPass(n.pass[:0], &renewed)
	n.passCookie(&renewed)
	n.remember(p.Session)
	if len(n.r.req.Peek("x-waiting-room-pass")) > 0 {
		n.out.Pass(n.pass)
	}
	return expires > p.Expires
}

// remember notes the address of the holder of a ticket or session for operators, for as long as the place of a silent visitor is kept.
// Polls that are answered from memory renew no token, so they are not noted.
func (n *grant) remember(id token.ID) {
	n.g.meters.clients.Note(n.r.room.id, id, n.r.peer.Addr, n.r.now, n.r.room.queue.Snapshot().Policy.Absence)
}

// passCookie adds the cookie of a pass. The cookie outlives the pass by absence, the time for which an ended pass keeps an order.
func (n *grant) passCookie(p *token.Pass) {
	absence := int64(n.r.room.queue.Snapshot().Policy.Absence.Seconds())
	n.cookie(n.r.names().Pass, n.pass, p.Expires-n.r.now/1e6+absence)
}

// cookie adds a cookie to the response. maxAge is in seconds; 0 deletes it.
func (n *grant) cookie(name string, value []byte, maxAge int64) {
	n.out.Cookie(name, value, maxAge, n.r.state.options.SameSite, n.r.peer.Secure)
}

// client returns the identity that may repeat a claim: of the account, else of the nonce cookie or, without cookies, of the network
// with the user agent.
func (n *grant) client() admission.Client {
	b := append(n.r.memory[1][:0], n.r.room.id...)
	switch nonce := n.nonce(); {
	case n.r.account.state == accountKnown:
		b = append(append(b, "\x00account\x00"...), n.r.account.base[:]...)
	case len(nonce) > 0 && len(nonce) <= 64:
		b = append(append(b, "\x00nonce\x00"...), nonce...)
	default:
		b = append(b, "\x00network\x00"...)
		b = client.Network(n.r.peer.Addr).Addr().AppendTo(b)
		b = append(append(b, 0), n.r.req.Peek("user-agent")...)
	}
	n.r.memory[1] = b
	sum := sha256.Sum256(b)
	return admission.Client(sum[:16])
}

// nonce returns the nonce of the client, from its cookie or from this response.
func (n *grant) nonce() []byte {
	if n.hasNewNonce {
		return n.newNonce[:]
	}
	return n.r.jar.Nonce.First()
}

// giveNonce adds a nonce cookie for a client that has none. Call it before client.
func (n *grant) giveNonce() {
	if len(n.nonce()) > 0 {
		return
	}
	var b [16]byte
	rand.Read(b[:])
	base64.RawURLEncoding.Encode(n.newNonce[:], b[:])
	n.hasNewNonce = true
	n.cookie(n.r.names().Nonce, n.newNonce[:], day)
}

// giveNonceAfter gives a nonce after a join that waits. If the store may have given the place a session that this gateway does not know,
// the session is of the client of the join, and a nonce would make its next poll one of another client.
func (n *grant) giveNonceAfter(s *admission.Standing) {
	if !s.Unsure {
		n.giveNonce()
	}
}
