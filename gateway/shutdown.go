package gateway

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
)

// lifecycle holds the listeners and the background work of a gateway, and its states on the way to the end.
type lifecycle struct {
	ctx context.Context // of everything that outlives a request
	end context.CancelFunc

	opening   sync.Mutex
	listeners []net.Listener
	servers   []*fasthttp.Server // of listeners, each once
	closed    bool

	ready      atomic.Bool
	leaving    atomic.Bool // each response ends its connection
	background sync.WaitGroup

	_       [64]byte     // every request writes running twice, and reads the fields around it
	running atomic.Int64 // requests that are being served
	_       [56]byte
}

// open adds a listener that a server serves, and starts the loops with the first. It reports whether the gateway is still open.
func (l *lifecycle) open(ln net.Listener, server *fasthttp.Server, loops ...func(context.Context)) bool {
	l.opening.Lock()
	defer l.opening.Unlock()
	if l.closed {
		return false
	}
	if len(l.listeners) == 0 {
		for _, loop := range loops {
			l.background.Go(func() { loop(l.ctx) })
		}
	}
	l.listeners = append(l.listeners, ln)
	if !slices.Contains(l.servers, server) {
		l.servers = append(l.servers, server)
	}
	return true
}

// serving reports whether visitors are served.
func (l *lifecycle) serving() bool {
	l.opening.Lock()
	defer l.opening.Unlock()
	return len(l.listeners) > 0 && !l.closed
}

// close stops accepting.
func (l *lifecycle) close() {
	l.opening.Lock()
	defer l.opening.Unlock()
	l.closed = true
	for _, ln := range l.listeners {
		_ = ln.Close() // also if fasthttp does not serve it yet
	}
}

// Shutdown stops accepting, waits for running requests, ends event streams and upgraded connections, and returns when all are done or
// ctx ends. A client that sends a request while its idle connection is closed cannot find out whether the request was served. So idle
// connections first stay open for LastRequest.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.NotReady()
	g.life.close()
	defer g.life.background.Wait()
	defer g.life.end()
	defer g.eachOrigin((*proxy.Origin).Close)
	defer g.captcha.Close()
	g.streams.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for last := time.Now().Add(g.state.Load().options.LastRequest); g.idle() > 0 && time.Now().Before(last) && ctx.Err() == nil; {
		<-tick.C
	}
	for _, ln := range g.life.listeners {
		wire.CloseWaiting(ln)
	}
	fresh := time.NewTimer(firstRequest)
	defer fresh.Stop()
	drained := make(chan error, 1)
	go func() { drained <- g.life.drain(ctx) }()
	for {
		select {
		case err := <-drained:
			g.eachOrigin((*proxy.Origin).CloseUpgraded)
			return err
		case <-fresh.C:
			for _, ln := range g.life.listeners {
				wire.CloseFresh(ln)
			}
		case <-tick.C:
			if g.life.running.Load() <= upgraded(g) { // only tunnels are left, which have no end
				g.eachOrigin((*proxy.Origin).CloseUpgraded)
			}
		}
	}
}

// firstRequest is the time for which a connection without any request may still send one during Shutdown.
const firstRequest = 5 * time.Second

// drain waits until no server has a connection.
func (l *lifecycle) drain(ctx context.Context) error {
	var all errgroup.Group
	for _, server := range l.servers {
		all.Go(func() error { return server.ShutdownWithContext(ctx) })
	}
	return all.Wait()
}

// idle returns the number of connections without a request, plus the listeners that are still closing: fasthttp counts listeners as
// connections, and subtracts one.
func (g *Gateway) idle() int64 {
	n := -g.life.running.Load()
	for _, server := range g.life.servers {
		n += int64(server.GetOpenConnectionsCount()) + 1
	}
	return n
}

func upgraded(g *Gateway) (n int64) {
	g.eachOrigin(func(o *proxy.Origin) { n += int64(o.Upgraded()) })
	return n
}

// eachOrigin calls f for the origins of the configuration, and for those of former ones that may still have connections.
func (g *Gateway) eachOrigin(f func(*proxy.Origin)) {
	g.reload.mu.Lock()
	defer g.reload.mu.Unlock()
	for _, u := range g.reload.retired {
		f(u.Origin)
	}
	for _, u := range g.state.Load().origins {
		f(u.Origin)
	}
}
