package gateway

import (
	"context"
	"net"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
)

const (
	streamWorkers = 128                    // streams that are served at the same time
	streamsOfOne  = 4                      // that a ticket may have; the oldest makes room
	wheelStep     = 250 * time.Millisecond // between two turns of the wheel
	wheelSlots    = 64                     // 16 s, more than the longest interval of a stream
)

// streams are the open event streams. A stream without news is a socket and an entry of a timer wheel: it costs no goroutine, and
// one loop checks the streams whose time has come, without locks and calls. A few workers send the news, and never wait for a
// client.
type streams struct {
	g     *Gateway
	limit int
	start time.Time

	mu      sync.Mutex
	wheel   [wheelSlots][]*stream
	at      int                      // the slot that is next
	ready   []*stream                // with news, in the order in which they are served
	workers int                      // at it
	count   int                      // streams, with those that are being opened
	each    map[[16]byte]int         // … of each client address
	most    int                      // that one address may have; 0: no limit
	open    map[admission.ID]*stream // the newest of each ticket
	closed  bool
	wake    chan struct{}
	work    sync.WaitGroup
}

func newStreams(g *Gateway, limit int) *streams {
	if limit <= 0 {
		limit = streamLimit()
	}
	g.metrics.streamsLimit.Set(float64(limit))
	return &streams{g: g, limit: limit, start: time.Now(), open: map[admission.ID]*stream{}, each: map[[16]byte]int{}, wake: make(chan struct{}, 1)}
}

// mostStreams is the limit where descriptors are plenty: some 60 MB of the program's memory and 250 MB of the system's.
const mostStreams = 50_000

// streamLimit is how many streams are taken by default. Each is a descriptor, of which a sixteenth is left to all else.
func streamLimit() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return mostStreams
	}
	return int(min(mostStreams, files.Cur-files.Cur/16))
}

func (s *streams) now() time.Duration { return time.Since(s.start) }

// limitEach sets how many streams one client address may have. Those that are open stay.
func (s *streams) limitEach(most int) {
	s.mu.Lock()
	s.most = most
	s.mu.Unlock()
}

// reserve counts one more stream of a client address, and returns why there may not be one.
func (s *streams) reserve(address [16]byte) *answer.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return answer.ShuttingDown
	case s.count >= s.limit, s.most > 0 && s.each[address] >= s.most:
		s.g.metrics.streamsRefused.Inc()
		return answer.StreamsFull
	}
	s.count++
	s.each[address]++
	s.g.metrics.streams.Set(float64(s.count))
	return nil
}

// add starts a stream, for which reserve was called: its status is sent immediately. A client that has come back may
// have left a dead connection that is not known to be dead; so where a ticket has too many, the oldest is ended, and its client
// is asked not to come back at once, should it live.
func (s *streams) add(st *stream) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.end(st)
		return
	}
	id := admission.ID(st.waiting.ID)
	st.older, s.open[id] = s.open[id], st
	var oldest *stream
	n := 1
	for at := st.older; at != nil; at = at.older {
		oldest = at
		n++
	}
	s.mu.Unlock()
	if n > streamsOfOne {
		oldest.farewell(30*time.Second, s.g.random())
		s.end(oldest)
	}
	s.tell(st)
}

// tell has workers serve streams.
func (s *streams) tell(list ...*stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // close has ended them
	}
	s.ready = append(s.ready, list...)
	for n := min(len(s.ready), streamWorkers) - s.workers; n > 0; n-- {
		s.workers++
		s.work.Go(s.worker)
	}
}

// later puts a stream into the wheel.
func (s *streams) later(st *stream, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(st, after)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// put is later with mu held.
func (s *streams) put(st *stream, after time.Duration) {
	steps := min(max(int(after/wheelStep), 0), wheelSlots-2)
	slot := &s.wheel[(s.at+steps)%wheelSlots]
	*slot = append(*slot, st)
}

// end ends a stream, once. Its connection is closed without mu: that can take a while, and all other streams would wait.
func (s *streams) end(st *stream) {
	s.mu.Lock()
	over := st.ended
	st.ended = true
	if !over {
		s.forget(st)
	}
	s.mu.Unlock()
	if !over {
		st.conn.Close()
	}
}

// forget removes a stream from the counts; mu is held.
func (s *streams) forget(st *stream) {
	id := admission.ID(st.waiting.ID)
	switch at := s.open[id]; {
	case at == st && st.older == nil:
		delete(s.open, id)
	case at == st:
		s.open[id] = st.older
	default:
		for at != nil && at.older != st {
			at = at.older
		}
		if at != nil { // else it was never opened
			at.older = st.older
		}
	}
	s.count--
	if s.each[st.address]--; s.each[st.address] <= 0 {
		delete(s.each, st.address)
	}
	s.g.metrics.streams.Set(float64(s.count))
}

// run turns the wheel until ctx ends, and then ends all streams.
func (s *streams) run(ctx context.Context) {
	defer s.work.Wait()
	defer s.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for next := s.now(); ; {
		if s.idle() {
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
			next = s.now()
		}
		next += wheelStep
		timer.Reset(next - s.now())
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		s.turn()
	}
}

func (s *streams) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.wheel {
		if len(s.wheel[i]) > 0 {
			return false
		}
	}
	return true
}

