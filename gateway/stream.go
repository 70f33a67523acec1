package gateway

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

const (
	heartbeat   = 15 * time.Second // between two signs of life of a stream, at most
	closeLook   = wheelStep        // between two checks of a stream that is near its turn
	closeTell   = time.Second      // and between two events
	farLook     = 2 * time.Second  // between two checks of the others
	streamWrite = 5 * time.Second  // the longest that a client may leave events unread

	// streamSilent is how long nothing may come back from a client's machine for what it was sent. A stream counts as hearing
	// of its visitor, and the system by itself would try to reach one that is gone for a quarter of an hour.
	streamSilent = time.Minute
)

// stream is one client's. It belongs to the loop while it is in the wheel, and to a worker from when it is due; mu of streams
// guards older and ended. Times are since streams.start.
type stream struct {
	conn    net.Conn
	room    *room
	waiting token.Waiting
	client  admission.Client
	address [16]byte // what the streams of one client are counted under

	tell    time.Duration // when its status is sent, whether that has changed or not
	beat    time.Duration // when it gets a sign of life at the latest
	told    time.Duration // the last event
	next    time.Duration // from one look to the next
	stalled time.Duration // since when the client has not read; 0: it reads
	shown   int64         // the position last sent
	opened  bool          // the lottery for which it waited without an order
	older   *stream       // of the same ticket
	ended   bool
}

// due reports whether there is news, from what this process knows: it never blocks.
func (st *stream) due(now time.Duration) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = true // the worker will find the fault, too
		}
	}()
	if now >= st.tell || now >= st.beat || st.stalled > 0 || st.room.queue.Settled(admission.ID(st.waiting.ID)) {
		return true
	}
	o := st.room.forecaster.Room()
	p := st.room.forecaster.Ticket(o, st.waiting.Order)
	near := p.Near()
	if st.waiting.Order == 0 && !st.opened && !o.Prequeue { // sent at a moment of the spread, like the polls of others
		st.opened = true
		st.tell = min(st.tell, now+time.Duration(rand.Float64()*float64(o.Snapshot.Policy.Spread(o.Snapshot.Prequeued)))) //nolint:gosec // spreads polls; nothing is kept safe by it
	}
	st.pace(near)
	return near && p.Position != st.shown && now >= st.told+closeTell
}

// pace sets when the stream is checked next.
func (st *stream) pace(near bool) {
	st.next = farLook
	if near {
		st.next = closeLook
	}
}

// step sends a client its news, and reports whether the stream goes on.
func (st *stream) step(ctx context.Context, g *Gateway, now time.Duration) bool {
	if !takes(st.conn) {
		// Nobody waits for it: it misses what it does not read, and not for long.
		if st.stalled == 0 {
			st.stalled = now
		}
		st.next = closeTell
		return now < st.stalled+streamWrite
	}
	st.stalled = 0
	if r := g.state.Load().byID[st.room.id]; r == nil {
		return false
	} else if r != st.room {
		st.room = r
	}
	buf := events.Get().(*[]byte)
	defer events.Put(buf)
	o := st.room.forecaster.Room()
	p := st.room.forecaster.Ticket(o, st.waiting.Order)
	b, goOn := (*buf)[:0], true
	switch settled := st.room.queue.Settled(admission.ID(st.waiting.ID)); {
	case settled, now >= st.tell:
		b, goOn = st.ask(b, ctx, g, o, &p, now)
	case p.Near() && p.Position != st.shown:
		b = st.status(b, o, &p)
	}
	if len(b) == 0 && now >= st.beat {
		b = append(b, ":\n\n"...)
	}
	if len(b) > 0 {
		*buf = b
		// Not all at the same time, as they may have come.
		st.beat = now + heartbeat - time.Duration(g.random()*float64(heartbeat/4))
		if st.write(b) != nil {
			return false
		}
		if len(b) > len(":\n\n") {
			st.told, st.shown = now, p.Position
		}
	}
	st.pace(p.Near())
	return goOn
}

// events are buffers in which events are composed.
var events = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// ask checks a stream's ticket, which counts as a heartbeat of the visitor, and appends the news. goOn is false once
// there will be no more news.
func (st *stream) ask(b []byte, ctx context.Context, g *Gateway, o *forecast.Room, p *forecast.Ticket, now time.Duration) (_ []byte, goOn bool) {
	r, w := st.room, &st.waiting
	if o.Snapshot.Policy.Open() {
		out := r.status(o, w, &forecast.Ticket{}, answer.StateAdmitted, r.queue.RedisNow()) // the room holds nobody up now
		return appendEvent(b, "admitted", &out), false
	}
	next := p.Poll(g.random())
	standing, err := r.store.Check(ctx, ticketOf(w, next, p.Wait, st.client))
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
	again := now < st.tell // only because something may have been settled
	var renewed []byte
	if standing.Renewed {
		t, unordered := &standing.Ticket, w.Order == 0
		w.Order, w.Seen, w.Heard, w.Hold, w.Epoch, w.Fence = t.Order, t.Seen, t.Heard, int64(t.Hold/time.Second), t.Epoch, t.Fence
		w.Expires = r.queue.RedisNow()/1e6 + day
		w.AddrHash = addressClaim(t)
		renewed = g.cache.Ring().AppendWaiting(make([]byte, 0, 512), w)
		*p = r.forecaster.Ticket(o, t.Order)
		if unordered {
			next = forecast.PollWithin(t, p.Poll(g.random()))
		}
	}
	if again && len(renewed) == 0 && (!p.Near() || p.Position == st.shown) {
		st.tell = min(st.tell, now+time.Duration(next)*time.Second) // the check counted on being asked again by then
		return b, true
	}
	st.tell = now + time.Duration(next)*time.Second
	out := st.state(o, p)
	out.Refresh, out.Token = next, renewed
	return appendEvent(b, "status", &out), true
}

// status appends how the ticket stands by what is known here.
func (st *stream) status(b []byte, o *forecast.Room, p *forecast.Ticket) []byte {
	out := st.state(o, p)
	out.Refresh = p.Interval()
	return appendEvent(b, "status", &out)
}

func (st *stream) state(o *forecast.Room, p *forecast.Ticket) answer.Status {
	return st.room.status(o, &st.waiting, p, waitingState(o, st.waiting.Order), st.room.queue.RedisNow())
}

func appendEvent(b []byte, name string, s *answer.Status) []byte {
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	return append(s.Append(b), "\n\n"...)
}

func (st *stream) write(b []byte) error {
	if err := st.conn.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return err
	}
	_, err := st.conn.Write(b)
	return err
}

// farewell asks a client to be back after a second, or up to that much later. One that does not read is not waited for.
func (st *stream) farewell(spread time.Duration, random float64) {
	if !takes(st.conn) {
		wire.Socket(st.conn).Close()
		return
	}
	_ = st.write(appendRetry(nil, time.Second+time.Duration(random*float64(spread)))) // it is closed next
}

func appendRetry(b []byte, after time.Duration) []byte {
	return append(strconv.AppendInt(append(b, "retry: "...), after.Milliseconds(), 10), "\n\n"...)
}
