package redisurl

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/refusal"
)

// WithRemedy returns err, of a store that does not reply or refuses this program, with what to change in its URL or server. An
// error without a known remedy is returned as it is.
func WithRemedy(rawURL string, err error) error {
	if remedy := remedyFor(rawURL, err); remedy != "" {
		return remediedError{err, remedy}
	}
	return err
}

type remediedError struct {
	error
	remedy string
}

func (e remediedError) Error() string { return e.error.Error() + "; " + e.remedy }
func (e remediedError) Unwrap() error { return e.error }

func remedyFor(rawURL string, err error) string {
	if err == nil {
		return ""
	}
	if why, refused := refusal.Of(err); refused {
		return why.Remedy
	}
	scheme, rest, _ := strings.Cut(rawURL, "://")
	withTLS := scheme == "rediss" || strings.Contains(rest, "tls=1")
	text := err.Error()
	_, unverified := errors.AsType[x509.UnknownAuthorityError](err)
	_, otherName := errors.AsType[x509.HostnameError](err)
	_, dialing := errors.AsType[*net.OpError](err)
	_, unknownName := errors.AsType[*net.DNSError](err)
	closed := errors.Is(err, io.EOF) || strings.Contains(text, "connection reset")
	switch {
	case redis.IsAuthError(err) && strings.Contains(text, "WRONGPASS"):
		return "correct user and password in the URL, and percent-encode / ? # @ : % in them"
	case redis.IsAuthError(err):
		return "put the password before the host, as in redis://:password@host"
	case strings.Contains(text, "DB index"):
		return "use the number of a database that the server has"
	case strings.Contains(text, "cluster support disabled"):
		return "the server is no cluster: use redis:// or rediss://"
	case scheme == "redis-sentinel" && strings.Contains(text, "unknown command"):
		return "the URL names servers that are no sentinels: name the sentinels, or use redis://"
	case unverified:
		return "name the authority that signed its certificate with ca_file"
	case otherName:
		return "use a host that its certificate has, or give the name with server_name"
	case withTLS && (closed || errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "does not look like a TLS handshake")):
		return "if the server has no TLS on this port, use a URL without it"
	case closed:
		return "if the server has TLS on this port, use rediss://, or tls=1 for sentinels and clusters"
	case unknownName, dialing:
		return "start the server, or correct its address"
	}
	return ""
}
