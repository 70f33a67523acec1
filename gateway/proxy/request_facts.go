package proxy

// tidy tells a line that says what matters in the one way that nobody reads differently: one blank and no other.
func (h *head) tidy(l *line) bool {
	return l.value == l.colon+2 && h.raw[l.colon+1] == ' ' && l.end == l.valueEnd+2
}

// askedUpgrade is the protocol that the client asks to change to, where that can be passed on: one
// protocol, in a bodiless HTTP/1.1 GET that says so in Connection. HTTP/2 and TLS would make of the
// connection something that we no longer understand, so they are never passed on (the request is,
// without them).
func (h *head) askedUpgrade() []byte {
	if h.upgrade < 0 || !h.upgradeOption || h.http10 || h.length != 0 || string(h.methodBytes()) != "GET" {
		return nil
	}
	v := h.val(&h.lines[h.upgrade])
	for i, c := range v {
		if !tokenTable[c] && !(c == '/' && i > 0) {
			return nil
		}
	}
	if len(v) == 0 || len(v) > 64 || prefixFold(v, "h2") || prefixFold(v, "http/") || prefixFold(v, "tls/") || equalFold(v, "http") || equalFold(v, "tls") {
		return nil
	}
	return v
}

// oddBody tells a request whose body many servers do not look for, and then read as the next request.
func (h *head) oddBody() bool {
	if h.length == 0 {
		return false
	}
	m := string(h.methodBytes())
	return m == "GET" || m == "HEAD"
}

// idempotent tells a request that may be sent once more when its connection broke before any answer
// (RFC 9110 §9.2.2).
func (h *head) idempotent() bool {
	if h.length != 0 {
		return false
	}
	switch string(h.methodBytes()) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return true
	}
	return false
}
