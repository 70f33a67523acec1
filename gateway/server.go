package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/token"
)

// Gateway serves visitors. Its methods are safe for concurrent use.
type Gateway struct {
	log     *slog.Logger
	faults  faultLog
	core    *admission.Core
	metrics *Metrics
	server  *fasthttp.Server
	limits  proxy.Limits
	access  accessLog
	streams *streams
	cache   *token.Cache
	touched touches
	captcha *guard.Verifier
	metered requests
	forged  requests // by client address
	began   time.Time
	visits  sync.Pool
	random  func() float64

	state     atomic.Pointer[state]
	reloading sync.Mutex
	retired   []*upstream // origins of former configurations; guarded by reloading

	opening   sync.Mutex
	listeners []net.Listener
	closed    bool

	ready      atomic.Bool
	leaving    atomic.Bool  // every answer is its connection's last
	running    atomic.Int64 // requests between header and end of answer
	life       context.Context
	end        context.CancelFunc
	loops      sync.Once
	background sync.WaitGroup
}

// cacheSize is how many verified tokens are remembered, about half a kilobyte each.
const cacheSize = 1 << 16

// New makes a gateway. It starts nothing: Serve does. The rooms' lines are opened in o.Core, whose Run is the caller's.
// metrics may be nil; give those whose ObserveStore the core has.
func New(o Options, metrics *Metrics) (*Gateway, error) {
	if o.Core == nil {
		return nil, errors.New("gateway: Options.Core is missing")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if metrics == nil {
		metrics = NewMetrics(o.Registerer, o.Version)
	}
	g := &Gateway{log: o.Log, core: o.Core, metrics: metrics, limits: o.Limits, cache: token.NewCache(cacheSize), metered: newRequests(), touched: newTouches(), forged: newRequests(), began: time.Now(), random: rand.Float64, captcha: guard.NewVerifier()}
	g.life, g.end = context.WithCancel(context.Background())
	g.visits.New = func() any {
		v := &visit{direct: &fasthttp.Response{}}
		v.onHeader = v.originHeader
		return v
	}
	g.streams = newStreams(g, o.MaxStreams)
	if err := g.Reload(o); err != nil {
		g.end()
		return nil, err
	}
	g.server = &fasthttp.Server{
		Handler:        g.handle,
		Logger:         fasthttpLog{g.log},
		ReadBufferSize: max(o.Limits.Header, 16<<10),
		Concurrency:    1 << 20,
	}
	proxy.ServerOptions(g.server)
	g.server.KeepHijackedConns = true // event streams; they are closed by streams
	if o.Registerer != nil {
		if err := o.Registerer.Register(newCollector(g)); err != nil {
			g.end()
			return nil, fmt.Errorf("gateway: register metrics: %w", err)
		}
	}
	return g, nil
}

// fasthttpLog passes on what the server has to say.
type fasthttpLog struct{ log *slog.Logger }

func (l fasthttpLog) Printf(format string, args ...any) {
	l.log.Debug("server", "detail", fmt.Sprintf(format, args...))
}

// Serve answers the connections of ln until Shutdown; it then returns nil. It may be called for several listeners.
func (g *Gateway) Serve(ln net.Listener) error {
	socket := newSocket(ln, g.log, g.metrics.acceptErrors.Inc)
	ln = proxy.PrefaceListener(socket, proxy.PrefaceOptions{Wanted: g.prefaceWanted, Refused: g.prefaceRefused})
	if g.state.Load().tls != nil {
		ln = certs.Listener(ln, func() *tls.Config { return g.state.Load().tls })
	}
	ln = proxy.Direct(ln, g.limits, g.direct)
	g.opening.Lock()
	if g.closed { // Shutdown was sooner, and the server would not know of it
		g.opening.Unlock()
		return ln.Close()
	}
	g.listeners = append(g.listeners, ln)
	g.loops.Do(func() {
		g.background.Go(func() { g.access.run(g.life) })
		g.background.Go(func() { g.streams.run(g.life) })
	})
	g.opening.Unlock()
	g.watchOrigins()
	g.Settle()
	g.ready.Store(true)
	return g.server.Serve(ln)
}

// settling bounds how long requests wait at the start for what the store says of the rooms.
const settling = 2 * time.Second

// Settle waits until the rooms know their lines and what operators changed, so that the first visitors are let in at once
// where they may be. Without the store it ends as soon as that is known. Serve does so
// itself; who announces the socket beforehand calls it sooner. The core has to run.
func (g *Gateway) Settle() {
	ctx, cancel := context.WithTimeout(g.life, settling)
	defer cancel()
	g.core.Settle(ctx)
	for _, r := range g.state.Load().rooms {
		if err := r.teach(ctx); err != nil {
			g.log.Warn("the store's history teaches no hours; they are learnt from now on", "room", r.id, "error", err)
		}
	}
}

// Ready tells whether the visitors' socket accepts: from Serve to Shutdown, store or not.
func (g *Gateway) Ready() bool { return g.ready.Load() && !g.leaving.Load() }

// NotReady makes Ready false for good ahead of Shutdown, also where Serve is just beginning, so that balancers look
// elsewhere first. Visitors are served as before, but each answer ends its connection, so that they look elsewhere too.
func (g *Gateway) NotReady() {
	g.ready.Store(false)
	g.leaving.Store(true)
}

// Shutdown stops accepting, lets running requests finish, ends event streams and upgraded connections, and returns when
// all is done or ctx ends. A visitor may send a request just as we close their idle connection, and cannot know whether
// it was heard; so such connections are left for LastRequest first.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.NotReady()
	g.opening.Lock()
	g.closed = true
	for _, ln := range g.listeners {
		_ = ln.Close() // also where the server has not begun with it
	}
	g.opening.Unlock()
	defer g.background.Wait()
	defer g.end()
	defer g.closeOrigins()
	defer g.captcha.Close()
	g.streams.close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for last := time.Now().Add(g.state.Load().options.LastRequest); g.idle() > 0 && time.Now().Before(last) && ctx.Err() == nil; {
		<-tick.C
	}
	for _, ln := range g.listeners {
		proxy.CloseWaiting(ln)
	}
	fresh := time.NewTimer(firstRequest)
	defer fresh.Stop()
	drained := make(chan error, 1)
	go func() { drained <- g.server.ShutdownWithContext(ctx) }()
	for {
		select {
		case err := <-drained:
			g.cutUpgraded()
			return err
		case <-fresh.C:
			for _, ln := range g.listeners {
				proxy.CloseFresh(ln)
			}
		case <-tick.C:
			if g.running.Load() <= g.upgraded() { // only endless ones are left
				g.cutUpgraded()
			}
		}
	}
}

