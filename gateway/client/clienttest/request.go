// Package clienttest makes requests for the tests of packages that read them.
package clienttest

import (
	"net/netip"
	"testing"

	"github.com/anteroom/anteroom/gateway/wire"
)

// Request returns a request for / on the host shop.test, as the proxy passes it on, whose connection comes from an address.
// Fields are names and values.
func Request(t testing.TB, method, from string, fields ...[2]string) *wire.Request {
	t.Helper()
	text := method + " / HTTP/1.1\r\nHost: shop.test\r\n"
	for _, f := range fields {
		text += f[0] + ": " + f[1] + "\r\n"
	}
	q, refused := wire.ParseRequest([]byte(text+"\r\n"), netip.MustParseAddr(from).Unmap())
	if refused != nil {
		t.Fatalf("%s: %v", text, refused)
	}
	return q
}
