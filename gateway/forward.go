package gateway

import (
	"bytes"
	"log/slog"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/token"
)

// upstream is an origin with its metrics.
type upstream struct {
	*proxy.Origin
	config  proxy.Config
	metrics metrics.Origin
	recent  forecast.Recent // times to first byte, for operators
	health  *adaptive.Recorder
}

// forward forwards the request to an origin and sends the origin's response. session is the visitor's, zero without one. It
// returns a problem where the response is left to the gateway.
func (v *visit) forward(to *upstream, session token.ID) *answer.Problem {
	v.prepareForward(session)
	out := to.Forward(v.req, &v.proxied)
	v.out.SetSent(answer.Sent{Done: out.Sent, Code: out.Status, Bytes: out.BodyBytes})
	to.observe(&out, v.start)
	if out.Err == nil {
		return nil
	}
	p := answer.OfOrigin(&out)
	if p.Status >= 500 {
		v.outcome = failed
	}
	if out.Sent {
		v.g.log.Log(v.g.life.ctx, slog.LevelDebug, "answer cut off", "origin", to.ID(), "kind", out.Kind, "error", out.Err)
		return nil
	}
	if v.outcome != failed {
		v.outcome = refused
	}
	if p.Level > answer.Quiet {
		v.fault(p.Level, "origin failed", p.Code, to.ID(), "origin", to.ID(), "kind", out.Kind, "error", out.Err)
	} else {
		v.g.log.Log(v.g.life.ctx, p.Level, "origin failed", "origin", to.ID(), "kind", out.Kind, "error", out.Err)
	}
	return p
}

// prepareForward sets what the origin is to be sent beside the request.
func (v *visit) prepareForward(session token.ID) {
	f, st := &v.proxied, v.state
	f.DropCookie, f.OnHeader, f.Started = client.IsOwnCookie, v.onHeader, v.start
	if v.out.IsEmpty() {
		f.OnlyWith = isCommand // there is nothing to add to the response
	}
	f.ClientIP, f.ClientHeader, f.DropField = v.peer.Addr, st.clientHeader, st.trusted
	if !v.peer.Trusted {
		f.DropField = st.untrusted
	} else {
		f.Proto = "http"
		if v.peer.Secure {
			f.Proto = "https"
		}
		header := st.options.TrustedHeader
		if v.memory[1] = v.peer.AppendChain(v.memory[1][:0], v.req, header); len(v.memory[1]) > 0 {
			f.ForwardedFor = v.memory[1]
		}
		if v.peer.Reported {
			f.ForwardedHost, f.ForwardedPort = v.peer.Target(v.req, header)
		}
	}
	if f.SessionID = session; session != (token.ID{}) {
		text, _ := session.AppendText(v.grant.session[:0])
		f.Session = unsafe.String(&text[0], len(text)) // memory of this visit, which outlives Forward
	}
}

// observe counts a request for the metrics, for operators and for the controller of adaptive rates.
func (u *upstream) observe(out *proxy.Outcome, start time.Time) {
	if out.FirstByte > 0 {
		u.metrics.Seconds.Observe(out.FirstByte.Seconds())
	}
	switch {
	case !clientsFault(out):
		failed := out.Err != nil || out.Status >= 500
		u.recent.Add(start, out.FirstByte.Seconds(), failed)
		u.measure(out, failed, start)
	case out.Kind == proxy.KindClientGone:
		u.measure(out, false, start)
	}
	if c := u.metrics.Errors[out.Kind]; out.Err != nil && c != nil {
		c.Inc()
	}
}

// clientsFault reports whether a failure says nothing about the origin: the client caused it, or one client holds so many
// connections that others get none.
func clientsFault(out *proxy.Outcome) bool {
	switch out.Kind {
	case proxy.KindClientGone, proxy.KindBadRequest, proxy.KindBodyTimeout, proxy.KindBodyLarge, proxy.KindShare:
		return true
	case proxy.KindQueueFull:
		return out.Crowded
	}
	return false
}

// stale is how long a request may have taken for its time to first byte to be counted.
const stale = 10 * time.Second

// impatient is how long a client must have waited for its leaving to count as slowness of the origin.
const impatient = time.Second

// measure counts a request for the controller of adaptive rates. A client that left after a long wait counts with that wait: of an
// origin that has stopped responding there may be no other sign. A tunnel says nothing about the origin's load, nor does a
// stream or a download that began long ago; a failure counts whenever it happens.
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

// commands are the header fields by which an origin sends the gateway a command.
var commands = [...]string{"X-Waiting-Room-Command", "Cf-Waiting-Room-Command"}

// isCommand reports whether a field is one of commands.
func isCommand(name []byte) bool {
	switch len(name) {
	case len("x-waiting-room-command"):
		return client.EqualFold(name, "x-waiting-room-command")
	case len("cf-waiting-room-command"):
		return client.EqualFold(name, "cf-waiting-room-command")
	}
	return false
}

// originHeader sees the header of the origin's response before it is sent: it carries out and removes commands, and adds the
// gateway's cookies where no shared cache would keep them.
func (v *visit) originHeader(h *fasthttp.ResponseHeader) {
	revoke := false
	for _, name := range commands {
		if command := h.Peek(name); command != nil {
			revoke = revoke || client.EqualFold(bytes.TrimSpace(command), "revoke")
			h.Del(name)
		}
	}
	private := v.grant.newSession
	if revoke && v.proxied.Session != "" && v.room != nil {
		v.room.store.Revoke(admission.ID(v.proxied.SessionID))
		v.out.Discard()
		v.grant.cookie(v.names().Pass, nil, 0)
		private = true
	}
	if v.out.IsEmpty() || !private && (answer.IsPublic(h) || h.StatusCode() == fasthttp.StatusNotModified) {
		return
	}
	answer.MakePrivate(h)
	v.out.AddTo(h)
}
