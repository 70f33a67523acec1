package gateway

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/page"
)

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
	typeHTML    = "text/html; charset=utf-8"
	typeText    = "text/plain; charset=utf-8"
)

// begin sets what every answer of ours has.
func (v *visit) begin(code int, contentType string) *fasthttp.ResponseHeader {
	h := &v.res.Header
	if v.ctx == nil {
		v.res.Reset()
		h.SetNoDefaultContentType(true)
	}
	h.SetStatusCode(code)
	h.SetContentType(contentType)
	h.Set("Cache-Control", "no-store")
	if v.origin {
		h.Set("Vary", "Cookie, Origin")
	} else {
		h.Set("Vary", "Cookie")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	for i := range v.cookies[:v.nset] {
		h.AddBytesV("Set-Cookie", v.cookies[i].value)
	}
	if len(v.newPass) > 0 {
		h.SetBytesV("X-Waiting-Room-Pass", v.newPass)
	}
	return h
}

// end makes v.body the answer's body. The answer goes out when the request is done with.
func (v *visit) end() {
	if v.ctx == nil {
		v.res.SetBodyRaw(v.body)
		return
	}
	v.res.SetBody(v.body) // it is sent when the visit is somebody else's
	if v.req.Drain() {
		v.res.SetConnectionClose()
	}
}

func retryAfter(h *fasthttp.ResponseHeader, seconds int) {
	if seconds > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds))
	}
}

// json answers with a status object.
func (v *visit) json(code int, s *status) {
	v.body = s.append(v.body[:0])
	if v.sendJSON(code, s) {
		return
	}
	h := v.begin(code, typeJSON)
	h.Set("X-Waiting-Room", s.state)
	retryAfter(h, s.refresh)
	v.end()
}

// sendJSON is what json does for nearly all that ask, without fasthttp's headers in between. False: it did nothing.
func (v *visit) sendJSON(code int, s *status) bool {
	if v.origin { // the headers of cors come later
		return false
	}
	b := append(v.text[:0], "Content-Type: "+typeJSON+"\r\nCache-Control: no-store\r\nVary: Cookie\r\nX-Content-Type-Options: nosniff\r\n"...)
	for i := range v.cookies[:v.nset] {
		b = append(append(append(b, "Set-Cookie: "...), v.cookies[i].value...), "\r\n"...)
	}
	if len(v.newPass) > 0 {
		b = append(append(append(b, "X-Waiting-Room-Pass: "...), v.newPass...), "\r\n"...)
	}
	b = append(append(append(b, "X-Waiting-Room: "...), s.state...), "\r\n"...)
	if s.refresh > 0 {
		b = append(strconv.AppendInt(append(b, "Retry-After: "...), int64(s.refresh), 10), "\r\n"...)
	}
	v.text = b
	if !v.req.Answer(v.start, code, b, v.body) {
		return false
	}
	v.answered, v.code, v.sent = true, code, int64(len(v.body))
	return true
}

// showPage answers with the waiting page.
func (v *visit) showPage(code int, view *page.View) {
	view.AcceptLanguage = string(v.req.Peek("accept-language"))
	if view.OpensAt != "" || view.ClosesAt != "" {
		view.Now = formatTime(v.room.line.RedisNow())
	}
	v.body = v.room.page.Append(v.body[:0], view)
	h := v.begin(code, typeHTML)
	h.Set("X-Waiting-Room", view.State)
	h.Set("Content-Security-Policy", v.room.page.Header())
	h.Set("Referrer-Policy", "same-origin")
	retryAfter(h, view.RefreshAfter)
	v.end()
}

// refuse answers with a problem, in the form that fits who asks, and logs it where it is a fault. detail, when not empty,
// replaces the table's; field names what in the request is wrong.
func (v *visit) refuse(p *problem, detail, field string) {
	if p.level > quiet {
		v.fault(p.level, p.title, p.code, v.roomID(), "code", p.code, "room", v.roomID())
	}
	v.show(p, detail, field)
}

// show is refuse for what has been logged with its cause, or need not be.
func (v *visit) show(p *problem, detail, field string) {
	v.outcome = refused
	if p.status >= 500 && p.level > quiet {
		v.outcome = failed
	}
	if p.close {
		v.req.CloseAfter()
	}
	var h *fasthttp.ResponseHeader
	switch v.who {
	case client.Navigation:
		if detail == "" {
			detail = p.detail
		}
		v.body = page.ErrorPage(v.body[:0], &page.Error{Status: p.status, Title: p.title, Detail: detail})
		h = v.begin(p.status, typeHTML)
		h.Set("Content-Security-Policy", page.ErrorHeader())
	case client.Subresource, client.Prefetch, client.Upgrade:
		v.body = append(append(v.body[:0], p.title...), '\n')
		h = v.begin(p.status, typeText)
	default:
		v.body = v.shut.append(p.append(v.body[:0], detail, field))
		if v.hint != "" {
			v.body = append(appendString(append(v.body[:len(v.body)-1], `,"challenge":`...), v.hint), '}')
		}
		h = v.begin(p.status, typeProblem)
	}
	retryAfter(h, p.retry)
	v.end()
}

// fail answers an error.
func (v *visit) fail(err error) {
	p := problemOf(err)
	if p.level > quiet {
		v.fault(p.level, "request failed", p.code, v.roomID(), "room", v.roomID(), "error", err)
	}
	v.show(p, "", "")
}

func (v *visit) roomID() string {
	if v.room == nil {
		return ""
	}
	return v.room.id
}
