package gateway

import (
	"container/heap"
	"context"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/token"
)

const (
	defaultStreams = 10_000
	heartbeat      = 15 * time.Second // between two signs of life of a stream
	lastMinute     = 60               // seconds of wait from which on every change is told
	nearest        = 50               // places from the head for which the same holds
	closeLook      = time.Second      // between two looks then
	farLook        = 2 * time.Second  // and otherwise
	streamWrite    = 5 * time.Second  // the longest that a client may leave an event unread
	streamWorkers  = 128              // streams that are looked at in the same moment
)

// streams are the open event streams. A stream is a connection taken from the server and a place in a heap, so that it
// costs no goroutine while nothing happens: one loop starts what is due.
type streams struct {
	g     *Gateway
	limit int

	mu     sync.Mutex
	queue  queue
	count  int // with those that are being opened and looked at
	open   map[*stream]struct{}
	closed bool
	wake   chan struct{}
	work   sync.WaitGroup
}

// stream is one client's.
type stream struct {
	conn    net.Conn
	room    *room
	waiting token.Waiting
	ticket  admission.Ticket

	due   time.Time // when it is looked at next
	tell  time.Time // when it is told how it stands, whether that changed or not
	beat  time.Time // when it gets a sign of life at the latest
	shown int64     // the position last told
	index int       // in the queue
	buf   []byte
}

func newStreams(g *Gateway, limit int) *streams {
	if limit <= 0 {
		limit = defaultStreams
	}
	g.metrics.streamsLimit.Set(float64(limit))
	return &streams{g: g, limit: limit, open: map[*stream]struct{}{}, wake: make(chan struct{}, 1)}
}

// reserve takes a place for one more stream.
func (s *streams) reserve() *problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return problemShuttingDown
	case s.count >= s.limit:
		s.g.metrics.streamsRefused.Inc()
		return problemStreams
	}
	s.count++
	s.g.metrics.streams.Set(float64(s.count))
	return nil
}

// put queues a stream, whose place was reserved. Where streams have been closed meanwhile it ends it.
func (s *streams) put(st *stream) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.end(st)
		return
	}
	defer s.mu.Unlock()
	s.open[st] = struct{}{}
	heap.Push(&s.queue, st)
	if st.index == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// end ends a stream. Its connection is closed without mu: a client can make that take seconds, and all other streams
// would wait.
func (s *streams) end(st *stream) {
	s.mu.Lock()
	s.forget(st)
	s.mu.Unlock()
	st.conn.Close()
}

// forget takes a stream off the books; mu is held.
func (s *streams) forget(st *stream) {
	delete(s.open, st)
	s.count--
	s.g.metrics.streams.Set(float64(s.count))
}

