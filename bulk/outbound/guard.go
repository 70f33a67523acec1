package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/net/idna"
)

// Guard decides which addresses given by outsiders may be called: callback URLs and endpoints of push subscriptions.
// Public addresses may be called, others only if their host is listed.
type Guard struct {
	hosts    map[hostPort]bool // port "": any
	suffixes map[hostPort]bool // ".example.com" for *.example.com
}

type hostPort struct{ host, port string }

// RefusedError is returned when the guard refuses a call.
type RefusedError struct {
	Host string     // as in the URL
	Addr netip.Addr // its address
	What string     // kind of the address: "a private address"
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("host %q is at %s, %s: calls there are refused unless callbacks.allow lists the host", e.Host, e.Addr, e.What)
}

// NewGuard parses the entries of callbacks.allow: host, host:port or *.example.com[:port], where a host is a name or
// an IP address (IPv6 in brackets before a port). *.example.com does not match example.com. Its error names each
// invalid entry.
func NewGuard(allow []string) (*Guard, error) {
	g := &Guard{hosts: map[hostPort]bool{}, suffixes: map[hostPort]bool{}}
	var problems []error
	for i, entry := range allow {
		if err := g.list(entry); err != nil {
			problems = append(problems, fmt.Errorf("callbacks.allow[%d]: %q: %w; give host, host:port or *.example.com", i, entry, err))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return g, nil
}

func (g *Guard) list(entry string) error {
	host, port := entry, ""
	if h, p, err := net.SplitHostPort(entry); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return errors.New("the port is not a number of 1 to 65535")
		}
		host, port = h, p
	} else if strings.HasPrefix(entry, "[") && strings.HasSuffix(entry, "]") {
		host = entry[1 : len(entry)-1]
	}
	if _, err := netip.ParseAddr(host); err != nil && strings.ContainsAny(host, ":/@?#[]% ") {
		return errors.New("not a host")
	}
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		name, err := canonicalHost(rest)
		if err != nil || !strings.Contains(name, ".") {
			return errors.New("a wildcard needs a domain of two labels")
		}
		g.suffixes[hostPort{"." + name, port}] = true
		return nil
	}
	name, err := canonicalHost(host)
	if err != nil {
		return err
	}
	g.hosts[hostPort{name, port}] = true
	return nil
}

// canonicalHost returns one form of each spelling of a host: an address as netip prints it, a name in lower case,
// ASCII, without a final dot.
func canonicalHost(host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String(), nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, c := range []byte(host) {
		if c >= 0x80 {
			return idna.Lookup.ToASCII(host)
		}
	}
	if host == "" || strings.Contains(host, "*") {
		return "", errors.New("not a host")
	}
	return host, nil
}

// Listed reports whether the operator has listed the URL's host.
func (g *Guard) Listed(u *url.URL) bool { return g.listed(u.Hostname(), portOf(u)) }

func (g *Guard) listed(host, port string) bool {
	name, err := canonicalHost(host)
	if err != nil {
		return false
	}
	if g.hosts[hostPort{name, ""}] || g.hosts[hostPort{name, port}] {
		return true
	}
	for i := range name {
		if name[i] == '.' && (g.suffixes[hostPort{name[i:], ""}] || g.suffixes[hostPort{name[i:], port}]) {
			return true
		}
	}
	return false
}

// CheckURL parses a URL given from outside and refuses what it can without DNS: schemes other than http and https,
// credentials, literal addresses that are not public. The address of a name is checked when it is dialled, so that a
// change of the name has no effect.
func (g *Guard) CheckURL(raw string) (*url.URL, error) {
	u, err := ParseURL(raw)
	if err != nil {
		return nil, err
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && !g.Listed(u) {
		if what := notPublic(addr); what != "" {
			return nil, &RefusedError{Host: u.Hostname(), Addr: addr, What: what}
		}
	}
	return u, nil
}

// ParseURL parses an absolute http or https URL without credentials. Its errors do not contain the URL, which may
// contain a secret.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, fmt.Errorf("not a URL: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the scheme is %q, not http or https", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("it has no host")
	case u.User != nil:
		return nil, errors.New("the host is preceded by credentials; send them in a header")
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return nil, errors.New("the port is not a number of 1 to 65535")
		}
	}
	return u, nil
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// dialer returns d with a check of the address about to be dialled, whatever DNS returned before.
func (g *Guard) dialer(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if g.listed(host, port) {
			return d.DialContext(ctx, network, address)
		}
		guarded := *d
		guarded.Control = func(_, resolved string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return fmt.Errorf("cannot check the address %q: %w", resolved, err)
			}
			if what := notPublic(ap.Addr()); what != "" {
				return &RefusedError{Host: host, Addr: ap.Addr(), What: what}
			}
			return nil
		}
		return guarded.DialContext(ctx, network, address)
	}
}
