package gateway

import (
	"context"
	"log/slog"
	"strings"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/faultlog"
	"github.com/anteroom/anteroom/gateway/page"
)

// write carries out what was decided about a request. Nothing else forwards a request or writes a response.
func (v *visit) write(d *decision, p *answer.Problem) {
	if v.trace.On() {
		v.trace.decided(d, p)
	}
	if p != nil {
		v.refuse(p)
		return
	}
	v.outcome = d.outcome
	switch d.action {
	case doProxy:
		if d.origin == nil {
			v.sendBack()
			return
		}
		if p := v.forward(d); p != nil {
			v.kind = client.KindOf(v.req)
			v.out.Problem(p, v.kind)
		}
	case doWait:
		v.showWait(d)
	case doStatus:
		v.out.Status(v.deny(d.code), d.status)
	case doDocument:
		v.out.Document(d.code, d.contentType, d.fields...)
	case doStream:
		v.startStream(d.stream)
	}
}

// sendBack responds to a request that may go on, in a gateway without origins: other proxies forward the requests, and ask the gateway
// about each. If the request has started a session, the client is redirected to the same target, so that the proxy forwards the request
// with the new pass.
func (v *visit) sendBack() {
	if v.kind = client.KindOf(v.req); !v.grant.newSession {
		v.refuse(answer.NoOrigin)
		return
	}
	to := v.target
	if len(to) > 1 && (to[1] == '/' || to[1] == '\\') { // a client would read it as the address of another host
		to = to[:1]
	}
	v.out.Body = v.out.Body[:0]
	v.out.Document(307, "", [2]string{"Location", string(to)}, [2]string{"X-Waiting-Room", answer.StateAdmitted})
}

// showWait writes a status as the room's page or as JSON.
func (v *visit) showWait(d *decision) {
	s := d.status
	if v.kind != client.Navigation {
		code := d.code
		if c := v.room.options.CompatStatus; c != 0 && !v.isCheck { // a proxy would take the status of a check for a pass
			code = c
		}
		v.out.Status(v.deny(code), s)
		return
	}
	if v.redirectToQueue(v.room.options.PageStatus, s.State) {
		return
	}
	view := s.View()
	v.prepare(&view)
	if s.Reason != "" && s.State != answer.StateProof && s.State != answer.StateRejected { // the former ticket has ended; this is a new one
		view.State = answer.StateExpired
	}
	v.out.Page(v.deny(v.room.options.PageStatus), v.room.page(), &view, s.State, v.room.queue.RedisNow())
}

// refuse writes a problem, and logs a fault.
func (v *visit) refuse(p *answer.Problem) {
	switch {
	case p.State == answer.StateWaiting:
		v.outcome = waiting
	case p.IsFault():
		v.outcome = failed
	default:
		v.outcome = refused
	}
	if p.Level > answer.Quiet && !p.Logged {
		if p.Cause != nil {
			v.fault(p.Level, "request failed", p.Code, v.roomID(), "room", v.roomID(), "error", p.Cause)
		} else {
			v.fault(p.Level, p.Title, p.Code, v.roomID(), "code", p.Code, "room", v.roomID())
		}
	}
	if v.redirectToQueue(p.Status, p.State) {
		return
	}
	if p.InRoom && v.kind == client.Navigation {
		v.showRejected(p)
		return
	}
	if status := v.deny(p.Status); status != p.Status {
		denied := *p
		denied.Status, p = status, &denied
	}
	if p.Out && v.room != nil && v.room.options.Compat == CompatCloudflare {
		p = p.WithCompat(v.room.forecaster.Room(), v.room.queue.RedisNow())
	}
	v.out.Problem(p, v.kind)
}

// prepare adds to a view what the page needs of the request.
func (v *visit) prepare(view *page.View) {
	view.AcceptLanguage = string(v.req.Peek("accept-language"))
	view.TakesTicket = v.isCheck && view.State != answer.StateProof
}

// showRejected writes the page of the room for a visitor whose join was refused.
func (v *visit) showRejected(p *answer.Problem) {
	policy := &v.room.queue.Snapshot().Policy
	view := page.View{
		State: answer.StateRejected, Reason: strings.TrimPrefix(strings.TrimPrefix(p.Code, "too_many_"), "room_"), RefreshAfter: p.Retry,
		Message: policy.Message, Paused: policy.Paused,
	}
	if f := v.room.view(); f != nil {
		view.Facts = f.URL
	}
	if p.OpensAt > 0 {
		view.OpensAt, view.RefreshAfter = answer.FormatTime(p.OpensAt), min(p.Retry, answer.RoomClosed.Retry)
	}
	v.prepare(&view)
	v.out.Page(v.deny(p.Status), v.room.page(), &view, view.State, v.room.queue.RedisNow())
}

// fault logs a fault of this request; where is its room or origin. A line that stands for several faults counts them.
func (v *visit) fault(level slog.Level, message, code, where string, attrs ...any) {
	n := v.g.faults.Count(v.start, level, faultlog.Kind{Code: code, Where: where})
	if n == 0 {
		return
	}
	if n > 1 {
		attrs = append(attrs, "times", n)
	}
	v.g.log.Log(context.WithoutCancel(v.g.life.ctx), level, message, attrs...)
}
