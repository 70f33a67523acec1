package client

import (
	"bytes"
	"slices"

	"github.com/anteroom/anteroom/gateway/wire"
)

// Kind is the kind of a request. It decides whether the request may take a ticket, and the form of the response.
type Kind uint8

// Kinds of requests.
const (
	API         Kind = iota // may take a ticket; answered with JSON
	Navigation              // may take a ticket; answered with the page
	Subresource             // an image, a script: takes no ticket; answered with a short text
	Preflight               // a CORS preflight: forwarded to the origin, within a limit
	Prefetch                // a browser's speculative request: takes no ticket
	Upgrade                 // a WebSocket: takes no ticket
)

// MayJoin reports whether a request of this kind may take a ticket or a session.
func (k Kind) MayJoin() bool { return k == API || k == Navigation }

// KindOf returns the kind of a request. The checks are in the order in which docs/http.md documents them.
func KindOf(q *wire.Request) Kind {
	switch {
	case q.Is("OPTIONS") && !q.HasBody() && len(q.Peek("access-control-request-method")) > 0 && len(q.Peek("upgrade")) == 0 && !OverridesMethod(q):
		return Preflight
	case hasToken(q.PeekAll("sec-purpose"), "prefetch") && isRead(q):
		return Prefetch
	case len(q.Peek("upgrade")) > 0:
		return Upgrade
	}
	switch dest := q.Peek("sec-fetch-dest"); string(dest) {
	case "":
	case "document", "iframe":
		return Navigation
	case "empty":
		return API
	default:
		if isRead(q) {
			return Subresource
		}
	}
	k := kindByAccept(q.PeekAll("accept"))
	if k == Subresource && !isRead(q) {
		return API
	}
	return k
}

// isRead reports whether a request only reads: it is a GET or HEAD without a body, also for origins that take the method
// from a header.
func isRead(q *wire.Request) bool {
	return (q.Is("GET") || q.Is("HEAD")) && !q.HasBody() && !OverridesMethod(q)
}

// methodOverrides are the header fields by which frameworks let a client replace the method of the request line.
var methodOverrides = []string{"x-http-method-override", "x-http-method", "x-method-override"}

// OverridesMethod reports whether a request may replace its method by a header field, in any spelling that an origin could
// take for one of methodOverrides.
func OverridesMethod(q *wire.Request) bool {
	return slices.ContainsFunc(methodOverrides, q.HasAlias)
}

// hasToken reports whether a field's list has an element that begins with a token, which is in lower case: prefetch is
// found in "prefetch;prerender".
func hasToken(lines [][]byte, token string) bool {
	for _, line := range lines {
		for element := range bytes.SplitSeq(line, []byte(",")) {
			name, _, _ := bytes.Cut(element, []byte(";"))
			if EqualFold(bytes.TrimSpace(name), token) {
				return true
			}
		}
	}
	return false
}

// mediaFamilies is a set of kinds of content that media ranges name.
type mediaFamilies uint8

const (
	acceptsHTML mediaFamilies = 1 << iota
	acceptsJSON
	acceptsAny
	acceptsEmbedded // images, styles, scripts, fonts
	acceptsOther
)

// kindByAccept returns the kind of a request by its Accept field: the media ranges of the highest quality decide (RFC 9110
// section 12.5.1). Preferred HTML means a navigation; JSON, anything or no field an API client; the rest a subresource.
func kindByAccept(lines [][]byte) Kind {
	var best int
	var families mediaFamilies
	empty := true
	for _, line := range lines {
		for element := range bytes.SplitSeq(line, []byte(",")) {
			name, params, _ := bytes.Cut(element, []byte(";"))
			if name = bytes.TrimSpace(name); len(name) == 0 {
				continue
			}
			empty = false
			switch q := quality(params); {
			case q > best:
				best, families = q, familyOf(name)
			case q == best && q > 0:
				families |= familyOf(name)
			}
		}
	}
	switch {
	case empty, families&acceptsJSON != 0:
		return API
	case families&acceptsHTML != 0:
		return Navigation
	case families&acceptsEmbedded != 0:
		return Subresource
	case families&acceptsAny != 0:
		return API
	}
	return Subresource
}

func familyOf(mediaRange []byte) mediaFamilies {
	kind, sub, _ := bytes.Cut(mediaRange, []byte("/"))
	is := func(k, s string) bool { return EqualFold(kind, k) && EqualFold(sub, s) }
	switch {
	case is("*", "*"), is("*", ""):
		return acceptsAny
	case is("text", "html"), is("text", "*"), is("application", "xhtml+xml"):
		return acceptsHTML
	case is("application", "json"), is("application", "*"):
		return acceptsJSON
	case EqualFold(kind, "application") && len(sub) > 5 && EqualFold(sub[len(sub)-5:], "+json"):
		return acceptsJSON
	case EqualFold(kind, "image"), EqualFold(kind, "video"), EqualFold(kind, "audio"), EqualFold(kind, "font"),
		is("text", "css"), is("text", "javascript"), is("application", "javascript"):
		return acceptsEmbedded
	}
	return acceptsOther
}

// quality returns the weight among a media range's parameters, in thousandths: 1000 without one, 0 where it is malformed.
func quality(params []byte) int {
	for param := range bytes.SplitSeq(params, []byte(";")) {
		param = bytes.TrimSpace(param)
		if len(param) < 2 || param[0] != 'q' && param[0] != 'Q' || param[1] != '=' {
			continue
		}
		v := param[2:]
		if len(v) == 0 || len(v) > 5 || v[0] != '0' && v[0] != '1' || len(v) > 1 && v[1] != '.' {
			return 0
		}
		q, scale := int(v[0]-'0')*1000, 100
		for _, c := range v[min(2, len(v)):] {
			if c < '0' || c > '9' {
				return 0
			}
			q += int(c-'0') * scale
			scale /= 10
		}
		if q > 1000 {
			return 0
		}
		return q
	}
	return 1000
}
