package checktest

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// traefikForwarded are the fields that Traefik does not take from visitors.
var traefikForwarded = []string{
	"X-Forwarded-Proto", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Uri",
	"X-Forwarded-Method", "X-Forwarded-Prefix", "X-Forwarded-Tls-Client-Cert", "X-Forwarded-Tls-Client-Cert-Info", "X-Real-Ip",
}

// Traefik returns a proxy that asks as the middleware forwardAuth does, with trustForwardHeader: false, authResponseHeaders:
// [X-Waiting-Room-Session], preserveLocationHeader: true, and addAuthCookiesToResponse: cookies. After Traefik v3.7.9,
// pkg/middlewares/auth/forward.go: a check is a GET with all fields of the request but those of its connection; X-Forwarded-… describe
// the request; 2xx passes; any other answer is the visitor's; without an answer the visitor gets 500.
func Traefik(s Site, cookies ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := received(r)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, name := range traefikForwarded { // at the entry point
			m.header.Del(name)
		}
		if isOwn(m) {
			m.header.Set("X-Forwarded-For", addressOf(r))
			m.header.Set("X-Forwarded-Proto", schemeOf(r))
			pass(w, s.Visitors, m, nil)
			return
		}
		check := message{method: http.MethodGet, target: "/.waiting-room/check", host: s.Checks, header: m.header.Clone()}
		removeHopByHop(check.header)
		check.header.Del("Content-Length") // the check has no body, and net/http writes its own length
		for name, value := range map[string]string{
			"X-Forwarded-For": addressOf(r), "X-Forwarded-Method": m.method, "X-Forwarded-Proto": schemeOf(r), "X-Forwarded-Port": "80",
			"X-Forwarded-Host": m.host, "X-Forwarded-Uri": m.target,
		} {
			check.header.Set(name, value)
		}
		res, err := send(s.Checks, check)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case res.status < 200 || res.status > 299:
			respond(w, res.status, res.header, res.body)
			return
		}
		m.header.Del("X-Waiting-Room-Session")
		if session := res.header.Values("X-Waiting-Room-Session"); len(session) > 0 {
			m.header["X-Waiting-Room-Session"] = session
		}
		m.header.Set("X-Forwarded-For", addressOf(r))
		pass(w, s.Origin, m, func(h http.Header) { traefikCookies(h, res.header, cookies) })
	})
}

// traefikCookies adds the cookies of a check that are listed to a response, and removes those of the same name.
func traefikCookies(h, check http.Header, listed []string) {
	name := func(line string) string { n, _, _ := strings.Cut(textproto.TrimString(line), "="); return n }
	other := func(line string) bool { return !slices.Contains(listed, name(line)) }
	if len(check.Values("Set-Cookie")) == 0 {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(h.Values("Set-Cookie")), func(line string) bool { return !other(line) })
	h["Set-Cookie"] = append(kept, slices.DeleteFunc(slices.Clone(check.Values("Set-Cookie")), other)...)
}
