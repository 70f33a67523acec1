package gateway

import (
	"bytes"
	"log/slog"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/token"
)

// forward forwards the request to the origin of a decision and sends the origin's response. It returns a problem if the gateway has to
// write the response.
func (v *visit) forward(d *decision) *answer.Problem {
	to := d.origin
	v.prepareForward(d.session)
	v.proxied.Permit = d.permit
	var out proxy.Outcome
	if v.trace.On() {
		out = forwardTraced(v, d)
	} else {
		out = to.Forward(v.req, &v.proxied)
	}
	v.out.SetSent(answer.Sent{Done: out.Sent, Code: out.Status, Bytes: out.BodyBytes})
	to.Observe(&out, v.start, v.trace.TraceID())
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

// prepareForward sets the fields that the gateway adds to the request, and those that it drops.
func (v *visit) prepareForward(session token.ID) {
	f, st := &v.proxied, v.state
	f.DropCookie, f.OnHeader, f.Started = client.IsOwnCookie, v.onHeader, v.start
	if v.out.IsEmpty() {
		f.OnlyWith = isCommand // there is nothing to add to the response
	}
	f.ClientIP, f.ClientHeader, f.DropField = v.peer.Addr, st.clientHeader, st.drops.trusted
	if !v.peer.Trusted {
		f.DropField = st.drops.untrusted
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
		f.Session = v.sessionText(session)
		if f.Pass = v.grant.pass; len(f.Pass) == 0 { // neither the first of the session nor renewed
			f.Pass = v.tokens.pass
		}
	}
}

// sessionText returns the text of a session's id, in memory of this visit.
func (v *visit) sessionText(session token.ID) string {
	text, _ := session.AppendText(v.grant.session[:0])
	return unsafe.String(&text[0], len(text))
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

// originHeader changes the header of the origin's response before it is sent. It carries out and removes commands, and adds the
// gateway's cookies unless a shared cache could store them.
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