// firstRequest is how long a connection that has said nothing yet may still do so at the end.
const firstRequest = 5 * time.Second

// idle is the number of connections without a request, and of sockets that are still closing. The server counts those
// that accept among its connections, and takes one off for it.
func (g *Gateway) idle() int64 {
	return int64(g.server.GetOpenConnectionsCount()) + 1 - g.running.Load()
}

func (g *Gateway) upgraded() (n int64) {
	for o := range g.everyOrigin {
		n += int64(o.Upgraded())
	}
	return n
}

func (g *Gateway) closeOrigins() {
	for o := range g.everyOrigin {
		o.Close()
	}
}

func (g *Gateway) cutUpgraded() {
	for o := range g.everyOrigin {
		o.CloseUpgraded()
	}
}

// handle is a request's way in through fasthttp.
func (g *Gateway) handle(ctx *fasthttp.RequestCtx) {
	g.running.Add(1)
	v := g.acquire(proxy.RequestOf(ctx))
	v.ctx, v.res = ctx, &ctx.Response
	defer g.finish(v)
	if g.leaving.Load() {
		v.req.CloseAfter()
	}
	if r := proxy.CheckRequest(ctx); r != nil {
		v.peer.Addr = v.req.Peer() // of a header that is not let in nothing else is known
		v.refuse(&problem{r.Status, r.Code, "The request is not served", r.Detail, 0, quiet, r.Close}, "", "")
		return
	}
	v.serve(v.locate())
}

