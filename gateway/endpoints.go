package gateway

import (
	"bytes"
	"strings"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/published"
)

// handler decides about a request.
type handler func(*visit) (decision, *answer.Problem)

// endpoint is a path below /.waiting-room/{room}/.
type endpoint struct {
	name  string
	allow string // methods, for Allow and for preflights
	serve handler
	same  bool // the response is the same for every client, so the request's tokens are not read
}

var endpoints = []endpoint{
	{name: "status", allow: "GET, HEAD, OPTIONS", serve: serveStatus},
	{name: "tickets", allow: "POST, DELETE, OPTIONS", serve: serveTickets},
	{name: "events", allow: "GET, OPTIONS", serve: serveEvents},
	{name: "claim", allow: "POST, OPTIONS", serve: serveClaim},
	{name: "challenge", allow: "GET, HEAD, OPTIONS", serve: serveChallenge},
	{name: "permits", allow: "POST, OPTIONS", serve: servePermits},
	{name: "draw", allow: "GET, HEAD, OPTIONS", serve: serveDraw},
	{name: "revoked", allow: "GET, HEAD, OPTIONS", serve: serveRevoked, same: true},
	{name: "facts", allow: "GET, HEAD, OPTIONS", serve: serveFacts, same: true},
	{name: "board", allow: "GET, HEAD, OPTIONS", serve: serveBoard, same: true},
	{name: "board.json", allow: "GET, HEAD, OPTIONS", serve: serveBoard, same: true},
	{name: "", allow: "GET, HEAD, OPTIONS", serve: servePage},
}

const jwks = "jwks.json"

// serveOwn decides about a request to the gateway itself. rest is the path after /.waiting-room.
func serveOwn(v *visit, rest []byte) (decision, *answer.Problem) {
	if v.kind = client.KindOf(v.req); v.kind != client.Navigation {
		v.kind = client.API // all other clients receive JSON here
	}
	if !v.state.table.Knows(v.host) {
		return decision{}, answer.UnknownHost
	}
	id, name, _ := bytes.Cut(bytes.TrimPrefix(rest, []byte("/")), []byte("/"))
	if len(name) == 0 {
		if string(id) == jwks {
			return serveKeys(v)
		}
		if script, forever, ok := findScript(id); ok {
			return serveScript(v, script, forever)
		}
	}
	r := v.state.byID[string(id)]
	switch {
	case len(id) == 0:
		return decision{}, answer.UnknownPath
	case r == nil || !v.state.table.Serves(r.index, v.host):
		return decision{}, answer.UnknownRoom
	}
	v.room = r
	for i := range endpoints {
		if e := &endpoints[i]; e.name == string(name) {
			return e.handle(v)
		}
	}
	return decision{}, answer.UnknownPath
}

func (e *endpoint) handle(v *visit) (decision, *answer.Problem) {
	if site := v.req.Peek("origin"); len(site) > 0 && v.room.allowsSite(site) {
		v.site = site
		v.out.AllowSite(site)
	}
	switch {
	case v.req.Is("OPTIONS"):
		return e.options(v), nil
	case !e.allows(v.req.Method()):
		return decision{}, answer.MethodNotAllowed.Set("Allow", e.allow)
	case (v.req.Is("POST") || v.req.Is("DELETE")) && crossSite(v):
		return decision{}, answer.CrossSite
	}
	if !e.same {
		v.enterRoom()
		v.tokens.identify()
	}
	return e.serve(v)
}

func (e *endpoint) allows(method []byte) bool {
	for m := range strings.SplitSeq(e.allow, ", ") {
		if m == string(method) {
			return true
		}
	}
	return false
}

func (e *endpoint) options(v *visit) decision {
	fields := [][2]string{{"Allow", e.allow}}
	if len(v.site) > 0 {
		fields = append(fields, [2]string{"Access-Control-Allow-Methods", e.allow},
			[2]string{"Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, Idempotency-Key, X-Waiting-Room-Token, X-Waiting-Room-Pass"},
			[2]string{"Access-Control-Max-Age", "600"})
	}
	return v.empty(204, fields...)
}

