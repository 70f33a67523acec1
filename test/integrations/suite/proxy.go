package suite

import (
	"testing"

	"github.com/anteroom/anteroom/internal/dialect"
)

// Proxy is a proxy under test.
type Proxy struct {
	Name    string // argument of gateway snippet
	Dialect dialect.Dialect
	// Page reports whether the visitors' socket responds to visitors who have to wait. Then the status is page.status, not
	// check.deny.
	Page bool
	// HTTP2 reports whether visitors may use HTTP/2 with TLS.
	HTTP2 bool
	// NoOpen reports whether the proxy refuses every request while the check is away, whatever its configuration.
	NoOpen bool
	// OneCheck reports whether the proxy takes only one address of checks.
	OneCheck bool
	// Aliases reports whether the proxy forwards other spellings of X-Waiting-Room-Session, so that the check refuses the request.
	Aliases bool
	// KeepsCaching reports whether the proxy adds the cookie of a check to a response without changing Cache-Control.
	KeepsCaching bool
	// GRPC reports whether the proxy asks at check.grpc.
	GRPC bool
	// Start starts the proxy and returns its address. It ends with the test.
	Start func(t testing.TB, s *Setup) string
}

// Setup is the configuration of a proxy.
type Setup struct {
	Gateways []*Gateway
	Hosts    []string // of the rooms
	Origin   string   // host:port
	Open     bool     // requests pass while no gateway answers
	TLS      bool     // visitors use TLS; CertFile and KeyFile have the certificate
	CertFile string
	KeyFile  string

	t     testing.TB
	proxy *Proxy
	away  string // address of checks at which nothing listens, instead of the gateways'
}

// Checks returns the addresses to which the proxy sends checks.
func (s *Setup) Checks() (all []string) {
	for _, g := range s.Gateways {
		switch {
		case s.away != "":
			all = append(all, s.away)
		case s.proxy.GRPC:
			all = append(all, g.grpc)
		default:
			all = append(all, g.Check)
		}
	}
	return all
}

// Snippet returns what `gateway snippet` prints for the proxy.
func (s *Setup) Snippet(flags ...string) string {
	s.t.Helper()
	args := []string{"snippet", s.proxy.Name, "--config", s.Gateways[0].Config, "--origin", "http://" + s.Origin}
	for _, g := range s.Gateways {
		args = append(args, "--visitors", g.Visitors)
		if s.away == "" {
			args = append(args, "--check", g.Check)
		}
	}
	if s.away != "" {
		args = append(args, "--check", s.away)
	}
	if s.Open {
		args = append(args, "--open")
	}
	return Output(s.t, Program(s.t, "gateway"), append(args, flags...)...)
}
