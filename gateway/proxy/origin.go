package proxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
)

// Config describes one origin. Durations of 0 and a MaxConns of 0 mean no limit, except
// ConnectTimeout, which is then 10 s.
type Config struct {
	ID      string
	Servers []string // http://host:port or https://host:port; without a port 80 and 443

	Timeout          time.Duration // from the request's arrival to the response's header, if no body is being uploaded
	ConnectTimeout   time.Duration // for one attempt to connect, TLS included
	FirstByteTimeout time.Duration // from the request's last byte to the response's header
	IdleTimeout      time.Duration // the longest silence inside a response's body, an upload or an upgraded connection
	QueueTimeout     time.Duration // the longest wait for a free connection; 0 does not wait

	MaxConns     int   // connections in use at once, upgraded ones included
	MaxBody      int64 // bytes of a request body; 0: no limit
	PreserveHost bool  // send the visitor's Host, else the server's own
	ForwardPass  bool  // send Forward.Pass
	TLS          TLSConfig
	Health       HealthConfig
}

// TLSConfig configures the verification of https servers.
type TLSConfig struct {
	CAFile     string // PEM; empty: the system's roots
	ServerName string // empty: the server's host
}

// HealthConfig configures health checks. Without a path there are none, and health follows from the responses to visitors.
type HealthConfig struct {
	Path     string        // requested with GET; 2xx and 3xx are healthy
	Interval time.Duration // 0: 5 s
}

// The kinds of failures, the fixed label set of upstream_errors_total.
const (
	KindConnect     = "connect"        // 502, 504 for a time-out: no server could be connected to
	KindTLS         = "tls"            // 502: the handshake failed
	KindTimeout     = "timeout"        // 504: no response in time; after its header: silence
	KindReset       = "reset"          // 502: the connection ended before a response
	KindBadResponse = "bad_response"   // 502: a response that is not valid HTTP
	KindQueueFull   = "queue_full"     // 503: MaxConns reached for longer than QueueTimeout
	KindShare       = "client_share"   // 503: the client has its share of MaxConns in use; not the origin's fault
	KindBodyCut     = "body_cut"       // the origin ended inside a body, so the client was cut off too
	KindClientGone  = "client_gone"    // the client left; not the origin's fault
	KindBadRequest  = "bad_request"    // 400: the body's framing is malformed; not the origin's fault
	KindBodyTimeout = "body_timeout"   // 408: the client stopped sending its body
	KindBodyLarge   = "body_too_large" // 413: over MaxBody
	KindInternal    = "internal"       // 500: a server without Listener, or a panic
)

// Kinds lists every value that Outcome.Kind may take, apart from "".
func Kinds() []string {
	return []string{KindConnect, KindTLS, KindTimeout, KindReset, KindBadResponse, KindQueueFull, KindShare, KindBodyCut,
		KindClientGone, KindBadRequest, KindBodyTimeout, KindBodyLarge, KindInternal}
}

const maxServers = 64 // those that a request has tried are bits of a word

// Origin is one site behind the gateway: its servers, their connections, its limits. Its methods are safe for
// concurrent use.
type Origin struct {
	cfg        Config
	ca         []byte // the content of tls.ca_file
	resolver   resolver
	waitSlice  time.Duration
	patience   time.Duration // bodyPatience
	onChange   func(Change)
	background background
	tunnels    tunnels

	mu      sync.Mutex // guards what follows
	closed  bool
	watched bool // Start was called
	servers servers
	slots   slots
	reaper  *time.Timer
}

// background runs the lookups and health checks until Close.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	wait    sync.WaitGroup
}

// run runs f in a goroutine that Close waits for, and returns false after refuse.
func (b *background) run(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.wait.Go(f)
	return true
}

// refuse cancels the context and refuses further functions.
func (b *background) refuse() {
	b.cancel()
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
}

