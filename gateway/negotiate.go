package gateway

import (
	"bytes"

	"github.com/anteroom/anteroom/gateway/proxy"
)

// asker is who sends a request, which decides what it may take and how it is answered.
type asker uint8

const (
	apiClient   asker = iota // may take a ticket; gets JSON
	navigation               // may take a ticket; gets the page
	subresource              // an image, a script: takes nothing; gets a short text
	preflight                // a CORS preflight: goes to the origin, within a limit
	prefetch                 // the browser's guess: takes nothing
	upgrade                  // a WebSocket: takes nothing
)

// takes tells whether this asker may take a ticket or a session.
func (a asker) takes() bool { return a == apiClient || a == navigation }

// who returns who sends a request, in the order of the contract.
func who(q *proxy.Request) asker {
	switch {
	case q.Is("OPTIONS") && !q.HasBody() && len(q.Peek("access-control-request-method")) > 0 && len(q.Peek("upgrade")) == 0 && !overridesMethod(q):
		return preflight
	case hasToken(q.PeekAll("sec-purpose"), "prefetch") && reads(q):
		return prefetch
	case len(q.Peek("upgrade")) > 0:
		return upgrade
	}
	switch dest := q.Peek("sec-fetch-dest"); string(dest) {
	case "":
	case "document", "iframe":
		return navigation
	case "empty":
		return apiClient
	default:
		if reads(q) {
			return subresource
		}
	}
	a := byAccept(q.PeekAll("accept"))
	if a == subresource && !reads(q) {
		return apiClient
	}
	return a
}

// reads reports whether a request only reads: GET or HEAD, also to sites that take the method from a header, without a
// body.
func reads(q *proxy.Request) bool {
	return (q.Is("GET") || q.Is("HEAD")) && !q.HasBody() && !overridesMethod(q)
}

// hasToken tells whether a field's list has an element that begins with a token, in lower case: "prefetch;prerender".
func hasToken(lines [][]byte, token string) bool {
	for _, line := range lines {
		for element := range bytes.SplitSeq(line, []byte(",")) {
			name, _, _ := bytes.Cut(element, []byte(";"))
			if equalFold(bytes.TrimSpace(name), token) {
				return true
			}
		}
	}
	return false
}

// family is what kind of content a media range asks for.
type family uint8

const (
	wantsHTML family = 1 << iota
	wantsJSON
	wantsAny
	wantsMedia // images, styles, scripts, fonts: what pages embed
	wantsOther
)

// byAccept tells who asks by what is accepted: the families of the ranges with the highest quality decide (RFC 9110
// §12.5.1). HTML preferred is a navigation; JSON, anything or no header an API client; the rest a subresource.
func byAccept(lines [][]byte) asker {
	var best int
	var families family
	given := false
	for _, line := range lines {
		for element := range bytes.SplitSeq(line, []byte(",")) {
			name, params, _ := bytes.Cut(element, []byte(";"))
			if name = bytes.TrimSpace(name); len(name) == 0 {
				continue
			}
			given = true
			switch q := quality(params); {
			case q > best:
				best, families = q, familyOf(name)
			case q == best && q > 0:
				families |= familyOf(name)
			}
		}
	}
	switch {
	case !given:
		return apiClient
	case families&wantsJSON != 0:
		return apiClient
	case families&wantsHTML != 0:
		return navigation
	case families&wantsMedia != 0:
		return subresource
	case families&wantsAny != 0:
		return apiClient
	}
	return subresource
}

func familyOf(mediaRange []byte) family {
	kind, sub, _ := bytes.Cut(mediaRange, []byte("/"))
	is := func(k, s string) bool { return equalFold(kind, k) && equalFold(sub, s) }
	switch {
	case is("*", "*"), is("*", ""):
		return wantsAny
	case is("text", "html"), is("text", "*"), is("application", "xhtml+xml"):
		return wantsHTML
	case is("application", "json"), is("application", "*"):
		return wantsJSON
	case equalFold(kind, "application") && len(sub) > 5 && equalFold(sub[len(sub)-5:], "+json"):
		return wantsJSON
	case equalFold(kind, "image"), equalFold(kind, "video"), equalFold(kind, "audio"), equalFold(kind, "font"),
		is("text", "css"), is("text", "javascript"), is("application", "javascript"):
		return wantsMedia
	}
	return wantsOther
}

// quality reads the weight of a range in thousandths; one that cannot be read counts as 0.
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

// equalFold compares with a lower-case ASCII name without regard to case.
func equalFold(b []byte, name string) bool {
	if len(b) != len(name) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != name[i] {
			return false
		}
	}
	return true
}
