package proxy

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/valyala/fasthttp"
)

// Forward says how one request is passed on. Its byte slices are read until it returns.
type Forward struct {
	ClientIP     netip.Addr // after trusted proxies were resolved; invalid: the peer's
	ClientHeader string     // a further header with that address, beside X-Real-IP; "": none. DropField has to drop the visitor's.
	Proto        string     // "http" or "https", as the visitor saw it; "": the connection's
	ForwardedFor []byte     // the trusted X-Forwarded-For chain, to which the peer is appended
	// What a trusted proxy says that the visitor asked for; where it is malformed or empty, X-Forwarded-Host is Host and
	// X-Forwarded-Port is not sent.
	ForwardedHost, ForwardedPort []byte
	Host                         []byte                           // the visitor's Host; empty: the request's
	Session                      string                           // for X-Waiting-Room-Session; "": none is sent
	SessionID                    [16]byte                         // the session that Shares count under; zero: none
	DropCookie                   func(name []byte) bool           // cookies that never reach the origin
	DropField                    func(name []byte) bool           // header fields likewise; nil: none
	OnHeader                     func(h *fasthttp.ResponseHeader) // called once with the final header, before it is sent
	// OnlyWith, where set, is asked about the answer's header names: OnHeader is called for those answers alone that have
	// one of which it says true. The others go on as they came, which costs less.
	OnlyWith func(name []byte) bool
	Started  time.Time // when the request was taken up; zero: when it was called
}

// Outcome is what became of a request. With Err nil, or once something was sent, Status is the
// origin's; with Err set and nothing sent, it is what the caller should answer.
type Outcome struct {
	Status    int
	FirstByte time.Duration // from the request's being sent to the answer's header; 0 where there was none
	Err       error
	Kind      string // one of Kinds, "" without Err
	Upgraded  bool   // the connection was a tunnel; Forward returned when it ended
	Sent      bool   // the answer's header has gone to the client
	BodyBytes int64  // of the answer's body (or of a tunnel's both directions)
	// Crowded: with KindQueueFull, that one client address held more than a quarter of MaxConns.
	Crowded bool
}

// exchange is one request's way to an origin and back. It is pooled with the memory that it needs.
type exchange struct {
	o *Origin
	outgoing
	body *wire.Body
	up   upload
	claim
	attempt
	timing
	response
	buffers
	onSlice func() error // whileWaiting, bound once
	outcome Outcome
}

// attempt is the connection that a request is sent on.
type attempt struct {
	oc      *originConn
	srv     *server
	allOut  bool // no server was healthy
	anyByte bool // a byte of a response has arrived
	reuse   bool
}

// timing is when the parts of an exchange began.
type timing struct {
	started time.Time
	sentAt  time.Time
	late    bool // time has passed since started
}

// buffers are the memory of an exchange.
type buffers struct {
	req     []byte
	out     []byte
	outBack []byte // the pooled memory of out, wherever out has grown to
}

var exchangePool = sync.Pool{New: func() any {
	x := &exchange{}
	x.outBack, x.req, x.edited = make([]byte, 0, maxWrite), make([]byte, 0, 4096), &fasthttp.ResponseHeader{}
	x.up.done = make(chan struct{}, 1)
	x.onSlice = x.whileWaiting
	return x
}}

// Forward carries the request to the origin and the answer back, streaming both. It returns when the
// answer has been sent, or the tunnel that it became has ended. With Err set and Sent false nothing
// has reached the client, and the caller answers with Status; it may not read the request's body any
// more.
func (o *Origin) Forward(r *wire.Request, f *Forward) Outcome {
	if r == nil {
		return Outcome{Status: 500, Kind: KindInternal, Err: errors.New("proxy: the server does not listen through proxy.Listener")}
	}
	if refusal := r.Refusal(); refusal != nil {
		kind := KindBadRequest
		if refusal.Code == wire.CodeUnprotected {
			kind = KindInternal
		}
		return Outcome{Status: refusal.Status, Kind: kind, Err: errors.New("proxy: " + refusal.Detail)}
	}
	x := exchangePool.Get().(*exchange)
	x.begin(o, r, f)
	defer x.end()
	x.run()
	return x.outcome
}

