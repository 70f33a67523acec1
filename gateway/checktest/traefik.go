package checktest

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// traefikForwarded are the fields of visitors that Traefik removes.
var traefikForwarded = []string{
	"X-Forwarded-Proto", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Uri",
	"X-Forwarded-Method", "X-Forwarded-Prefix", "X-Forwarded-Tls-Client-Cert", "X-Forwarded-Tls-Client-Cert-Info", "X-Real-Ip",
}

// Traefik returns a proxy that asks as the middleware forwardAuth does, with trustForwardHeader: false, authResponseHeaders:
// [X-Waiting-Room-Session], preserveLocationHeader: true, and addAuthCookiesToResponse: cookies. After Traefik v3.7.9,
// pkg/middlewares/auth/forward.go: a check is a GET with all fields of the request but those of its connection; X-Forwarded-… describe
// the request; 2xx passes; the visitor gets any other response, and 500 without one.
func Traefik(s Site, cookies ...string) http.Handler {
	return proxy(s, receiveTraefik, func(r *http.Request, m message) (*response, func(http.Header), error) {
		check := message{method: http.MethodGet, target: checkPath, host: s.Checks, header: m.header.Clone()}
		removeHopByHop(check.header)
		check.header.Del("Content-Length") // the check has no body, and net/http writes its own length
		for name, value := range map[string]string{
			"X-Forwarded-Method": m.method, "X-Forwarded-Port": "80", "X-Forwarded-Host": m.host, "X-Forwarded-Uri": m.target,
		} {
			check.header.Set(name, value)
		}
		res, err := send(s.Checks, check)
		if err != nil || res.status < 200 || res.status > 299 {
			return res, nil, err
		}
		m.header.Del("X-Waiting-Room-Session")
		if session := res.header.Values("X-Waiting-Room-Session"); len(session) > 0 {
			m.header["X-Waiting-Room-Session"] = session
		}
		return nil, func(h http.Header) { traefikCookies(h, res.header, cookies) }, nil
	})
}

// receiveTraefik returns a visitor's request as the entry point changes it.
func receiveTraefik(r *http.Request) (message, error) {
	m, err := received(r)
	for _, name := range traefikForwarded {
		m.header.Del(name)
	}
	m.header.Set("X-Forwarded-For", addressOf(r))
	m.header.Set("X-Forwarded-Proto", schemeOf(r))
	return m, err
}

// traefikCookies adds the listed cookies of a check to the origin's response, instead of those that the response has by the same name.
func traefikCookies(h, check http.Header, listed []string) {
	name := func(line string) string { n, _, _ := strings.Cut(textproto.TrimString(line), "="); return n }
	other := func(line string) bool { return !slices.Contains(listed, name(line)) }
	if len(check.Values("Set-Cookie")) == 0 {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(h.Values("Set-Cookie")), func(line string) bool { return !other(line) })
	h["Set-Cookie"] = append(kept, slices.DeleteFunc(slices.Clone(check.Values("Set-Cookie")), other)...)
}