// turn checks the streams of one slot.
func (s *streams) turn() {
	s.mu.Lock()
	slot := s.at
	due := s.wheel[slot]
	s.at = (s.at + 1) % wheelSlots
	s.mu.Unlock()
	now := s.now()
	var told []*stream
	for i, st := range due {
		if st.due(now) {
			told = append(told, st)
			due[i] = nil
		}
	}
	s.mu.Lock()
	for _, st := range due {
		if st != nil && !st.ended {
			s.put(st, st.next)
		}
	}
	clear(due)
	s.wheel[slot] = due[:0] // nothing was put there: it is a whole turn away
	s.mu.Unlock()
	if len(told) > 0 {
		s.tell(told...)
	}
}

// worker serves streams until none is left.
func (s *streams) worker() {
	for {
		s.mu.Lock()
		if len(s.ready) == 0 || s.closed {
			s.ready = nil
			s.workers--
			s.mu.Unlock()
			return
		}
		st := s.ready[0]
		s.ready = s.ready[1:]
		ended := st.ended
		s.mu.Unlock()
		if !ended {
			s.serve(st)
		}
	}
}

// serve sends a stream its news and puts it back into the wheel, or ends it. A panic ends the stream, not the process.
func (s *streams) serve(st *stream) {
	goOn := false
	defer func() {
		if fault := recover(); fault != nil {
			s.g.metrics.panics.Inc()
			s.g.log.Error("fault in an event stream", "room", st.room.id, "fault", fault, "stack", string(debug.Stack()))
		}
		if goOn {
			s.later(st, st.next)
		} else {
			s.end(st)
		}
	}()
	goOn = st.step(s.g.life.ctx, s.g, s.now())
}

// close ends all streams and takes no more. Clients are asked to come back spread over a time that fits their number, for
// they will come to the gateways that are left.
func (s *streams) close() {
	s.mu.Lock()
	s.closed = true
	var all []*stream
	for _, st := range s.open {
		for ; st != nil; st = st.older {
			all = append(all, st)
		}
	}
	s.wheel = [wheelSlots][]*stream{}
	s.mu.Unlock()
	spread := min(time.Second+time.Duration(len(all))*time.Second/backAtOnce, longestBack)
	slots := make(chan struct{}, streamWorkers)
	var ends sync.WaitGroup
	for _, st := range all { // side by side, because each may take its time
		slots <- struct{}{}
		ends.Go(func() {
			defer func() { <-slots }()
			st.farewell(spread, s.g.random())
			s.end(st)
		})
	}
	ends.Wait()
}

const (
	backAtOnce  = 1500             // streams that come back in a second
	longestBack = 20 * time.Second // a visitor at the front counts as present for 30 s
)

// serveEvents opens an event stream.
func serveEvents(v *visit) (decision, *answer.Problem) {
	w, p := v.needTicket()
	if p != nil {
		return decision{}, p
	}
	if _, p := readBody(v, bodyMax); p != nil { // nothing of the request may be left on a connection that becomes a stream
		return decision{}, p
	}
	address := proxy.ClientKey(v.peer.Addr)
	if p := v.g.streams.reserve(address); p != nil {
		return decision{}, p
	}
	w.Bind = string(v.binding.Claim()) // the next token has it
	st := &stream{room: v.room, waiting: w, client: v.client(), address: address}
	return decision{action: doStream, outcome: waiting, stream: st}, nil
}

// startStream turns the connection into an event stream.
func (v *visit) startStream(st *stream) {
	header := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n" +
		"X-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\nX-Waiting-Room: waiting\r\nConnection: close\r\n")
	header = append(fasthttp.AppendHTTPDate(append(header, "Date: "...), time.Now()), "\r\n"...)
	if len(v.site) > 0 {
		header = append(header, "Vary: Cookie, Origin\r\nAccess-Control-Allow-Credentials: true\r\nAccess-Control-Allow-Origin: "...)
		header = append(append(header, v.site...), "\r\n"...)
	} else {
		header = append(header, "Vary: Cookie\r\n"...)
	}
	// Should this process be killed, its clients do not all come back in the same second.
	header = appendRetry(append(header, "\r\n"...), 2*time.Second+time.Duration(v.g.random()*float64(8*time.Second)))
	s := v.g.streams
	v.ctx.HijackSetNoResponse(true)
	v.ctx.Hijack(func(c net.Conn) {
		st.conn = wire.TakeOver(c)
		giveUp(wire.Socket(st.conn), streamSilent)
		if st.conn.SetWriteDeadline(time.Now().Add(streamWrite)) == nil {
			if _, err := st.conn.Write(header); err == nil {
				s.add(st)
				return
			}
		}
		s.end(st)
	})
}

// takes reports whether a write to a connection would not block.
func takes(c net.Conn) bool {
	sc, ok := wire.Socket(c).(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true // the write will fail
	}
	full := false
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
		full = n == 0 && err == nil
	})
	return err != nil || !full
}
