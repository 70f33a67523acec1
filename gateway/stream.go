package gateway

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/token"
)

const (
	heartbeat   = 15 * time.Second // between two signs of life of a stream, at most
	lastMinute  = 60               // seconds of wait from which on every change is told
	nearest     = 50               // places from the head for which the same holds
	closeLook   = wheelStep        // between two looks then
	closeTell   = time.Second      // and between two events
	farLook     = 2 * time.Second  // between two looks otherwise
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

	tell    time.Duration // when it is told how it stands, whether that changed or not
	beat    time.Duration // when it gets a sign of life at the latest
	told    time.Duration // the last event
	next    time.Duration // from one look to the next
	stalled time.Duration // since when the client has not read; 0: it reads
	shown   int64         // the position last told
	opened  bool          // the lottery for which it waited without an order
	older   *stream       // of the same ticket
	ended   bool
}

// due tells whether there is something to tell, from what is known here: it waits for nothing.
func (st *stream) due(now time.Duration) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = true // the worker will find the fault, too
		}
	}()
	if now >= st.tell || now >= st.beat || st.stalled > 0 || st.room.line.Settled(admission.ID(st.waiting.ID)) {
		return true
	}
	o := st.room.outlook()
	p := st.room.prospect(o, st.waiting.Order)
	near := p.near()
	if st.waiting.Order == 0 && !st.opened && !o.gathers { // told at a moment of the spread, like those who poll
		st.opened = true
		st.tell = min(st.tell, now+time.Duration(rand.Float64()*float64(o.snapshot.Policy.Spread(o.snapshot.Prequeued)))) //nolint:gosec // spreads polls; nothing is kept safe by it
	}
	st.pace(near)
	return near && p.position != st.shown && now >= st.told+closeTell
}

// pace sets when the stream is looked at next.
func (st *stream) pace(near bool) {
	st.next = farLook
	if near {
		st.next = closeLook
	}
}

// step tells a client what there is to tell, and whether the stream goes on.
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
	o := st.room.outlook()
	p := st.room.prospect(o, st.waiting.Order)
	b, goOn := (*buf)[:0], true
	switch settled := st.room.line.Settled(admission.ID(st.waiting.ID)); {
	case settled, now >= st.tell:
		b, goOn = st.ask(b, ctx, g, o, &p, now)
	case p.near() && p.position != st.shown:
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
			st.told, st.shown = now, p.position
		}
	}
	st.pace(p.near())
	return goOn
}

// events are buffers in which they are put into words.
var events = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// near tells whether the turn may come before long.
func (p *prospect) near() bool {
	if p.gathering != nil {
		return p.gathering.Left <= lastMinute
	}
	if p.wait.known && p.wait.seconds <= lastMinute {
		return true
	}
	return p.position > 0 && (p.position <= nearest || !p.wait.known && p.position <= pace.Front)
}

// ask looks a stream's ticket up, which counts as hearing of the visitor, and appends what is to be told. goOn is false once
// the stream has nothing more to tell.
func (st *stream) ask(b []byte, ctx context.Context, g *Gateway, o *outlook, p *prospect, now time.Duration) (_ []byte, goOn bool) {
	r, w := st.room, &st.waiting
	if o.snapshot.Policy.Open() {
		out := r.status(o, w, &prospect{}, stateAdmitted, r.line.RedisNow()) // the room holds nobody up now
		return out.event(b, "admitted"), false
	}
	next := p.poll(g.random())
	standing, err := r.line.Check(ctx, ticketOf(w, next, p.wait, st.client))
	if err != nil {
		standing = admission.Standing{State: admission.Waiting}
	}
	switch standing.State {
	case admission.Waiting:
	case admission.Admitted, admission.Active:
		out := r.status(o, w, &prospect{}, stateAdmitted, r.line.RedisNow())
		out.admittedAt = standing.AdmittedAt
		return out.event(b, "admitted"), false
	default:
		out := r.status(o, w, &prospect{}, stateName(standing.State), r.line.RedisNow())
		out.reason, out.refresh = reasonOf(&standing), seconds(standing.Retry)
		return out.event(b, "status"), false
	}
	again := now < st.tell // only because something may have been settled
	var renewed []byte
	if standing.Renewed {
		t, unordered := &standing.Ticket, w.Order == 0
		w.Order, w.Seen, w.Heard, w.Hold, w.Epoch, w.Fence = t.Order, t.Seen, t.Heard, int64(t.Hold/time.Second), t.Epoch, t.Fence
		w.Expires = r.line.RedisNow()/1e6 + day
		w.AddrHash = addressOf(t)
		renewed = g.cache.Ring().AppendWaiting(make([]byte, 0, 512), w)
		*p = r.prospect(o, t.Order)
		if unordered {
			next = heldFor(t, p.poll(g.random()))
		}
	}
	if again && len(renewed) == 0 && (!p.near() || p.position == st.shown) {
		st.tell = min(st.tell, now+time.Duration(next)*time.Second) // the check counted on being asked again by then
		return b, true
	}
	st.tell = now + time.Duration(next)*time.Second
	out := st.state(o, p)
	out.refresh, out.token = next, renewed
	return out.event(b, "status"), true
}

// status appends how the ticket stands by what is known here.
func (st *stream) status(b []byte, o *outlook, p *prospect) []byte {
	out := st.state(o, p)
	out.refresh = max(1, int(p.interval))
	return out.event(b, "status")
}

func (st *stream) state(o *outlook, p *prospect) status {
	return st.room.status(o, &st.waiting, p, o.stateOf(st.waiting.Order), st.room.line.RedisNow())
}

func (s *status) event(b []byte, name string) []byte {
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	return append(s.append(b), "\n\n"...)
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
		proxy.Socket(st.conn).Close()
		return
	}
	_ = st.write(appendRetry(nil, time.Second+time.Duration(random*float64(spread)))) // it is closed next
}

func appendRetry(b []byte, after time.Duration) []byte {
	return append(strconv.AppendInt(append(b, "retry: "...), after.Milliseconds(), 10), "\n\n"...)
}