// run looks at what is due until ctx ends, and then ends all streams.
func (s *streams) run(ctx context.Context) {
	defer s.work.Wait()
	defer s.close()
	slots := make(chan struct{}, streamWorkers)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		s.mu.Lock()
		var next *stream
		sleep := time.Hour
		if len(s.queue) > 0 {
			if sleep = s.queue[0].due.Sub(now); sleep <= 0 {
				next = heap.Pop(&s.queue).(*stream)
			}
		}
		s.mu.Unlock()
		if next != nil {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				s.end(next)
				return
			}
			s.work.Go(func() {
				defer func() { <-slots }()
				s.visit(ctx, next)
			})
			continue
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// visit looks at a stream and puts it back, or ends it. A fault of the program ends the stream, not the process.
func (s *streams) visit(ctx context.Context, st *stream) {
	goOn := false
	defer func() {
		if fault := recover(); fault != nil {
			s.g.metrics.panics.Inc()
			s.g.log.Error("fault in an event stream", "room", st.room.id, "fault", fault, "stack", string(debug.Stack()))
		}
		if goOn {
			s.put(st)
		} else {
			s.end(st)
		}
	}()
	goOn = st.step(ctx, s.g, time.Now())
}

// close ends all streams and takes no more.
func (s *streams) close() {
	s.mu.Lock()
	s.closed = true
	idle := s.queue
	for _, st := range idle {
		s.forget(st)
	}
	s.queue = nil
	for st := range s.open { // being looked at: cut off a write
		st.conn.SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // it is closed next
	}
	s.mu.Unlock()
	var ends sync.WaitGroup
	for _, st := range idle { // side by side, because each may take its time
		ends.Go(func() {
			st.conn.Close()
		})
	}
	ends.Wait()
}

// step tells a client what there is to tell, and whether the stream goes on. Asking the line counts as hearing of the
// visitor; it is done when they are told how they stand, and at every look when their turn is near.
func (st *stream) step(ctx context.Context, g *Gateway, now time.Time) bool {
	o := st.room.outlook()
	p := st.room.prospect(o, st.waiting.Order)
	near := p.near()
	var err error
	switch {
	case near || !now.Before(st.tell):
		goOn, failed := st.ask(ctx, g, o, &p, near, now)
		if !goOn {
			return false
		}
		err = failed
	case !now.Before(st.beat):
		err = st.write(append(st.buf[:0], ":\n\n"...), now)
	}
	st.due = now.Add(farLook)
	if near {
		st.due = now.Add(closeLook)
	}
	if st.tell.Before(st.due) {
		st.due = st.tell
	}
	return err == nil
}

// near tells whether the turn may come before long.
func (p *prospect) near() bool {
	if p.wait.known && p.wait.seconds <= lastMinute {
		return true
	}
	return p.position > 0 && (p.position <= nearest || !p.wait.known && p.position <= pace.Front)
}

// ask looks a stream's ticket up and tells what changed. goOn is false once the stream has nothing more to tell.
func (st *stream) ask(ctx context.Context, g *Gateway, o *outlook, p *prospect, near bool, now time.Time) (goOn bool, err error) {
	r := st.room
	seconds := o.pace.Spread(p.interval, g.random())
	st.ticket.Interval = time.Duration(seconds) * time.Second
	standing, err := r.line.Check(ctx, st.ticket)
	if err != nil {
		standing = admission.Standing{State: admission.Waiting, Ticket: st.ticket}
	}
	out := r.status(o, &st.waiting, p, stateName(standing.State), r.line.RedisNow())
	switch {
	case standing.State == admission.Waiting:
	case standing.State == admission.Admitted, standing.State == admission.Active:
		out.state, out.position, out.eta = stateAdmitted, 0, wait{}
		out.admittedAt = standing.AdmittedAt
		return false, st.send("admitted", &out, now)
	default:
		out.position, out.eta, out.reason = 0, wait{}, reasonOf(&standing)
		return false, st.send("status", &out, now)
	}
	if standing.Renewed {
		t, w := standing.Ticket, &st.waiting
		w.Order, w.Seen, w.Epoch, w.Fence, w.Expires = t.Order, t.Seen, t.Epoch, t.Fence, r.line.RedisNow()/1e6+day
		out.token = g.cache.Ring().AppendWaiting(nil, w)
		t.Client = st.ticket.Client
		st.ticket = t
		*p = r.prospect(o, t.Order)
		out.position, out.eta = p.position, p.wait
	}
	out.refresh = seconds
	if now.Before(st.tell) && len(out.token) == 0 && (!near || p.position == st.shown) && now.Before(st.beat) {
		return true, nil
	}
	st.tell, st.shown = now.Add(st.ticket.Interval), p.position
	return true, st.send("status", &out, now)
}

func (st *stream) send(event string, s *status, now time.Time) error {
	b := append(append(append(st.buf[:0], "event: "...), event...), "\ndata: "...)
	b = append(s.append(b), "\n\n"...)
	return st.write(b, now)
}

func (st *stream) write(b []byte, now time.Time) error {
	st.buf = b[:0]
	st.beat = now.Add(heartbeat)
	if err := st.conn.SetWriteDeadline(now.Add(streamWrite)); err != nil {
		return err
	}
	_, err := st.conn.Write(b)
	return err
}

// serveEvents turns the connection into an event stream.
func (v *visit) serveEvents() {
	w, ok := v.need()
	if !ok {
		return
	}
	if _, ok := v.readBody(); !ok { // nothing of the request may be left on a connection that is the stream's from now on
		return
	}
	if p := v.g.streams.reserve(); p != nil {
		v.refuse(p, "", "")
		return
	}
	st := &stream{room: v.room, waiting: w, ticket: v.ticket(&w, 0)}
	header := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n" +
		"X-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\nX-Waiting-Room: waiting\r\nConnection: close\r\n")
	header = append(fasthttp.AppendHTTPDate(append(header, "Date: "...), time.Now()), "\r\n"...)
	if v.origin {
		header = append(header, "Vary: Cookie, Origin\r\nAccess-Control-Allow-Credentials: true\r\nAccess-Control-Allow-Origin: "...)
		header = append(append(header, v.req.Peek("origin")...), "\r\n"...)
	} else {
		header = append(header, "Vary: Cookie\r\n"...)
	}
	header = append(header, "\r\nretry: 3000\n\n"...)
	v.ctx.HijackSetNoResponse(true)
	s := v.g.streams
	v.ctx.Hijack(func(c net.Conn) {
		if h, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
			c = h.UnsafeConn() // so that nothing of the server's is held while the stream lasts
		}
		st.conn = c
		if st.write(header, time.Now()) != nil {
			s.end(st)
			return
		}
		st.buf = nil
		s.put(st)
	})
}

// queue is a heap of streams by when they are due.
type queue []*stream

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	st := x.(*stream)
	st.index = len(*q)
	*q = append(*q, st)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	st := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return st
}
