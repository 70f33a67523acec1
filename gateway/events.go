package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/facts"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/sse"
	"github.com/anteroom/anteroom/token"
)

const (
	nearCheck = sse.NextCheck   // between two checks of a stream whose ticket is near the front
	nearEvent = time.Second     // between two events of such a stream
	farCheck  = 2 * time.Second // between two checks of the other streams
)

// serveEvents opens an event stream.
func serveEvents(v *visit) (decision, *answer.Problem) {
	w, p := v.tokens.needTicket()
	if p != nil {
		return decision{}, p
	}
	if _, p := readBody(v, bodyMax); p != nil { // nothing of the request may be left on a connection that becomes a stream
		return decision{}, p
	}
	address := proxy.ClientKey(v.peer.Addr)
	switch err := v.g.streams.Reserve(address); {
	case errors.Is(err, sse.ErrFull):
		return decision{}, answer.StreamsFull
	case err != nil:
		return decision{}, answer.ShuttingDown
	}
	w.Bind = string(v.binding.Claim())                                                                   // the next token has it
	e := &ticketEvents{g: v.g, room: v.room, waiting: w, client: v.grant.client(), facts: v.room.view()} // the first status has them
	return decision{action: doStream, outcome: waiting, stream: sse.NewStream(e, w.ID, address)}, nil
}

// startStream turns the connection into an event stream.
func (v *visit) startStream(st *sse.Stream) {
	header := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n" +
		"X-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\nX-Waiting-Room: waiting\r\nConnection: close\r\n")
	header = append(fasthttp.AppendHTTPDate(append(header, "Date: "...), time.Now()), "\r\n"...)
	if len(v.site) > 0 {
		header = append(header, "Vary: Cookie, Origin\r\nAccess-Control-Allow-Credentials: true\r\nAccess-Control-Allow-Origin: "...)
		header = append(append(header, v.site...), "\r\n"...)
	} else {
		header = append(header, "Vary: Cookie\r\n"...)
	}
	v.g.streams.Start(v.ctx, header, st)
}

// ticketEvents are the events of a ticket, for a stream. Times are those of gateway/sse.
type ticketEvents struct {
	g       *Gateway
	room    *room
	waiting token.Waiting
	client  admission.Client

	poll   time.Duration // when the store is asked next, and the status sent whether it has changed or not
	sent   time.Duration // the last event
	shown  int64         // the position last sent
	facts  *facts.View   // last sent
	opened bool          // the lottery for which the ticket waited without an order
}

// Due reports whether there is an event to send, from the snapshot alone.
func (e *ticketEvents) Due(now time.Duration) (due bool, next time.Duration) {
	if now >= e.poll || e.room.queue.Settled(admission.ID(e.waiting.ID)) {
		return true, 0
	}
	o := e.room.forecaster.Room()
	if e.room.view() != e.facts {
		return true, 0
	}
	p := e.room.forecaster.Ticket(o, e.waiting.Order)
	near := p.Near()
	if e.waiting.Order == 0 && !e.opened && !o.Prequeue { // spread like the polls of other visitors
		e.opened = true
		e.poll = min(e.poll, now+time.Duration(rand.Float64()*float64(o.Snapshot.Policy.Spread(o.Snapshot.Prequeued)))) //nolint:gosec // spreads polls; no security depends on it
	}
	return near && p.Position != e.shown && now >= e.sent+nearEvent, untilCheck(near)
}

func untilCheck(near bool) time.Duration {
	if near {
		return nearCheck
	}
	return farCheck
}

// AppendEvents appends the events that are due.
func (e *ticketEvents) AppendEvents(ctx context.Context, b []byte, now time.Duration) (_ []byte, next time.Duration, more bool) {
	r := e.g.state.Load().byID[e.room.id]
	if r == nil {
		return b, 0, false
	}
	e.room = r
	o := e.room.forecaster.Room()
	p := e.room.forecaster.Ticket(o, e.waiting.Order)
	more = true
	switch settled := e.room.queue.Settled(admission.ID(e.waiting.ID)); {
	case settled, now >= e.poll:
		b, more = e.ask(b, ctx, o, &p, now)
	case p.Near() && p.Position != e.shown:
		b = e.status(b, o, &p)
	}
	if more {
		b = e.appendFacts(b)
	}
	if len(b) > 0 {
		e.sent, e.shown = now, p.Position
	}
	return b, untilCheck(p.Near()), more
}

