package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"
)

// Config describes one origin. Durations of 0 and a MaxConns of 0 mean no limit, except
// ConnectTimeout, which is then 10 s.
type Config struct {
	ID      string
	Servers []string // http://host:port or https://host:port; without a port 80 and 443

	Timeout          time.Duration // from the request's arrival to the answer's header, if no body is being uploaded
	ConnectTimeout   time.Duration // one attempt to connect, TLS included
	FirstByteTimeout time.Duration // from the request's last byte to the answer's header
	IdleTimeout      time.Duration // the longest silence inside an answer's body, an upload or an upgraded connection
	QueueTimeout     time.Duration // the longest wait for a free connection; 0 does not wait

	MaxConns     int   // connections in use at once, upgraded ones included
	MaxBody      int64 // bytes of a request body; 0: no limit
	PreserveHost bool  // send the visitor's Host, else the server's own
	TLS          TLSConfig
}

// TLSConfig is how https servers are verified.
type TLSConfig struct {
	CAFile     string // PEM; empty: the system's roots
	ServerName string // empty: the server's host
}

// The kinds of failures, the fixed label set of upstream_errors_total.
const (
	KindConnect     = "connect"        // 502, 504 for a time-out: no server could be connected to
	KindTLS         = "tls"            // 502: the handshake failed
	KindTimeout     = "timeout"        // 504: no answer in time; after its header: it fell silent
	KindReset       = "reset"          // 502: the connection ended before an answer
	KindBadResponse = "bad_response"   // 502: an answer that HTTP does not allow
	KindQueueFull   = "queue_full"     // 503: MaxConns reached for longer than QueueTimeout
	KindBodyCut     = "body_cut"       // the origin ended inside a body; the client was cut off too
	KindClientGone  = "client_gone"    // the client left; not the origin's fault
	KindBadRequest  = "bad_request"    // 400: the body's framing broke; not the origin's fault
	KindBodyTimeout = "body_timeout"   // 408: the client stopped sending its body
	KindBodyLarge   = "body_too_large" // 413: over MaxBody
	KindInternal    = "internal"       // 500: a server without Listener, or a panic
)

// Kinds lists every value that Outcome.Kind may take, apart from "".
func Kinds() []string {
	return []string{KindConnect, KindTLS, KindTimeout, KindReset, KindBadResponse, KindQueueFull, KindBodyCut,
		KindClientGone, KindBadRequest, KindBodyTimeout, KindBodyLarge, KindInternal}
}

// Connections are kept for reuse this long, and no connection lives longer than connLife, so that a
// changed address or a rebalanced origin is noticed.
const (
	keepIdle   = 15 * time.Second
	connLife   = 5 * time.Minute
	failedBase = time.Second
	failedMax  = 30 * time.Second
	maxServers = 64 // those tried by one request are bits of a word
)

// Origin is one site behind the gateway: its servers, their connections, its limits. Its methods
// are safe for concurrent use.
type Origin struct {
	cfg       Config
	servers   []*server
	waitSlice time.Duration

	mu       sync.Mutex
	closed   bool
	inUse    int // connections in use or being made
	next     int // where the search for the least loaded server begins
	waiting  []*waiter
	reaper   *time.Timer
	upgraded map[*tunnel]struct{}
}

// server is one address of an origin. Its fields below the blank line belong to Origin.mu.
type server struct {
	addr      string // host:port to dial
	authority string // Host where it is not preserved
	tls       *tls.Config

	inUse  int
	idle   []*originConn // oldest first
	fails  int
	failed time.Time // not to be used before, unless no other is left
}

// New checks cfg and returns an origin. It starts nothing and connects nowhere.
func New(cfg Config) (*Origin, error) {
	if len(cfg.Servers) == 0 {
		return nil, fmt.Errorf("origin %q: servers is empty; name at least one, as http://127.0.0.1:9000", cfg.ID)
	}
	if len(cfg.Servers) > maxServers {
		return nil, fmt.Errorf("origin %q: servers lists %d; at most %d are used, put a balancer in front of more", cfg.ID, len(cfg.Servers), maxServers)
	}
	o := &Origin{cfg: cfg, waitSlice: waitSlice, upgraded: map[*tunnel]struct{}{}}
	if o.cfg.ConnectTimeout <= 0 {
		o.cfg.ConnectTimeout = 10 * time.Second
	}
	for _, raw := range cfg.Servers {
		s, err := newServer(raw, cfg.TLS)
		if err != nil {
			return nil, fmt.Errorf("origin %q: %w", cfg.ID, err)
		}
		o.servers = append(o.servers, s)
	}
	return o, nil
}

func newServer(raw string, t TLSConfig) (*server, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("servers: %q is not a URL: %w", raw, err)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" || u.Hostname() == "" {
		return nil, fmt.Errorf("servers: %q: only scheme, host and port are used; write it as http://host:port", raw)
	}
	port := u.Port()
	s := &server{authority: u.Host}
	switch u.Scheme {
	case "http":
		if port == "" {
			port = "80"
		}
	case "https":
		if port == "" {
			port = "443"
		}
		if s.tls, err = clientTLS(t, u.Hostname()); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("servers: %q: the scheme has to be http or https", raw)
	}
	s.addr = net.JoinHostPort(u.Hostname(), port)
	return s, nil
}

func clientTLS(t TLSConfig, host string) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"http/1.1"},
		ServerName:         host,
		ClientSessionCache: tls.NewLRUClientSessionCache(64),
	}
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls.ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca_file: %q holds no PEM certificate", t.CAFile)
		}
	}
	return c, nil
}

// ID is the configured one.
func (o *Origin) ID() string { return o.cfg.ID }

// InUse is the number of connections that carry an exchange now, for metrics.
func (o *Origin) InUse() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inUse
}

// Close closes idle connections. Those in use are closed as their exchanges end; CloseUpgraded ends
// the endless ones.
func (o *Origin) Close() {
	o.mu.Lock()
	o.closed = true
	if o.reaper != nil {
		o.reaper.Stop()
	}
	var idle []*originConn
	for _, s := range o.servers {
		idle = append(idle, s.idle...)
		s.idle = nil
	}
	o.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}

// CloseUpgraded cuts upgraded connections and event streams, which would outlive any drain. Call it
// at shutdown, when running requests should end.
func (o *Origin) CloseUpgraded() {
	o.mu.Lock()
	all := make([]*tunnel, 0, len(o.upgraded))
	for t := range o.upgraded {
		all = append(all, t)
	}
	o.mu.Unlock()
	for _, t := range all {
		t.cut()
	}
}

// Upgraded is the number of upgraded connections and event streams that are open.
func (o *Origin) Upgraded() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.upgraded)
}

var errQueueFull = errors.New("proxy: max_conns connections are in use and queue_timeout has passed")
