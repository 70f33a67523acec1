package proxy

import (
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// tunnel is an upgraded connection, or an event stream: an exchange without an end of its own.
type tunnel struct {
	client net.Conn // nil for an event stream
	oc     *originConn
	last   atomic.Int64 // when a byte last passed, either way
	n      atomic.Int64
	over   atomic.Bool

	first sync.Once
	why   error // what ended it
}

// cut ends the tunnel, with a reason where there is one. Errors that its goroutines get from then on are ignored.
func (t *tunnel) cut(why error) {
	if why != nil {
		t.first.Do(func() { t.why = why })
	}
	t.over.Store(true)
	t.oc.Close()
	if t.client != nil {
		t.client.SetDeadline(rawsocket.Past) //nolint:errcheck // a closed connection has ended already
	}
}

// tunnels are the open tunnels of an origin.
type tunnels struct {
	mu   sync.Mutex
	open map[*tunnel]struct{}
}

func (r *tunnels) add(t *tunnel) {
	r.mu.Lock()
	r.open[t] = struct{}{}
	r.mu.Unlock()
}

func (r *tunnels) remove(t *tunnel) {
	r.mu.Lock()
	delete(r.open, t)
	r.mu.Unlock()
}

func (r *tunnels) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// cut ends all of them.
func (r *tunnels) cut() {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.open))
	r.mu.Unlock()
	for _, t := range all {
		t.cut(net.ErrClosed)
	}
}

var errNotAsked = http1.ResponseError("it switches to a protocol that was not requested")

// tunnel forwards a 101 and then bytes, both ways, until both sides have ended.
func (x *exchange) tunnel() {
	a, oc, w := &x.a, x.oc, x.r.Response()
	if x.upgrade == "" || a.Upgrade < 0 || !a.UpgradeOption || !http1.EqualFoldBytes(a.Value(&a.Lines[a.Upgrade]), []byte(x.upgrade)) {
		x.fail(502, KindBadResponse, errNotAsked)
		return
	}
	x.upgraded = true
	fill(x.edited, a)
	if x.f.OnHeader != nil {
		x.f.OnHeader(x.edited)
	}
	x.out = x.appendEdited(x.outBack[:0], frameNone)
	x.outcome.Sent, x.outcome.Upgraded, x.closing = true, true, true
	client, ahead := w.Detach() // from here on fasthttp neither reads nor writes
	t := &tunnel{client: client, oc: oc}
	x.o.tunnels.add(t)
	defer x.o.tunnels.remove(t)
	defer oc.Close()

	if len(ahead) > 0 { // bytes that the client sent behind the request
		if err := oc.write(ahead, x.o.cfg.IdleTimeout, time.Now()); err != nil {
			x.fail(0, KindReset, err)
			return
		}
		w.Release()
	}
	x.out = append(x.out, oc.in.Pending()...) // and those that the origin sent behind the response
	t.n.Store(int64(oc.in.Buffered()))
	oc.in.Release()
	if err := x.flush(x.out); err != nil {
		x.fail(0, KindClientGone, err)
		return
	}
	t.last.Store(time.Now().UnixNano())
	oc.link.SetDeadline(time.Time{}) //nolint:errcheck // the first read fails
	client.SetDeadline(time.Time{})  //nolint:errcheck // the first read fails
	idle := x.o.cfg.IdleTimeout
	back := make(chan struct{})
	go func() {
		defer close(back)
		t.copy(oc.link.Conn, client, idle)
	}()
	t.copy(client, oc.link.Conn, idle)
	<-back
	t.first.Do(func() {}) // a later cut has no effect
	x.outcome.BodyBytes = t.n.Load()
	if err := t.why; err != nil {
		switch {
		case rawsocket.IsTimeout(err):
			x.fail(0, KindTimeout, err)
		case errors.Is(err, net.ErrClosed):
			x.fail(0, KindBodyCut, err)
		default:
			x.fail(0, KindReset, err)
		}
	}
}

// copy moves bytes from src to dst until src ends, which it passes on as a half-close. Any other error ends both
// directions.
func (t *tunnel) copy(dst, src net.Conn, idle time.Duration) {
	err := t.pump(dst, src, idle)
	if err == io.EOF {
		if rawsocket.CloseWrite(dst) {
			return
		}
		err = nil // the other direction has the error
	}
	t.cut(err)
}

func (t *tunnel) pump(dst, src net.Conn, idle time.Duration) error {
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	var set time.Time
	for {
		if idle > 0 {
			if now := time.Now(); now.Sub(set) > idle/8 {
				set = now
				src.SetReadDeadline(now.Add(idle))  //nolint:errcheck // the read fails
				dst.SetWriteDeadline(now.Add(idle)) //nolint:errcheck // the write fails
			}
		}
		if t.over.Load() { // after the deadlines, which may have replaced those of cut
			return net.ErrClosed
		}
		n, err := src.Read(*block)
		if n > 0 {
			t.last.Store(time.Now().UnixNano())
			t.n.Add(int64(n))
			if _, werr := dst.Write((*block)[:n]); werr != nil {
				return werr
			}
		}
		if err == nil {
			continue
		}
		// One direction may be silent as long as the other is not.
		if rawsocket.IsTimeout(err) && time.Since(time.Unix(0, t.last.Load())) < idle-idle/8 {
			set = time.Time{}
			continue
		}
		if t.over.Load() && (rawsocket.IsTimeout(err) || errors.Is(err, net.ErrClosed)) {
			return net.ErrClosed // by cut
		}
		return err
	}
}
