package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/accesslog"
	"github.com/anteroom/anteroom/gateway/facts"
	"github.com/anteroom/anteroom/gateway/faultlog"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/listener"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/sse"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/forwarded"
	"github.com/anteroom/anteroom/token"
)

// Gateway serves visitors. Its methods are safe for concurrent use.
type Gateway struct {
	log     *slog.Logger
	faults  faultlog.Limiter
	access  accesslog.Log
	metrics *metrics.Metrics
	core    *admission.Core
	limits  wire.Limits
	server  *fasthttp.Server
	life    lifecycle

	state  atomic.Pointer[state]
	reload reloads

	visits  sync.Pool
	streams *sse.Streams
	cache   *token.Cache
	captcha *guard.Verifier
	meters  meters
}

// cacheSize is the number of verified tokens in the cache, about half a kilobyte each.
const cacheSize = 1 << 16

// New returns a gateway, which Serve starts. Its rooms are those of o.Core, which the caller runs. m are the metrics whose
// ObserveStore the core calls; nil: new ones.
func New(o Options, m *metrics.Metrics) (*Gateway, error) {
	if o.Core == nil {
		return nil, errors.New("gateway: Options.Core is missing")
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	if m == nil {
		m = metrics.New(o.Registerer, o.Version)
	}
	g := &Gateway{log: o.Log, core: o.Core, metrics: m, limits: o.Limits, cache: token.NewCache(cacheSize), meters: newMeters(), captcha: guard.NewVerifier()}
	g.life.ctx, g.life.end = context.WithCancel(context.Background())
	g.visits.New = func() any {
		v := &visit{}
		v.onHeader = v.originHeader
		return v
	}
	g.streams = sse.New(g.life.ctx, o.MaxStreams, streamObserver{g})
	g.streams.Watch((&factsWatch{g: g, known: map[string]*facts.View{}}).changed)
	m.StreamsLimit.Set(float64(g.streams.Limit()))
	if err := g.Reload(o); err != nil {
		g.life.end()
		return nil, err
	}
	g.server = &fasthttp.Server{
		Handler:        g.handle,
		Logger:         fasthttpLog{g.log},
		ReadBufferSize: max(o.Limits.Header, 16<<10),
		Concurrency:    1 << 20,
	}
	wire.ServerOptions(g.server)
	g.server.KeepHijackedConns = true // event streams, which gateway/sse closes
	if o.Registerer != nil {
		if err := o.Registerer.Register(metrics.NewCollector(g.core, figures{g})); err != nil {
			g.life.end()
			return nil, fmt.Errorf("gateway: register metrics: %w", err)
		}
	}
	return g, nil
}

// random returns a number in [0, 1), which spreads polls.
func random() float64 { return rand.Float64() } //nolint:gosec // spreads polls; no security depends on it

// fasthttpLog logs what fasthttp reports.
type fasthttpLog struct{ log *slog.Logger }

func (l fasthttpLog) Printf(format string, args ...any) {
	l.log.Debug("server", "detail", fmt.Sprintf(format, args...))
}

// Serve serves the connections of ln until Shutdown, and then returns nil. It may be called for several listeners.
func (g *Gateway) Serve(ln net.Listener) error {
	ln = listener.New(ln, g.log, g.metrics.AcceptErrors.Inc)
	ln = wire.ProxyProtocolListener(ln, wire.ProxyProtocolOptions{Wanted: g.wantedProxyProtocol, Refused: g.refusedProxyHeader})
	if g.state.Load().tls != nil {
		ln = certs.Listener(ln, func() *tls.Config { return g.state.Load().tls })
	}
	ln = wire.Listener(ln, g.limits, g.direct)
	if !g.life.open(ln, g.server, g.access.Run, g.streams.Run, boardSampler{g}.run) {
		return ln.Close() // Shutdown was called before, and fasthttp has no record of it
	}
	g.startLoops()
	g.Settle()
	g.life.ready.Store(true)
	return g.server.Serve(ln)
}

// wantedProxyProtocol returns the PROXY protocol that connections from a peer have to begin with.
func (g *Gateway) wantedProxyProtocol(peer netip.Addr) wire.ProxyProtocol {
	o := &g.state.Load().options
	if o.ProxyProtocol == 0 || !forwarded.Contains(o.TrustedProxies, peer) {
		return 0
	}
	return o.ProxyProtocol
}

func (g *Gateway) refusedProxyHeader(peer net.Addr, reason string, err error) {
	g.metrics.ProxyHeaderErrors[reason].Inc()
	g.log.Debug("connection closed for its PROXY header", "peer", peer.String(), "reason", reason, "error", err)
}

// settleMax bounds the wait for the first snapshots.
const settleMax = 2 * time.Second

// Settle waits until each room has its first snapshot and the changes by operators, so that the first visitors can be admitted
// immediately. If the store is away, Settle returns early. Serve calls Settle; a caller that announces the socket beforehand calls it
// first. The core has to run.
func (g *Gateway) Settle() {
	ctx, cancel := context.WithTimeout(g.life.ctx, settleMax)
	defer cancel()
	g.core.Settle(ctx)
	for _, r := range g.state.Load().rooms {
		if err := r.forecaster.Prime(ctx); err != nil {
			g.log.Warn("cannot read the room's history; hourly weights start from the defaults", "room", r.id, "error", err)
		}
	}
}

// Ready reports whether the visitors' socket accepts: from Serve to Shutdown, with or without the store.
func (g *Gateway) Ready() bool { return g.life.ready.Load() && !g.life.leaving.Load() }

// NotReady makes Ready false permanently, also while Serve begins, so that balancers choose other gateways before Shutdown. Visitors
// are still served, but each response ends its connection.
func (g *Gateway) NotReady() {
	g.life.ready.Store(false)
	g.life.leaving.Store(true)
}
