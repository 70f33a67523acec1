package answer

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/client"
)

// MakePrivate forbids all caches to store a response.
func MakePrivate(h *fasthttp.ResponseHeader) {
	for _, name := range targeted(h) {
		h.Del(name)
	}
	h.Del("Cache-Control") // all its lines: Set replaces only one
	h.Set("Cache-Control", "private, no-store")
	h.Del("Expires")
}

// targeted returns the fields of a header that single caches obey instead of Cache-Control: those of RFC 9213 and their
// predecessors.
func targeted(h *fasthttp.ResponseHeader) (names []string) {
	const suffix = "-cache-control"
	for name := range h.All() {
		n := len(name) - len(suffix)
		if n > 0 && client.EqualFold(name[n:], suffix) || client.EqualFold(name, "surrogate-control") || client.EqualFold(name, "edge-control") || client.EqualFold(name, "x-accel-expires") {
			names = append(names, string(name))
		}
	}
	return names
}

// IsPublic reports whether a shared cache may store a response.
func IsPublic(h *fasthttp.ResponseHeader) bool {
	for _, name := range targeted(h) {
		if stored, forbidden := directives(h.PeekAll(name)); stored && !forbidden || name == "X-Accel-Expires" && string(h.Peek(name)) != "0" {
			return true
		}
	}
	stored, forbidden := directives(h.PeekAll("Cache-Control"))
	return !forbidden && (stored || len(h.Peek("Expires")) > 0)
}

// directives reports whether a field like Cache-Control lets caches store a response, and whether it forbids shared caches to.
func directives(lines [][]byte) (stored, forbidden bool) {
	for _, line := range lines {
		for directive := range bytes.SplitSeq(line, []byte(",")) {
			name, value, _ := bytes.Cut(bytes.TrimSpace(directive), []byte("="))
			switch {
			case client.EqualFold(name, "private"), client.EqualFold(name, "no-store"):
				forbidden = true
			case client.EqualFold(name, "public"):
				stored = true
			case client.EqualFold(name, "max-age"), client.EqualFold(name, "s-maxage"):
				stored = stored || string(bytes.Trim(value, `"`)) != "0"
			}
		}
	}
	return stored, forbidden
}
