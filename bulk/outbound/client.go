package outbound

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// DefaultMaxPerHost is the default of Options.MaxPerHost.
const DefaultMaxPerHost = 64

// Options configure a client.
type Options struct {
	// Guard checks the addresses that are dialled; nil for URLs that the operator configured, which may be private.
	Guard *Guard
	// MaxPerHost bounds the connections to one host:port; further requests wait for one. 0: DefaultMaxPerHost.
	MaxPerHost int
	// HTTP2 offers HTTP/2 to TLS servers. Without it each running request has its own connection, and MaxPerHost
	// bounds requests too.
	HTTP2 bool
	// TLS holds additional roots or a client certificate; nil: the system's roots. It is cloned.
	TLS *tls.Config

	resolver *net.Resolver // for tests
}

// NewClient returns a client with a pool of connections. It uses no proxy from the environment, keeps no cookies,
// requests no compression (a bound on a body is one on the bytes sent) and follows only redirects that followRedirect
// allows. It has no overall timeout: use the context. Its owner ends it with CloseIdleConnections.
func NewClient(o Options) *http.Client {
	if o.MaxPerHost <= 0 {
		o.MaxPerHost = DefaultMaxPerHost
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		config = o.TLS.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Resolver: o.resolver}
	dial := dialer.DialContext
	if o.Guard != nil {
		dial = o.Guard.dialer(dialer)
	}
	return &http.Client{
		CheckRedirect: followRedirect,
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            dial,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      o.HTTP2,
			MaxConnsPerHost:        o.MaxPerHost,
			MaxIdleConnsPerHost:    o.MaxPerHost,
			MaxIdleConns:           8 * o.MaxPerHost,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
	}
}

// followRedirect follows 307 and 308, which keep method and body, within one scheme, host and port, three times. Any
// other redirect is the response: following it would turn a POST into a GET, or send payload and signature to another
// host.
func followRedirect(next *http.Request, via []*http.Request) error {
	status := next.Response.StatusCode
	keeps := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	if !keeps || len(via) > 3 || !sameOrigin(next.URL, via[0].URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && a.Hostname() == b.Hostname() && portOf(a) == portOf(b) && a.User == nil
}