// begin prepares x for a request.
func (x *exchange) begin(o *Origin, r *wire.Request, f *Forward) {
	x.o, x.body = o, r.Body()
	x.outgoing = outgoing{r: r, h: r.Header(), f: f, preserveHost: o.cfg.PreserveHost}
	x.http10 = x.h.HTTP10
}

// end gives back what the exchange holds, also when a callback has panicked.
func (x *exchange) end() {
	x.stopUpload()
	if x.oc != nil {
		x.oc.in.Release()
		x.oc.wait.onSlice = nil
		now := x.now
		if now.IsZero() {
			now = time.Now()
		}
		v, why := x.verdict()
		x.o.done(&x.claim, x.srv, x.oc, x.reuse, v, why, now)
	} else if x.entered {
		x.o.leave(&x.claim)
	}
	x.r.Response().End(x.closing)
	x.up.first.Release()
	lines, trailers, req, fields := x.a.Lines[:0], x.chunks.Trailers[:0], x.req[:0], x.fields[:0]
	named, announced := x.a.Named.Emptied(), x.a.Announced.Emptied()
	back, done, onSlice, edited := x.outBack, x.up.done, x.onSlice, x.edited
	*x = exchange{onSlice: onSlice}
	x.outBack, x.req, x.fields, x.edited = back, req, fields, edited
	x.a.Lines, x.a.Named, x.a.Announced, x.chunks.Trailers, x.up.done = lines, named, announced, trailers, done
	if cap(x.req) <= 64<<10 {
		exchangePool.Put(x)
	}
}

func (x *exchange) fail(status int, kind string, err error) {
	x.reuse = false
	x.outcome.Kind, x.outcome.Err = kind, err
	if !x.outcome.Sent {
		x.outcome.Status = status
	}
}

func (x *exchange) run() {
	cfg, h := &x.o.cfg, x.h
	if x.body.Started() {
		x.fail(500, KindInternal, errBodyRead)
		return
	}
	if cfg.MaxBody > 0 && h.Length > cfg.MaxBody {
		x.fail(413, KindBodyLarge, wire.ErrBodyTooLarge)
		x.r.Drain()
		return
	}
	if x.started = x.f.Started; x.started.IsZero() {
		x.started = time.Now()
	}
	if p := h.AskedUpgrade(); p != nil {
		x.upgrade = string(p)
	}
	if !x.enter() || !x.connectAndAsk() {
		return
	}
	x.now = time.Now()
	x.outcome.FirstByte = x.now.Sub(x.sentAt)
	x.early = x.up.running && x.up.endedAt.Load() == 0
	x.outcome.Status = x.a.Status
	if x.a.Status == 101 {
		x.tunnel()
		return
	}
	x.relay()
}

// enter waits for the request's body, within bounds, and then for a connection slot.
func (x *exchange) enter() bool {
	client := x.f.ClientIP
	if !client.IsValid() {
		client = x.r.Peer()
	}
	x.claim = claim{address: ClientKey(client), session: x.f.SessionID, tunnel: x.upgrade != ""}
	wait := x.o.cfg.QueueTimeout
	if t := x.o.cfg.Timeout; t > 0 { // what had no time left would reach the origin for nothing
		wait = min(wait, t)
	}
	for {
		if x.h.Length != 0 && !x.awaitBody() {
			return false
		}
		var err error
		x.late, err = x.o.enter(&x.claim, wait, x.onSlice)
		switch {
		case err == nil:
			x.entered = true
			return true
		case err == errSlowShare:
			continue // the body may come meanwhile
		case errors.Is(err, errClientLeft):
			x.blame(err)
		case err == errShare:
			x.fail(503, KindShare, err)
		default:
			x.fail(503, KindQueueFull, err)
			var crowded crowdedError
			x.outcome.Crowded = errors.As(err, &crowded)
		}
		return false
	}
}

