package gateway

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/published"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/upstream"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/tracing"
)

// reloads serializes reloads.
type reloads struct {
	mu      sync.Mutex
	retired []*upstream.Origin // origins of former configurations that may still have connections
}

// state is a configuration that is in use. It is immutable and replaced as a whole.
type state struct {
	options   Options
	rooms     []*room
	byID      map[string]*room
	table     *route.Table
	origins   map[string]*upstream.Origin
	keys      map[string]*accountKeys // by jwks_url
	keySet    *published.Document     // the public keys of tokens
	order     []*upstream.Origin
	byDefault *upstream.Origin
	tls       *tls.Config
	drops     drops
	// clientHeader is a field in which origins read the client's address, beside X-Forwarded-For and X-Real-IP; empty: none.
	clientHeader string
	// hops are the proxies whose X-Forwarded-For is believed in checks.
	hops []netip.Prefix
	// misnamed is set after a trusted proxy named the visitor in another header than TrustedHeader.
	misnamed atomic.Bool
}

// drops report whether a header field is dropped: that of an untrusted client, that of a trusted proxy, and that of a trusted proxy in a
// request that is traced. nil: none is.
type drops struct{ untrusted, trusted, traced func(name []byte) bool }

// newDrops returns the functions for fields that are never forwarded as received, except for accounts from trusted proxies in their exact
// spelling. While requests are traced, the trace context of visitors is not forwarded, and that of trusted proxies is replaced where the
// gateway has a span of its own.
func newDrops(fields, accounts []string, traced bool) drops {
	d := drops{untrusted: anySpelling(fields, nil), trusted: anySpelling(fields, accounts)}
	if traced {
		fields = slices.Concat(fields, []string{tracing.ParentField, tracing.StateField})
		d.untrusted, d.traced = anySpelling(fields, nil), anySpelling(fields, accounts)
	}
	return d
}

// Reload replaces the configuration. If anything is wrong the old configuration stays in use, and the error names every problem. No
// ticket and no connection is lost.
func (g *Gateway) Reload(o Options) error {
	g.reload.mu.Lock()
	defer g.reload.mu.Unlock()
	old := g.state.Load()
	if old != nil && (old.tls == nil) != (o.TLS == certs.Files{}) {
		return errors.New("gateway: tls: turning TLS on or off needs a restart")
	}
	next, err := g.prepare(o, old)
	if err != nil {
		for url, k := range next.keys {
			if old == nil || old.keys[url] != k {
				k.stop()
			}
		}
		return err
	}
	for _, r := range next.rooms { // nothing can fail any more
		r.use(o.Core.Room(r.id, r.options.Policy), g.log)
		r.queue.SetAlarms(r.options.Alarms)
	}
	if g.cache.Ring() != o.Ring {
		g.cache.Swap(o.Ring)
	}
	g.access.Set(o.Access)
	g.streams.LimitEach(o.StreamsPerAddress)
	for _, u := range next.origins {
		u.SetShares(o.Shares)
	}
	if old != nil {
		g.Settle()
	}
	if old != nil {
		for id, u := range next.origins {
			if before := old.origins[id]; before != nil && before.Origin != u.Origin {
				u.Adopt(before.Origin)
			}
		}
	}
	g.state.Store(next)
	g.startLoops()
	if old == nil {
		return nil
	}
	for url, k := range old.keys {
		if next.keys[url] != k {
			k.stop()
		}
	}
	for id := range old.byID {
		if next.byID[id] == nil {
			o.Core.Remove(id)
		}
	}
	g.reload.retired = slices.DeleteFunc(g.reload.retired, func(u *upstream.Origin) bool { return u.Upgraded() == 0 && u.InUse() == 0 })
	for id, u := range old.origins {
		if next.origins[id] == nil || next.origins[id].Origin != u.Origin {
			u.Close()
			g.reload.retired = append(g.reload.retired, u)
		}
	}
	return nil
}

// startLoops starts the health checks of origins and the fetching of account keys, while visitors are served.
func (g *Gateway) startLoops() {
	if !g.life.serving() {
		return
	}
	st := g.state.Load()
	for _, u := range st.origins {
		u.Start()
	}
	for _, k := range st.keys {
		k.start(g)
	}
}

