package gateway

import (
	"bytes"
	"log/slog"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/token"
)

// upstream is an origin with its metrics.
type upstream struct {
	*proxy.Origin
	config  proxy.Config
	metrics originMetrics
	recent  recent // times to first byte, for operators
	health  *adaptive.Recorder
}

// forward carries the request to an origin and its answer back. session is the visitor's, if there is one.
func (v *visit) forward(to *upstream, session *token.Pass) {
	f := &v.to
	f.DropCookie, f.OnHeader, f.OnlyWith, f.Started = client.IsOwnCookie, v.onHeader, command, v.start
	if v.nset > 0 || len(v.newPass) > 0 {
		f.OnlyWith = nil // there is something to add
	}
	f.ClientIP = v.peer.Addr
	f.ClientHeader = v.state.clientHeader
	f.DropField = v.state.trusted
	if !v.peer.Trusted {
		f.DropField = v.state.untrusted
	}
	f.Proto = ""
	f.ForwardedFor, f.ForwardedHost, f.ForwardedPort = nil, nil, nil
	if v.peer.Trusted {
		f.Proto = "http"
		if v.peer.Secure {
			f.Proto = "https"
		}
		if v.text = v.peer.AppendChain(v.text[:0], v.req, v.state.options.TrustedHeader); len(v.text) > 0 {
			f.ForwardedFor = v.text
		}
		if v.peer.Reported {
			f.ForwardedHost, f.ForwardedPort = v.peer.Target(v.req, v.state.options.TrustedHeader)
		}
	}
	f.Session, f.SessionID = "", [16]byte{}
	if v.session = session != nil; v.session {
		v.sid = session.Session
		f.SessionID = v.sid
		text, _ := v.sid.AppendText(v.sidBuf[:0])
		f.Session = unsafe.String(&text[0], len(text)) // of this visit's own buffer, which outlives Forward
	}
	out := to.Forward(v.req, f)
	v.answered, v.code, v.sent = out.Sent, out.Status, out.BodyBytes
	if out.FirstByte > 0 {
		to.metrics.seconds.Observe(out.FirstByte.Seconds())
	}
	switch {
	case clientsFault(&out):
		if out.Kind == proxy.KindClientGone {
			to.measure(&out, false, v.start)
		}
	default:
		failed := out.Err != nil || out.Status >= 500
		to.recent.add(v.start, out.FirstByte.Seconds(), failed)
		to.measure(&out, failed, v.start)
	}
	if out.Err == nil {
		return
	}
	if c := to.metrics.errors[out.Kind]; c != nil {
		c.Inc()
	}
	p := problemOfOrigin(&out)
	if out.Sent {
		if p.status >= 500 {
			v.outcome = failed
		}
		v.g.log.Log(v.g.life, slog.LevelDebug, "answer cut off", "origin", to.ID(), "kind", out.Kind, "error", out.Err)
		return
	}
	if p.level > quiet {
		v.fault(p.level, "origin failed", p.code, to.ID(), "origin", to.ID(), "kind", out.Kind, "error", out.Err)
	} else {
		v.g.log.Log(v.g.life, p.level, "origin failed", "origin", to.ID(), "kind", out.Kind, "error", out.Err)
	}
	v.who = client.KindOf(v.req)
	v.show(p, "", "")
	if p.status >= 500 {
		v.outcome = failed
	}
}

// clientsFault reports whether a failure says nothing of the origin: the client caused it, or one client has so many of the
// connections that others find none.
func clientsFault(out *proxy.Outcome) bool {
	switch out.Kind {
	case proxy.KindClientGone, proxy.KindBadRequest, proxy.KindBodyTimeout, proxy.KindBodyLarge, proxy.KindShare:
		return true
	case proxy.KindQueueFull:
		return out.Crowded
	}
	return false
}

// stale is how long a request may have taken for its time to first byte to be news.
const stale = 10 * time.Second