// crossSite reports whether a page of another site, which cors_origins does not list, made the request.
func crossSite(v *visit) bool {
	if len(v.site) > 0 {
		return false
	}
	site := v.req.Peek("origin")
	if len(site) == 0 {
		return string(v.req.Peek("sec-fetch-site")) == "cross-site"
	}
	_, authority, ok := bytes.Cut(site, []byte("://"))
	return !ok || !bytes.EqualFold(authority, v.req.Host())
}

// empty responds without a body.
func (v *visit) empty(code int, fields ...[2]string) decision {
	v.out.Body = v.out.Body[:0]
	return document(waiting, code, "", fields...)
}

var readOnly = answer.MethodNotAllowed.Set("Allow", "GET, HEAD")

// serveKeys sends the public keys of tokens. A verifier may keep them for five minutes (docs/passes.md), so a new key has to be in the
// set for that long before it signs.
func serveKeys(v *visit) (decision, *answer.Problem) {
	if !v.isRead() {
		return decision{}, readOnly
	}
	return v.publish(v.state.keySet, proxied, "public, max-age=300"), nil
}

// serveRevoked sends the revoked sessions of the room, for those who verify passes themselves.
func serveRevoked(v *visit) (decision, *answer.Problem) {
	r := v.room
	return v.publish(r.revoked.Document(r.id, r.queue, v.start), waiting, "public, max-age=1"), nil
}

// publish sends a document that is the same for every client, or 304 to a client that has it.
func (v *visit) publish(d *published.Document, o outcome, caching string) decision {
	vary := ""
	if v.room != nil && len(v.room.options.CORSOrigins) > 0 { // also without an Origin: a cache may have it for a site that may read it
		vary = "Origin"
	}
	fields := [][2]string{{"Cache-Control", caching}, {"ETag", d.ETag}, {"Vary", vary}}
	if d.Matches(v.req.Peek("if-none-match")) {
		v.out.Body = v.out.Body[:0]
		return document(o, 304, answer.TypeJSON, fields...)
	}
	v.out.Shared = d.Body
	return document(o, 200, answer.TypeJSON, fields...)
}

// findScript returns a script of guarded pages. forever reports whether the name of the script changes with its content.
func findScript(name []byte) (script []byte, forever, ok bool) {
	if !bytes.HasPrefix(name, []byte("pow-")) {
		return nil, false, false
	}
	text, forever, ok := scripts().Find(string(name))
	return []byte(text), forever, ok
}

func serveScript(v *visit, script []byte, forever bool) (decision, *answer.Problem) {
	if !v.isRead() {
		return decision{}, readOnly
	}
	v.out.Body = append(v.out.Body[:0], script...)
	fields := [][2]string{{"Vary", ""}, {"Content-Security-Policy", guard.WorkerPolicy}}
	if forever {
		fields = append(fields, [2]string{"Cache-Control", "public, max-age=31536000, immutable"})
	}
	return document(proxied, 200, "text/javascript; charset=utf-8", fields...), nil
}

// servePage shows the waiting page. A visitor who need not wait is redirected to the room.
func servePage(v *visit) (decision, *answer.Problem) {
	v.kind = client.Navigation
	policy := &v.room.queue.Snapshot().Policy
	if policy.Open() {
		return redirectToRoom(v, waiting), nil
	}
	if _, ok := v.tokens.findPass(); ok {
		return redirectToRoom(v, waiting), nil
	}
	d, p := queueUp(v, policy)
	if p == nil && d.action == doProxy { // there is no request to forward
		return redirectToRoom(v, d.outcome), nil
	}
	return d, p
}

// redirectToRoom redirects to the room's first plain path on this host.
func redirectToRoom(v *visit, o outcome) decision {
	to := "/"
	for _, path := range v.room.options.Paths {
		if isPlainPath(path) {
			to = path
			break
		}
	}
	d := v.empty(303, [2]string{"Location", to}, [2]string{"X-Waiting-Room", answer.StateAdmitted})
	d.outcome = o
	return d
}