// direct is the way in of requests that fasthttp need not see: all but those that take over their connection.
func (g *Gateway) direct(req *proxy.Request) (taken bool) {
	g.running.Add(1)
	v := g.acquire(req)
	defer g.finish(v)
	if g.leaving.Load() {
		req.CloseAfter()
	}
	taken = true // also where a fault ends it
	at := v.locate()
	if v.left = at.Kind == route.ToOwn && bytes.HasSuffix(at.Rest, []byte("/events")); v.left {
		return false
	}
	v.serve(at)
	return taken
}

// warnMisnamed logs, once for a configuration, that a trusted proxy names clients in a header field that is not believed.
// Such a proxy's address counts as that of all its clients, so the limits of one address bind them together.
func (v *visit) warnMisnamed() {
	header := v.state.options.TrustedHeader
	if v.state.misnamed.Load() {
		return
	}
	if other := v.peer.Misnamed(v.req, header); other != "" && !v.state.misnamed.Swap(true) {
		v.g.log.Warn("a trusted proxy names the visitor in a header that is not believed; all its visitors share its address. If the proxy always writes that header, set trusted_header to it",
			"proxy", v.req.Peer().String(), "header", other, "trusted_header", header)
	}
}

// locate returns where the request leads.
func (v *visit) locate() route.Place {
	v.target = v.req.Target()
	v.host, v.hostBuf = route.HostName(v.req.Host(), v.hostBuf)
	return v.state.table.Locate(v.host, route.PathOf(v.target), &v.readings)
}

func (v *visit) serve(at route.Place) {
	st := v.state
	v.peer = client.PeerOf(v.req, st.options.TrustedProxies, st.options.TrustedHeader)
	if v.peer.Trusted {
		v.warnMisnamed()
	}
	switch {
	case at.Kind == route.ToOwn:
		v.visitor(at.Rest)
	case at.Kind == route.TwoRooms, at.Kind == route.TooMany:
		v.clarify(at.Kind)
	case at.Kind == route.ToRoom:
		v.room = st.rooms[at.Room]
		v.gate()
	case st.byDefault != nil:
		v.forward(st.byDefault, nil)
	case st.table.HasRooms() && !st.table.Knows(v.host):
		v.who = client.KindOf(v.req)
		v.refuse(problemUnknownHost, "", "")
	case len(st.order) > 0:
		v.forward(st.order[0], nil)
	default:
		v.refuse(problemNothingServed, "", "")
	}
}

// finish counts and logs a request. A fault of the program ends the request, not the process.
func (g *Gateway) finish(v *visit) {
	if fault := recover(); fault != nil {
		g.metrics.panics.Inc()
		g.log.Error("fault in a request", "room", v.roomID(), "fault", fault, "stack", string(debug.Stack()))
		v.req.CloseAfter()
		if !v.answered {
			v.res.Reset()
			v.nset, v.newPass, v.who = 0, nil, client.API
			v.show(problemInternal, "", "")
		}
		v.outcome = failed
	}
	if v.left {
		g.release(v)
		g.running.Add(-1)
		return
	}
	if v.ctx == nil && !v.answered {
		v.req.Send(v.start, v.res)
	}
	took := time.Since(v.start)
	m := g.metrics.none
	if v.room != nil {
		m = v.room.metrics
	}
	m.requests[v.outcome].Inc()
	m.seconds[v.outcome].Observe(took.Seconds())
	if v.state.options.Access.Output != nil {
		g.logAccess(v, took)
	}
	g.release(v)
	g.running.Add(-1)
}

func (g *Gateway) logAccess(v *visit, took time.Duration) {
	e := entry{
		at: v.start, took: took, addr: v.peer.Addr, room: v.roomID(), outcome: outcomeNames[v.outcome], status: v.code, bytes: v.sent,
	}
	if len(v.target) > 0 { // else proxy has put a request of its own in the place of what came
		e.method, e.host, e.target, e.proto = v.req.Method(), v.req.Host(), v.target, v.req.Protocol()
		e.agent, e.referer = v.req.Peek("user-agent"), v.req.Peek("referer")
	}
	if !v.answered {
		e.status, e.bytes = v.res.StatusCode(), int64(len(v.res.Body()))
	}
	g.access.write(&e)
}
