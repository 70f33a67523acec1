package http1

// tidy tells a line that says what matters in the one way that nobody reads differently: one blank and no other.
func (h *RequestHeader) Tidy(l *Line) bool {
	return l.value == l.Colon+2 && h.Raw[l.Colon+1] == ' ' && l.End == l.valueEnd+2
}

// askedUpgrade is the protocol that the client asks to change to, where that can be passed on: one
// protocol, in a bodiless HTTP/1.1 GET that says so in Connection. HTTP/2 and TLS would make of the
// connection something that we no longer understand, so they are never passed on (the request is,
// without them).
func (h *RequestHeader) AskedUpgrade() []byte {
	if h.upgrade < 0 || !h.Connection.upgrade || h.HTTP10 || h.Length != 0 || string(h.Method()) != "GET" {
		return nil
	}
	v := h.Value(&h.Lines[h.upgrade])
	for i, c := range v {
		if !tokenTable[c] && !(c == '/' && i > 0) {
			return nil
		}
	}
	if len(v) == 0 || len(v) > 64 || PrefixFold(v, "h2") || PrefixFold(v, "http/") || PrefixFold(v, "tls/") || EqualFold(v, "http") || EqualFold(v, "tls") {
		return nil
	}
	return v
}

// oddBody tells a request whose body many servers do not look for, and then read as the next request.
func (h *RequestHeader) OddBody() bool {
	if h.Length == 0 {
		return false
	}
	m := string(h.Method())
	return m == "GET" || m == "HEAD"
}

// idempotent tells a request that may be sent once more when its connection broke before any answer
// (RFC 9110 §9.2.2).
func (h *RequestHeader) Idempotent() bool {
	if h.Length != 0 {
		return false
	}
	switch string(h.Method()) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return true
	}
	return false
}

// HasUpgrade reports whether there is an Upgrade field.
func (h *RequestHeader) HasUpgrade() bool { return h.upgrade != -1 }