// ask checks the ticket in the store, which counts as a poll, and appends the event that follows. more is false after the last event.
func (e *ticketEvents) ask(b []byte, ctx context.Context, o *forecast.Room, p *forecast.Ticket, now time.Duration) (_ []byte, more bool) {
	r, w := e.room, &e.waiting
	if o.Snapshot.Policy.Open() {
		out := r.status(o, w, &forecast.Ticket{}, answer.StateAdmitted, r.queue.RedisNow()) // no pass is needed now
		return appendEvent(b, "admitted", &out), false
	}
	next := p.Poll(random())
	standing, err := r.store.Check(ctx, ticketOf(w, next, p.Wait, e.client))
	if err != nil {
		standing = admission.Standing{State: admission.Waiting}
	}
	switch standing.State {
	case admission.Waiting:
	case admission.Admitted, admission.Active:
		out := r.status(o, w, &forecast.Ticket{}, answer.StateAdmitted, r.queue.RedisNow())
		out.AdmittedAt = standing.AdmittedAt
		return appendEvent(b, "admitted", &out), false
	default:
		out := r.status(o, w, &forecast.Ticket{}, answer.StateName(standing.State), r.queue.RedisNow())
		out.Reason, out.Refresh = reasonOf(&standing), seconds(standing.Retry)
		return appendEvent(b, "status", &out), false
	}
	early := now < e.poll // asked only because the ticket may have been settled
	var renewed []byte
	if standing.Renewed {
		t, unordered := &standing.Ticket, w.Order == 0
		w.Order, w.Seen, w.Heard, w.Hold, w.Epoch, w.Fence = t.Order, t.Seen, t.Heard, int64(t.Hold/time.Second), t.Epoch, t.Fence
		w.Expires = r.queue.RedisNow()/1e6 + day
		w.AddrHash = addressClaim(t)
		renewed = e.g.cache.Ring().AppendWaiting(make([]byte, 0, 512), w)
		*p = r.forecaster.Ticket(o, t.Order)
		if unordered {
			next = forecast.PollWithin(t, p.Poll(random()))
		}
	}
	if early && len(renewed) == 0 && (!p.Near() || p.Position == e.shown) {
		e.poll = min(e.poll, now+time.Duration(next)*time.Second) // the store expects the next check by then
		return b, true
	}
	e.poll = now + time.Duration(next)*time.Second
	out := e.state(o, p)
	out.Refresh, out.Token = next, renewed
	return appendEvent(b, "status", &out), true
}

// status appends the status of the ticket from the snapshot.
func (e *ticketEvents) status(b []byte, o *forecast.Room, p *forecast.Ticket) []byte {
	out := e.state(o, p)
	out.Refresh = p.Interval()
	return appendEvent(b, "status", &out)
}

// appendFacts appends the version of facts that have changed; null if the store has lost them.
func (e *ticketEvents) appendFacts(b []byte) []byte {
	f := e.room.view()
	if f == e.facts {
		return b
	}
	e.facts = f
	b = append(b, "event: facts\ndata: "...)
	if f != nil {
		b = append(b, f.Member...)
	} else {
		b = append(b, "null"...)
	}
	return append(b, "\n\n"...)
}

func (e *ticketEvents) state(o *forecast.Room, p *forecast.Ticket) answer.Status {
	return e.room.status(o, &e.waiting, p, waitingState(o, e.waiting.Order), e.room.queue.RedisNow())
}

func appendEvent(b []byte, name string, s *answer.Status) []byte {
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	return append(s.Append(b), "\n\n"...)
}

// streamObserver counts and logs what happens to event streams.
type streamObserver struct{ *Gateway }

func (g streamObserver) StreamsOpen(n int) { g.metrics.Streams.Set(float64(n)) }

func (g streamObserver) StreamRefused() { g.metrics.StreamsRefused.Inc() }

func (g streamObserver) StreamFault(s sse.Source, fault any) {
	g.metrics.Panics.Inc()
	id := ""
	if e, ok := s.(*ticketEvents); ok {
		id = e.room.id
	}
	g.log.Error("fault in an event stream", "room", id, "fault", fault, "stack", string(debug.Stack()))
}
