package suite

import (
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/test/recorder"
)

// Site is a proxy in front of an origin, with the gateway that it asks.
type Site struct {
	Proxy   *Proxy
	Address string // of the proxy
	Origin  *Origin
	Gateway *Gateway
	Store   *redistest.PrivateServer
}

// Row is a case of a suite.
type Row struct {
	Name string
	Run  func(t *testing.T, s *Site)
}

// Run runs the suites against a proxy.
func Run(t *testing.T, p *Proxy) {
	store := redistest.Server(t)
	s := &Site{Proxy: p, Origin: StartOrigin(t), Store: store, Gateway: StartGateway(t, store, p)}
	s.Address = s.start(t, &Setup{Gateways: []*Gateway{s.Gateway}})
	for _, row := range Contract() {
		t.Run(row.Name, func(t *testing.T) { row.Run(t, s) })
	}
	t.Run("spoofing", func(t *testing.T) { Spoof(t, s) })
	if p.HTTP2 {
		t.Run("spoofing over HTTP/2", func(t *testing.T) { spoofOverH2(t, s) })
	}
	if !p.NoOpen { // a request whose check fails would pass there
		open := *s
		open.Address = s.start(t, &Setup{Gateways: []*Gateway{s.Gateway}, Open: true})
		t.Run("spoofing, open while no gateway answers", func(t *testing.T) { Spoof(t, &open) })
	}
	for _, row := range Faults() { // last: the store is away in one
		t.Run(row.Name, func(t *testing.T) { row.Run(t, s) })
	}
}

// start starts a proxy of the site's kind.
func (s *Site) start(t *testing.T, setup *Setup) string {
	t.Helper()
	setup.t, setup.proxy, setup.Hosts, setup.Origin = t, s.Proxy, Hosts, s.Origin.Address
	if setup.TLS {
		setup.CertFile, setup.KeyFile = certificate(t)
	}
	return s.Proxy.Start(t, setup)
}

// visitor returns a new visitor of a room.
func (s *Site) visitor(t *testing.T, room string) *Visitor {
	return NewVisitor(t, s.Address, room+".test")
}

// last returns the newest request that the origin received.
func (s *Site) last(t *testing.T) recorder.Request {
	t.Helper()
	return s.Origin.Last(t)
}

// reaches fails unless a response is the origin's.
func reaches(t *testing.T, a *Response) {
	t.Helper()
	if !a.Reached() {
		t.Fatalf("the request did not reach the origin: %s", a)
	}
}

// waits fails unless a response shows a state of the room, with status if the visitors' socket responds, and with check.deny otherwise.
func (s *Site) waits(t *testing.T, a *Response, state string, status int) {
	t.Helper()
	if !s.Proxy.Page {
		status = 401
	}
	if a.Reached() || a.StatusCode != status || a.Header.Get("X-Waiting-Room") != state {
		t.Errorf("want %d and X-Waiting-Room: %s, got %s", status, state, a)
	}
}