// connectAndAsk finds a connection, sends the request and reads the final header. A request is sent
// twice only if a kept connection turned out to be closed before any byte of an answer, if it is
// idempotent and has no body, and only once more, on a new connection.
func (x *exchange) connectAndAsk() bool {
	var tried uint64
	var after *server // whose kept connection turned out to be closed
	deadline := x.deadline()
	for {
		s, oc, out := x.o.pick(x.started, tried, after)
		if s == nil {
			return false // fail has been called for the last server
		}
		x.allOut = x.allOut || out && tried == 0
		if oc != nil && (!x.started.Before(oc.until) || !oc.usable()) {
			oc.Close()
			x.o.drop(s)
			continue
		}
		if oc == nil {
			if !deadline.IsZero() && !time.Now().Before(deadline) {
				x.o.drop(s)
				x.fail(504, KindTimeout, errTimeout)
				return false
			}
			var kind string
			var err error
			begun := time.Now()
			if oc, kind, err = x.o.dial(context.Background(), s, deadline); err != nil {
				x.o.failed(s, err, begun)
				tried |= s.bit
				x.late = true
				if x.allOut {
					err = x.o.noneHealthy(err)
				}
				x.fail(502, kind, err)
				if rawsocket.IsTimeout(err) {
					x.fail(504, kind, err)
				}
				continue
			}
			x.o.worked(s, time.Now())
		}
		x.outcome.Err, x.outcome.Kind = nil, "" // of a server that could not be reached
		reused := oc.reused
		x.oc, x.srv = oc, s
		err := x.ask(deadline)
		if err == nil {
			return true
		}
		if reused && after == nil && !x.anyByte && isClosed(err) && x.h.Idempotent() {
			oc.in.Release()
			oc.Close()
			x.o.drop(s)
			x.oc, x.srv = nil, nil
			after, x.late = s, true
			continue
		}
		x.stopUpload()
		if x.allOut {
			err = x.o.noneHealthy(err)
		}
		x.blame(err)
		return false
	}
}

var errBodyRead = errors.New("proxy: Forward was called after the request's body had been read")

var errTimeout = errors.New("proxy: the origin did not answer in time")

// deadline is when the answer's header has to be there. An upload takes the time it takes.
func (x *exchange) deadline() time.Time {
	if t := x.o.cfg.Timeout; t > 0 && (x.body.Ended() || x.body.Buffered()) {
		return x.started.Add(t)
	}
	return time.Time{}
}