// prepare returns the state of a configuration without changing anything else.
func (g *Gateway) prepare(o Options, old *state) (*state, error) {
	var errs []error
	bad := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var keySet *published.Document
	if o.Ring == nil {
		bad(errors.New("tokens: there are no keys"))
	} else {
		keySet = published.New(o.Ring.JWKS())
	}
	if len(o.IDKey) < 32 {
		bad(errors.New("tokens: the key of derived ids needs at least 32 bytes"))
	}
	if len(o.AccountKeys) == 0 {
		o.AccountKeys = [][]byte{o.IDKey}
	}
	for _, k := range o.AccountKeys {
		if len(k) < 32 {
			bad(errors.New("tokens: the keys of accounts' ids need at least 32 bytes"))
		}
	}
	o.Bind = cmp.Or(o.Bind, client.BindNone)
	if o.Check.Deny == 0 {
		o.Check.Deny = 401
	}
	addressField := client.AddressField(o.TrustedHeader)
	if o.TrustedHeader = strings.ToLower(o.TrustedHeader); o.TrustedHeader == "" {
		o.TrustedHeader = client.ForwardedFor
	}
	s := &state{options: o, byID: map[string]*room{}, origins: map[string]*upstream.Origin{}, keys: map[string]*accountKeys{}, keySet: keySet, clientHeader: addressField}
	for _, c := range o.Origins {
		u, err := g.origin(c, old)
		if err != nil {
			bad(err)
			continue
		}
		if s.origins[c.ID] != nil {
			bad(fmt.Errorf("origins: the id %q is used twice", c.ID))
		}
		s.origins[c.ID] = u
		s.order = append(s.order, u)
	}
	if o.DefaultOrigin != "" {
		if s.byDefault = s.origins[o.DefaultOrigin]; s.byDefault == nil {
			bad(fmt.Errorf("default_origin: there is no origin %q", o.DefaultOrigin))
		}
	}
	for _, ro := range o.Rooms {
		r, err := g.room(ro, s, old)
		if err != nil {
			bad(err)
			continue
		}
		if s.byID[r.id] != nil {
			bad(fmt.Errorf("rooms: the id %q is used twice", r.id))
		}
		s.byID[r.id] = r
		r.index = len(s.rooms)
		s.rooms = append(s.rooms, r)
	}
	var err error
	accounts := accountHeaders(s.rooms)
	kept := slices.Clone(accounts)
	if addressField != "" {
		kept = append(kept, o.TrustedHeader)
	}
	s.drops = newDrops(kept, accounts, o.Tracer != nil)
	rules := make([]route.Rule, len(s.rooms))
	for i, r := range s.rooms {
		rules[i] = route.Rule{Room: r.id, Hosts: r.options.Hosts, Paths: r.options.Paths}
	}
	s.table, err = route.New(rules)
	bad(err)
	s.hops = slices.Concat(o.Check.Trusted, o.TrustedProxies)
	s.tls, err = o.TLS.Load()
	bad(err)
	return s, errors.Join(errs...)
}

// origin returns the origin of a configuration: the running one where nothing has changed.
func (g *Gateway) origin(c proxy.Config, old *state) (*upstream.Origin, error) {
	if old != nil {
		if u := old.origins[c.ID]; u != nil && u.Unchanged(c) {
			return u, nil
		}
	}
	u, err := upstream.New(c, g.metrics.Origin(c.ID), g.core.Origin(c.ID))
	if err != nil {
		return nil, err
	}
	u.OnChange(func(change proxy.Change) {
		switch {
		case len(c.Servers) == 1 && c.Health.Path == "": // the only server stays in use, and failed requests are logged
		case change.Up:
			g.log.Info("origin server is back", "origin", c.ID, "server", change.Server)
		default:
			g.log.Warn("origin server is out", "origin", c.ID, "server", change.Server, "reason", change.Reason)
		}
	})
	return u, nil
}

func (g *Gateway) room(o Room, s, old *state) (*room, error) {
	to := s.byDefault
	if to == nil && len(s.order) > 0 {
		to = s.order[0]
	}
	if o.Origin != "" {
		to = s.origins[o.Origin]
	}
	if to == nil && (o.Origin != "" || !s.options.Check.On()) {
		return nil, fmt.Errorf("rooms.%s.origin: there is no origin %q", o.ID, o.Origin)
	}
	var before *room
	if old != nil {
		before = old.byID[o.ID]
	}
	return newRoom(o, to, g.metrics, keysOf(g, o.Identity, s, old), before, s.options.IDKey)
}