// impatient is how long a client has to have waited for its leaving to say something of the origin.
const impatient = time.Second

// measure counts a request for the controller of adaptive rates. Who left after a long wait would have waited longer still:
// an origin that answers nobody any more has no other witnesses. A tunnel says nothing of how busy the origin is, nor does a
// stream or a download that began long ago; what failed counts whenever it did.
func (u *upstream) measure(out *proxy.Outcome, failed bool, start time.Time) {
	took := out.FirstByte
	switch passed := time.Since(start); {
	case failed:
	case out.Kind == proxy.KindClientGone && took <= 0:
		if took = passed; took < impatient {
			return
		}
	case out.Upgraded || took <= 0 || passed > took+stale:
		return
	}
	u.health.Add(took, failed)
}

// commands are the headers in which an origin tells the gateway something.
var commands = [...]string{"X-Waiting-Room-Command", "Cf-Waiting-Room-Command"}

// command tells one of commands.
func command(name []byte) bool {
	switch len(name) {
	case len("x-waiting-room-command"):
		return client.EqualFold(name, "x-waiting-room-command")
	case len("cf-waiting-room-command"):
		return client.EqualFold(name, "cf-waiting-room-command")
	}
	return false
}

// originHeader sees the origin's answer before it is sent: it obeys and strips commands, and adds our cookies where
// no shared cache would keep them.
func (v *visit) originHeader(h *fasthttp.ResponseHeader) {
	revoke := false
	for _, name := range commands {
		if command := h.Peek(name); command != nil {
			revoke = revoke || client.EqualFold(bytes.TrimSpace(command), "revoke")
			h.Del(name)
		}
	}
	if revoke && v.session && v.room != nil {
		v.room.line.Revoke(admission.ID(v.sid))
		v.nset, v.newPass, v.private = 0, nil, true
		v.cookie(v.names().Pass, nil, 0)
	}
	if v.nset == 0 && len(v.newPass) == 0 {
		return
	}
	if !v.private && (publicly(h) || h.StatusCode() == fasthttp.StatusNotModified) {
		return
	}
	for _, name := range targeted(h) {
		h.Del(name)
	}
	h.Del("Cache-Control") // all its lines: Set replaces but one
	h.Set("Cache-Control", "private, no-store")
	h.Del("Expires")
	for i := range v.cookies[:v.nset] {
		h.AddBytesV("Set-Cookie", v.cookies[i].value)
	}
	if len(v.newPass) > 0 {
		h.Del("X-Waiting-Room-Pass")
		h.SetBytesV("X-Waiting-Room-Pass", v.newPass)
	}
}

// targeted are the headers of an answer that tell some caches something else than Cache-Control, which they then do not
// look at: those of RFC 9213 and what was there before it.
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

// publicly tells whether an answer says that a shared cache may keep it.
func publicly(h *fasthttp.ResponseHeader) bool {
	for _, name := range targeted(h) {
		if lasts, barred := directives(h.PeekAll(name)); lasts && !barred || name == "X-Accel-Expires" && string(h.Peek(name)) != "0" {
			return true
		}
	}
	lasts, barred := directives(h.PeekAll("Cache-Control"))
	return !barred && (lasts || len(h.Peek("Expires")) > 0)
}

// directives tells whether a field like Cache-Control lets an answer be kept, and whether it bars shared caches.
func directives(lines [][]byte) (lasts, barred bool) {
	for _, line := range lines {
		for directive := range bytes.SplitSeq(line, []byte(",")) {
			name, value, _ := bytes.Cut(bytes.TrimSpace(directive), []byte("="))
			switch {
			case client.EqualFold(name, "private"), client.EqualFold(name, "no-store"):
				barred = true
			case client.EqualFold(name, "public"):
				lasts = true
			case client.EqualFold(name, "max-age"), client.EqualFold(name, "s-maxage"):
				lasts = lasts || string(bytes.Trim(value, `"`)) != "0"
			}
		}
	}
	return lasts, barred
}
