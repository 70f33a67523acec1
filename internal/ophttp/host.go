package ophttp

import (
	"net"
	"net/netip"
	"strings"
)

// IsLoopback reports whether a host, with or without a port, is this machine's own. A page of another site can have its own name resolve
// to 127.0.0.1 and is then same-origin to its browser; the Host that the browser sends is not a loopback name.
func IsLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