// New checks cfg and returns an origin. It starts no goroutine and opens no connection.
func New(cfg Config) (*Origin, error) {
	if len(cfg.Servers) == 0 {
		return nil, fmt.Errorf("origin %q: servers is empty; name at least one, as http://127.0.0.1:9000", cfg.ID)
	}
	if len(cfg.Servers) > maxServers {
		return nil, fmt.Errorf("origin %q: servers lists %d; at most %d are used, put a balancer in front of more", cfg.ID, len(cfg.Servers), maxServers)
	}
	if p := cfg.Health.Path; p != "" && (p[0] != '/' || !http1.ValidTarget([]byte(p))) {
		return nil, fmt.Errorf("origin %q: health.path: %q is not a path; use one such as /healthz, without blanks", cfg.ID, p)
	}
	o := &Origin{cfg: cfg, resolver: net.DefaultResolver, waitSlice: waitSlice, patience: bodyPatience}
	o.slots = slots{max: cfg.MaxConns, maxWaiting: maxWaiting, claims: newClaims()}
	o.tunnels.open = map[*tunnel]struct{}{}
	o.background.ctx, o.background.cancel = context.WithCancel(context.Background())
	if o.cfg.Health.Interval <= 0 {
		o.cfg.Health.Interval = 5 * time.Second
	}
	if file := cfg.TLS.CAFile; file != "" {
		var err error
		if o.ca, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("origin %q: tls.ca_file: %w", cfg.ID, err)
		}
	}
	if o.cfg.ConnectTimeout <= 0 {
		o.cfg.ConnectTimeout = 10 * time.Second
	}
	for i, raw := range cfg.Servers {
		if slices.Contains(cfg.Servers[:i], raw) {
			return nil, fmt.Errorf("origin %q: servers: %q is listed twice", cfg.ID, raw)
		}
		s, err := newServer(o, raw)
		if err != nil {
			return nil, fmt.Errorf("origin %q: %w", cfg.ID, err)
		}
		s.bit = 1 << i
		o.servers.all = append(o.servers.all, s)
	}
	return o, nil
}

func newServer(o *Origin, raw string) (*server, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("servers: %q is not a URL: %w", raw, err)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" || u.Hostname() == "" {
		return nil, fmt.Errorf("servers: %q: only scheme, host and port are used; write it as http://host:port", raw)
	}
	port := u.Port()
	s := &server{url: raw, authority: u.Host}
	switch u.Scheme {
	case "http":
		port = cmp.Or(port, "80")
	case "https":
		port = cmp.Or(port, "443")
		if s.tls, err = o.cfg.TLS.client(u.Hostname(), o.ca); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("servers: %q: the scheme has to be http or https", raw)
	}
	s.addr, s.port = net.JoinHostPort(u.Hostname(), port), port
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		s.name = &name{o: o, host: u.Hostname()}
	}
	return s, nil
}

// client returns the configuration of TLS to a host. ca is the content of CAFile.
func (t *TLSConfig) client(host string, ca []byte) (*tls.Config, error) {
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
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("tls.ca_file: %q holds no PEM certificate", t.CAFile)
		}
	}
	return c, nil
}

// ID returns the configured id.
func (o *Origin) ID() string { return o.cfg.ID }

// SameFiles reports whether the files of the configuration have the content that they had when the origin was made.
func (o *Origin) SameFiles() bool {
	if o.cfg.TLS.CAFile == "" {
		return true
	}
	now, err := os.ReadFile(o.cfg.TLS.CAFile)
	return err == nil && bytes.Equal(now, o.ca)
}

// Stats are the figures of an origin, for metrics.
type Stats struct {
	InUse, MaxConns     int // connections of exchanges, or being made for one; 0: no limit
	Waiting, MaxWaiting int // requests in the queue for one
	Servers             []ServerStats
}

// ServerStats are the figures of one of its servers.
type ServerStats struct {
	Server      string // as configured
	Up          bool
	InUse, Idle int // connections
}

// Stats returns the current figures.
func (o *Origin) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := Stats{InUse: o.slots.inUse, MaxConns: o.slots.max, Waiting: o.slots.waiting.Len(), MaxWaiting: o.slots.maxWaiting}
	for _, s := range o.servers.all {
		st.Servers = append(st.Servers, ServerStats{Server: s.url, Up: s.up(), InUse: s.inUse, Idle: len(s.idle)})
	}
	return st
}

// InUse returns the number of connections of exchanges.
func (o *Origin) InUse() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slots.inUse
}

// Start starts the health checks, if they are configured. They run until Close.
func (o *Origin) Start() {
	o.mu.Lock()
	started := o.watched
	o.watched = true
	o.mu.Unlock()
	if started || o.cfg.Health.Path == "" {
		return
	}
	for _, s := range o.servers.all {
		o.background.run(func() { o.watch(s) })
	}
}

// Close ends what runs in the background and closes idle connections. Other connections are closed as their exchanges
// end, and later exchanges are still served; CloseUpgraded ends the endless ones.
func (o *Origin) Close() {
	o.background.refuse()
	o.mu.Lock()
	o.closed = true
	if o.reaper != nil {
		o.reaper.Stop()
	}
	var idle []*originConn
	for _, s := range o.servers.all {
		idle = append(idle, s.idle...)
		s.idle = nil
	}
	o.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
	o.background.wait.Wait()
}

// CloseUpgraded cuts upgraded connections and event streams, which would outlive any drain. Call it at shutdown, when
// running requests should end.
func (o *Origin) CloseUpgraded() { o.tunnels.cut() }

// Upgraded returns the number of open upgraded connections and event streams.
func (o *Origin) Upgraded() int { return o.tunnels.count() }
