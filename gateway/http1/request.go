package http1

// Tidy reports whether a line has exactly one blank after its colon and none at its end: no parser reads it
// differently.
func (h *RequestHeader) Tidy(l *Line) bool {
	return l.value == l.Colon+2 && h.Raw[l.Colon+1] == ' ' && l.End == l.valueEnd+2
}

// AskedUpgrade returns the protocol that the client asks to change to, or nil if it cannot be forwarded. It can if it
// is the only one, in an HTTP/1.1 GET without a body that lists upgrade in Connection. HTTP/2 and TLS are never
// forwarded, because the gateway could not read the connection any more; the request is, without the upgrade.
func (h *RequestHeader) AskedUpgrade() []byte {
	if h.Connection.upgradeAt < 0 || !h.Connection.upgrade || h.HTTP10 || h.Length != 0 || string(h.Method()) != "GET" {
		return nil
	}
	v := h.Value(&h.Lines[h.Connection.upgradeAt])
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

// OddBody reports whether the request has a body that many servers ignore and then read as the next request.
func (h *RequestHeader) OddBody() bool {
	if h.Length == 0 {
		return false
	}
	m := string(h.Method())
	return m == "GET" || m == "HEAD"
}

// Idempotent reports whether the request may be sent again if its connection broke before a response (RFC 9110
// §9.2.2).
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
func (h *RequestHeader) HasUpgrade() bool { return h.Connection.upgradeAt != -1 }