// isClosed tells an error that says only that the connection had ended.
func isClosed(err error) bool {
	return err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ask sends the request and reads the final header into x.a.
func (x *exchange) ask(deadline time.Time) error {
	cfg, oc := &x.o.cfg, x.oc
	x.req = x.up.appendFirst(x.appendRequest(x.req[:0], oc.server.authority), &x.outgoing, x.body)
	if !x.body.Ended() && x.body.Buffered() {
		x.req = x.body.AppendBuffered(x.req)
	}
	x.sentAt = x.started
	if !oc.reused || x.late { // a connection, another server or a place in the queue had to be waited for
		x.sentAt = time.Now()
	}
	oc.reused = true
	var werr error
	if x.body.Ended() && oc.link.Raw() {
		oc.ask = pendingAsk{request: x.req, idle: cfg.IdleTimeout}
	} else {
		werr = oc.write(x.req, cfg.IdleTimeout, x.sentAt)
	}
	oc.wait.begun = x.sentAt
	oc.wait.slice, oc.wait.patience, oc.wait.onSlice = x.o.waitSlice, cfg.FirstByteTimeout, x.onSlice
	if !deadline.IsZero() {
		if left := deadline.Sub(x.sentAt); left < oc.wait.patience || oc.wait.patience == 0 {
			oc.wait.patience = max(left, time.Millisecond)
		}
	}
	if werr == nil && !x.body.Ended() {
		if p := oc.wait.patience; p > 0 && p < oc.wait.slice {
			oc.wait.slice = p
		}
		oc.wait.patience = 0 // an upload has its own limits; whileWaiting sees to the time after it
		x.startUpload()
	}
	// After a failed write there may still be an answer: that of an origin which refused to read on.
	err := x.readHeader()
	if oc.ask.err != nil {
		werr = oc.ask.err
	}
	oc.ask = pendingAsk{}
	if err != nil && werr != nil && isClosed(err) {
		return werr
	}
	return err
}

// readHeader reads informational answers, passing them on, up to the final one.
func (x *exchange) readHeader() error {
	oc := x.oc
	limit := oc.wait.patience // of the whole header, whatever it comes in
	for interim := 0; ; interim++ {
		n, err := 0, error(nil)
		for {
			if oc.in.Buffered() > 0 {
				x.anyByte = true
				if n, err = x.a.Scan(oc.in.Pending()); err != nil {
					return err
				}
				if n > 0 {
					break
				}
			}
			if x.anyByte {
				if err = x.allot(limit); err != nil {
					return err
				}
			}
			if err = oc.in.Fill(); err != nil {
				if err == http1.ErrBufferFull {
					return http1.ResponseError("its header is larger than 32 KiB")
				}
				if x.anyByte {
					err = http1.NoEOF(err)
				}
				return err
			}
		}
		oc.in.Keep(n) // not Skip: x.a points into the buffer until the next fill
		if x.a.Status >= 200 || x.a.Status == 101 {
			return nil
		}
		if interim == http1.MaxInterim {
			return http1.ResponseError("it sends informational answers without end")
		}
		// An expectation was ours to answer; a 100 beside it would be the second.
		if !x.h.HTTP10 && (x.a.Status != 100 || !x.h.Expect) {
			x.out = appendInterim(x.outBack[:0], &x.a)
			if err := x.r.Response().WriteInterim(x.out); err != nil {
				return clientError{err}
			}
		}
	}
}

// allot leaves the next read of an answer's header what is left of the limit since the request was sent.
func (x *exchange) allot(limit time.Duration) error {
	if limit == 0 {
		return x.whileWaiting() // it is the upload that this goes by
	}
	now := time.Now()
	left := limit - now.Sub(x.sentAt)
	if left <= 0 {
		return errTimeout
	}
	x.oc.wait.begun, x.oc.wait.patience = now, left
	return nil
}

// clientError marks an error as the client's.
type clientError struct{ error }

func (e clientError) Unwrap() error { return e.error }

// whileWaiting is asked now and then while the origin is silent: it ends the wait when the client
// has left, and when an upload has been over for FirstByteTimeout.
func (x *exchange) whileWaiting() error {
	if x.up.running {
		at := x.up.endedAt.Load()
		if at == 0 {
			return nil // the upload would notice
		}
		if d := x.o.cfg.FirstByteTimeout; !x.outcome.Sent && d > 0 && time.Since(time.Unix(0, at)) >= d-d/8 {
			return errTimeout
		}
	}
	if x.r.Response().ClientLeft() {
		return clientError{errClientLeft}
	}
	return nil
}

var errClientLeft = errors.New("proxy: the client left before the answer's end")

// blame turns what went wrong before an answer into an outcome.
func (x *exchange) blame(err error) {
	var client clientError
	switch up := x.up.clientErr; {
	case up != nil:
		x.blameClient(up)
	case errors.As(err, &client):
		x.r.CloseAfter()
		x.fail(400, KindClientGone, err)
	case errors.Is(err, http1.ErrResponse):
		x.fail(502, KindBadResponse, err)
	case errors.Is(err, errTimeout) || rawsocket.IsTimeout(err):
		x.fail(504, KindTimeout, err)
	default:
		x.fail(502, KindReset, err)
	}
}

func (x *exchange) blameClient(err error) {
	x.r.CloseAfter()
	switch {
	case errors.Is(err, errFault):
		x.fail(500, KindInternal, err)
	case errors.Is(err, http1.ErrChunk):
		x.fail(400, KindBadRequest, err)
	case err == wire.ErrBodyTooLarge:
		x.fail(413, KindBodyLarge, err)
	case err == wire.ErrBodyIdle:
		x.fail(408, KindBodyTimeout, err)
	default:
		x.fail(400, KindClientGone, err)
	}
}

// upload is a request body on its way to the origin, in a goroutine of its own: the answer may
// begin, and end, before it does.
type upload struct {
	first     http1.Buffer // the beginning of the body, decoded, read before a slot was taken
	firstLen  int          // its length
	running   bool
	done      chan struct{}
	endedAt   atomic.Int64
	complete  bool  // all of it was written
	clientErr error // the client's fault
}
