package proxy

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/anteroom/anteroom/gateway/wire"
)

// Forward has the settings of one forwarded request. Its byte slices are read until Origin.Forward returns.
type Forward struct {
	ClientIP     netip.Addr // of the visitor, after trusted proxies; invalid: the peer's
	ClientHeader string     // a further field with ClientIP, beside X-Real-IP; "": none. DropField has to remove the visitor's.
	Proto        string     // "http" or "https", as the visitor saw it; "": the connection's
	ForwardedFor []byte     // the trusted X-Forwarded-For chain, to which the peer is appended
	// The host and port that the visitor asked a trusted proxy for. If the host is empty or malformed,
	// X-Forwarded-Host is Host; if the port is, X-Forwarded-Port is not sent.
	ForwardedHost, ForwardedPort []byte
	Host                         []byte // the visitor's Host; empty: the request's
	Session                      string // for X-Waiting-Room-Session; "": none is sent
	Added
	SessionID  [16]byte                         // the session that Shares count under; zero: none
	DropCookie func(name []byte) bool           // cookies that never reach the origin
	DropField  func(name []byte) bool           // fields that never reach the origin; nil: none
	OnHeader   func(h *fasthttp.ResponseHeader) // called once with the final header, before it is sent
	// OnlyWith restricts OnHeader to responses that have a field for whose name it is true. Other responses are
	// forwarded as they are, which costs less. nil: no restriction.
	OnlyWith func(name []byte) bool
	Started  time.Time // when the request arrived; zero: when Origin.Forward was called
}

// Added are further fields that the origin receives; those that are empty are not sent.
type Added struct {
	Pass   []byte // for X-Waiting-Room-Pass, with Config.ForwardPass
	Permit []byte // for X-Waiting-Room-Permit
	// TraceParent and TraceState are the trace context. DropField has to remove the visitor's.
	TraceParent, TraceState string
}

// Outcome is the result of a request. If Err is nil or something was sent, Status is the origin's; if Err is set and
// nothing was sent, it is the one that the caller should respond with.
type Outcome struct {
	Status    int
	Server    string        // to which the request was sent last, as configured; "" if to none
	FirstByte time.Duration // from sending the request to the response's header; 0 if there was none
	Err       error
	Kind      string // one of Kinds, "" without Err
	Upgraded  bool   // the connection was a tunnel; Forward returned when it ended
	Sent      bool   // the response's header was sent to the client
	BodyBytes int64  // of the response's body, or of a tunnel in both directions
	// Crowded reports, with KindQueueFull, that one client address held more than a quarter of MaxConns.
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

// Forward sends the request to the origin and the response to the client, streaming both. It returns when the
// response has been sent, or when the tunnel that the connection became has ended. With Err set and Sent false
// nothing has reached the client: the caller responds with Status and must not read the request's body.
func (o *Origin) Forward(r *wire.Request, f *Forward) Outcome {
	if r == nil {
		return Outcome{Status: 500, Kind: KindInternal, Err: errors.New("proxy: the server does not listen through wire.Listener")}
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
	x.outgoing = outgoing{r: r, h: r.Header(), f: f, preserveHost: o.cfg.PreserveHost, forwardPass: o.cfg.ForwardPass}
	x.http10 = x.h.HTTP10
}

// end frees what the exchange holds, also after a panic in a callback.
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

// enter waits for the beginning of the request's body, within bounds, and then for a slot.
func (x *exchange) enter() bool {
	client := x.f.ClientIP
	if !client.IsValid() {
		client = x.r.Peer()
	}
	x.claim = claim{address: ClientKey(client), session: x.f.SessionID, tunnel: x.upgrade != ""}
	wait := x.o.cfg.QueueTimeout
	if t := x.o.cfg.Timeout; t > 0 { // a request without time left would reach the origin for nothing
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
			continue // the body may arrive meanwhile
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

// blame turns an error before a response into an outcome.
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

// upload is a request body on its way to the origin. It has a goroutine of its own, because the response may begin,
// and end, before the body does.
type upload struct {
	first     http1.Buffer // the beginning of the body, decoded, read before a slot was taken
	firstLen  int          // its length
	running   bool
	done      chan struct{}
	endedAt   atomic.Int64
	complete  bool  // all of it was sent
	clientErr error // caused by the client
}
