package gateway

import (
	"encoding/base64"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/token"
)

// lineage is what a ticket's or session's tokens keep of how it began.
type lineage struct {
	announced forecast.Wait // on joining
	used      int64         // seconds of session.max that earlier sessions have used
}

func lineageOf(w *token.Waiting) lineage { return lineage{forecast.Announced(w), w.Used} }

// signTicket signs the waiting token of a ticket and adds its cookie. taken is in seconds of Redis's clock.
func (v *visit) signTicket(t *admission.Ticket, taken int64, l lineage) token.Waiting {
	w := token.Waiting{
		ID: token.ID(t.ID), Room: v.room.id, Order: t.Order, Seen: t.Seen, Hold: int64(t.Hold / time.Second), Heard: t.Heard, Epoch: t.Epoch, Fence: t.Fence,
		IssuedAt: taken, Expires: v.now/1e6 + day, AddrHash: addressClaim(t), Bind: string(v.binding.Claim()),
		Account: v.account.state == accountKnown && v.account.owns(t.ID), Used: l.used,
	}
	if p := &l.announced; p.Known {
		w.Promised, w.PromisedLow, w.PromisedHigh = p.Seconds, p.Low, p.High
	}
	v.grant.token = v.g.cache.Ring().AppendWaiting(v.grant.token[:0], &w)
	v.cookie(v.names().Ticket, v.grant.token, day)
	return w
}

// renewTicket signs a ticket's token again, as the store has renewed it.
func (v *visit) renewTicket(w *token.Waiting, t *admission.Ticket) {
	*w = v.signTicket(t, w.IssuedAt, lineageOf(w))
}

// ticketOf returns the ticket of a waiting token, for the store. seconds and announced are the poll interval and the wait that
// the response is going to advise.
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

// addressClaim returns the claim ah of a ticket's token: one that was counted needs none.
func addressClaim(t *admission.Ticket) string {
	if t.Address == "" || t.Counted() {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(t.Address))
}

// signPass signs the first pass of a session and adds its cookie. used is what earlier sessions have used of session.max.
func (v *visit) signPass(s *admission.Standing, used int64) token.Pass {
	now := v.now / 1e6
	p := token.Pass{
		ID: randomID(), Session: token.ID(s.Ticket.ID), Room: v.room.id, IssuedAt: now - used, Bind: string(v.binding.Claim()), Off: s.Offline,
	}
	p.Expires = now + max(1, v.sessionLife(&v.room.queue.Snapshot().Policy, p.IssuedAt, now))
	p.Order, p.Fence = v.arrivedAt(s)
	v.grant.pass = v.g.cache.Ring().AppendPass(v.grant.pass[:0], &p)
	v.passCookie(&p)
	v.grant.newSession = true
	return p
}

// arrivedAt returns the order and the fence that a pass keeps of its visitor's arrival: those of the ticket or, where the store
// has confirmed none, the moment of the admission, which is never earlier.
func (v *visit) arrivedAt(s *admission.Standing) (order, fence int64) {
	if t := &s.Ticket; t.Order > 0 && t.Fence > 0 && (t.Address == "" || t.Counted()) { // a join limit may postpone a ticket that is not counted
		return t.Order, t.Fence
	}
	if fence = v.room.queue.Snapshot().Fence; fence == 0 || s.AdmittedAt == 0 {
		return 0, 0
	}
	return v.room.queue.Now() - max(0, v.now-s.AdmittedAt), fence
}

// renewPass signs a pass again, until expires, and reports whether it is good for longer than before.
func (v *visit) renewPass(p *token.Pass, expires int64) (longer bool) {
	if expires <= p.Expires && !v.binding.Changes(p.Bind) {
		return false // it has reached session.max
	}
	renewed := *p
	renewed.Expires, renewed.Bind = max(expires, p.Expires), string(v.binding.Claim())
	renewed.Off = v.room.queue.Age() > v.room.queue.Snapshot().Policy.SessionTTL
	v.grant.pass = v.g.cache.Ring().AppendPass(v.grant.pass[:0], &renewed)
	v.passCookie(&renewed)
	if len(v.req.Peek("x-waiting-room-pass")) > 0 {
		v.out.Pass(v.grant.pass)
	}
	return expires > p.Expires
}

// passCookie adds the cookie of a pass. It outlives the pass by absence, for as long as the pass keeps its visitor's order.
func (v *visit) passCookie(p *token.Pass) {
	absence := int64(v.room.queue.Snapshot().Policy.Absence.Seconds())
	v.cookie(v.names().Pass, v.grant.pass, p.Expires-v.now/1e6+absence)
}
