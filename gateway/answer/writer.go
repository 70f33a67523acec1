package answer

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/wire"
)

// Content types.
const (
	TypeJSON    = "application/json"
	typeProblem = "application/problem+json"
	typeHTML    = "text/html; charset=utf-8"
	typeText    = "text/plain; charset=utf-8"
)

// Writer writes the response to one request: the gateway's own, or cookies and a pass for that of an origin. It is reused.
type Writer struct {
	Body   []byte // memory for bodies
	Shared []byte // a body that others read too, instead of Body; nil: none
	Object Status // memory for a status object

	req   *wire.Request
	res   *fasthttp.Response
	ctx   *fasthttp.RequestCtx // nil where the request is served without fasthttp
	own   *fasthttp.Response   // res where ctx is nil
	start time.Time

	cookies [3][]byte
	n       int
	pass    []byte // for X-Waiting-Room-Pass
	site    []byte // of another origin whose scripts may read the response

	head []byte // memory for a header
	sent Sent
}

// Sent describes the response that was sent.
type Sent struct {
	Done  bool
	Code  int
	Bytes int64 // of the body
}

// Begin prepares the writer for a request. ctx is nil where the request is served without fasthttp.
func (w *Writer) Begin(req *wire.Request, ctx *fasthttp.RequestCtx, start time.Time) {
	w.req, w.ctx, w.start = req, ctx, start
	if ctx != nil {
		w.res = &ctx.Response
		return
	}
	if w.own == nil {
		w.own = &fasthttp.Response{}
	}
	w.res = w.own
}

// Reset forgets the request and keeps the memory.
func (w *Writer) Reset() {
	own, body, head, cookies := w.own, w.Body, w.head, w.cookies
	*w = Writer{own: own, head: head[:0], cookies: cookies}
	if cap(body) <= 64<<10 {
		w.Body = body[:0]
	}
}

// Cookie adds a cookie to the response, or replaces the one of that name. maxAge is in seconds; 0 deletes the cookie.
func (w *Writer) Cookie(name string, value []byte, maxAge int64, sameSite string, secure bool) {
	at := w.n
	for i, c := range w.cookies[:w.n] {
		if len(c) > len(name) && c[len(name)] == '=' && string(c[:len(name)]) == name {
			at = i
		}
	}
	w.cookies[at] = client.AppendCookie(w.cookies[at][:0], name, value, maxAge, sameSite, secure)
	w.n = max(w.n, at+1)
}

// Pass sets X-Waiting-Room-Pass.
func (w *Writer) Pass(pass []byte) { w.pass = pass }

// AllowSite lets the scripts of another site read the response.
func (w *Writer) AllowSite(site []byte) { w.site = site }

// Discard removes the cookies and the pass.
func (w *Writer) Discard() { w.n, w.pass = 0, nil }

// IsEmpty reports whether the response has no cookie and no pass of the gateway.
func (w *Writer) IsEmpty() bool { return w.n == 0 && len(w.pass) == 0 }

// AddTo adds the cookies and the pass to an origin's response.
func (w *Writer) AddTo(h *fasthttp.ResponseHeader) {
	for _, c := range w.cookies[:w.n] {
		h.AddBytesV("Set-Cookie", c)
	}
	if len(w.pass) > 0 {
		h.Del("X-Waiting-Room-Pass")
		h.SetBytesV("X-Waiting-Room-Pass", w.pass)
	}
}

// SetSent records that the response was sent without this writer.
func (w *Writer) SetSent(s Sent) { w.sent = s }

// Sent returns the response that was sent or will be.
func (w *Writer) Sent() Sent {
	if !w.sent.Done {
		return Sent{Code: w.res.StatusCode(), Bytes: int64(len(w.res.Body()))}
	}
	return w.sent
}

// Response returns the response of a request that is served without fasthttp, where nothing has been sent.
func (w *Writer) Response() *fasthttp.Response { return w.res }

// Finish sends what has not been sent yet. fasthttp sends the response of a request that it serves.
func (w *Writer) Finish() {
	if w.ctx == nil && !w.sent.Done {
		w.req.Send(w.start, w.res)
	}
}

// begin sets the header fields of every response of the gateway.
func (w *Writer) begin(code int, contentType string) *fasthttp.ResponseHeader {
	h := &w.res.Header
	if w.ctx == nil {
		w.res.Reset()
		h.SetNoDefaultContentType(true)
	}
	h.SetStatusCode(code)
	h.SetContentType(contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Cookie")
	h.Set("X-Content-Type-Options", "nosniff")
	if len(w.site) > 0 {
		h.Set("Vary", "Cookie, Origin")
		h.SetBytesV("Access-Control-Allow-Origin", w.site)
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Expose-Headers", "Retry-After, X-Waiting-Room, X-Waiting-Room-Pass")
	}
	w.AddTo(h)
	return h
}

// end makes Shared or Body the response's body.
func (w *Writer) end() {
	body := w.Body
	if w.Shared != nil {
		body = w.Shared
	}
	if w.ctx == nil {
		w.res.SetBodyRaw(body)
		return
	}
	w.res.SetBody(body) // a copy: fasthttp sends it when the writer may serve another request
	if w.req.Drain() {
		w.res.SetConnectionClose()
	}
}

func retryAfter(h *fasthttp.ResponseHeader, seconds int) {
	if seconds > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds))
	}
}

// Document writes a body that is in Body, with further header fields.
func (w *Writer) Document(code int, contentType string, fields ...[2]string) {
	h := w.begin(code, contentType)
	for _, f := range fields {
		if f[1] == "" {
			h.Del(f[0])
		} else {
			h.Set(f[0], f[1])
		}
	}
	w.end()
}

// Status writes a status object.
func (w *Writer) Status(code int, s *Status) {
	w.Body = s.Append(w.Body[:0])
	if w.sendStatus(code, s) {
		return
	}
	h := w.begin(code, TypeJSON)
	h.Set("X-Waiting-Room", s.State)
	retryAfter(h, s.Refresh)
	w.end()
}

// sendStatus sends a status object without fasthttp's header, and reports whether it could.
func (w *Writer) sendStatus(code int, s *Status) bool {
	if len(w.site) > 0 {
		return false
	}
	b := append(w.head[:0], "Content-Type: "+TypeJSON+"\r\nCache-Control: no-store\r\nVary: Cookie\r\nX-Content-Type-Options: nosniff\r\n"...)
	b = append(append(append(w.appendCookies(b), "X-Waiting-Room: "...), s.State...), "\r\n"...)
	if s.Refresh > 0 {
		b = append(strconv.AppendInt(append(b, "Retry-After: "...), int64(s.Refresh), 10), "\r\n"...)
	}
	w.head = b
	if !w.req.Answer(w.start, code, b, w.Body) {
		return false
	}
	w.sent = Sent{true, code, int64(len(w.Body))}
	return true
}

// NoField is no header field.
var NoField [2]string

// Passed writes the response to a check whose request may go on. state is the value of X-Waiting-Room, session the visitor's; empty: none.
// field is a further header field.
func (w *Writer) Passed(state, session string, field [2]string) {
	b := append(w.head[:0], "Cache-Control: no-store\r\nX-Waiting-Room: "...)
	b = append(append(b, state...), "\r\n"...)
	if session != "" {
		b = append(append(append(b, "X-Waiting-Room-Session: "...), session...), "\r\n"...)
	}
	if field[0] != "" {
		b = append(append(append(append(b, field[0]...), ": "...), field[1]...), "\r\n"...)
	}
	if w.head = w.appendCookies(b); w.req.Answer(w.start, 200, w.head, nil) {
		w.sent = Sent{Done: true, Code: 200}
		return
	}
	w.Body = w.Body[:0]
	h := w.begin(200, "")
	h.Set("X-Waiting-Room", state)
	if session != "" {
		h.Set("X-Waiting-Room-Session", session)
	}
	if field[0] != "" {
		h.Set(field[0], field[1])
	}
	w.end()
}

// appendCookies appends the cookies and the pass as lines of a header.
func (w *Writer) appendCookies(b []byte) []byte {
	for _, c := range w.cookies[:w.n] {
		b = append(append(append(b, "Set-Cookie: "...), c...), "\r\n"...)
	}
	if len(w.pass) > 0 {
		b = append(append(append(b, "X-Waiting-Room-Pass: "...), w.pass...), "\r\n"...)
	}
	return b
}

// Page writes a room's page. state is the value of X-Waiting-Room.
func (w *Writer) Page(code int, p *page.Page, view *page.View, state string, now int64) {
	if view.OpensAt != "" || view.ClosesAt != "" {
		view.Now = FormatTime(now)
	}
	w.Body = p.Append(w.Body[:0], view)
	h := w.begin(code, typeHTML)
	h.Set("X-Waiting-Room", state)
	h.Set("Content-Security-Policy", p.Header())
	h.Set("Referrer-Policy", "same-origin")
	retryAfter(h, view.RefreshAfter)
	w.end()
}

// Problem writes a problem in the form that suits a kind of request.
func (w *Writer) Problem(p *Problem, kind client.Kind) {
	if p.Close {
		w.req.CloseAfter()
	}
	var h *fasthttp.ResponseHeader
	switch kind {
	case client.Navigation:
		w.Body = page.ErrorPage(w.Body[:0], &page.Error{Status: p.Status, Title: p.Title, Detail: p.Detail, Link: p.Link})
		h = w.begin(p.Status, typeHTML)
		h.Set("Content-Security-Policy", page.ErrorHeader())
	case client.Subresource, client.Prefetch, client.Upgrade:
		w.Body = append(append(w.Body[:0], p.Title...), '\n')
		h = w.begin(p.Status, typeText)
	default:
		w.Body = p.Append(w.Body[:0])
		h = w.begin(p.Status, typeProblem)
	}
	retryAfter(h, p.Retry)
	if p.State != "" {
		h.Set("X-Waiting-Room", p.State)
	}
	if p.Header[0] != "" {
		h.Set(p.Header[0], p.Header[1])
	}
	w.end()
}

// Abandon replaces the response by the problem Internal with a status, unless the response has been sent.
func (w *Writer) Abandon(status int) {
	w.req.CloseAfter()
	w.Shared = nil
	if w.sent.Done {
		return
	}
	w.res.Reset()
	w.Discard()
	p := *Internal
	p.Status = status
	w.Problem(&p, client.API)
}

// View returns a status as the page shows it.
func (s *Status) View() page.View {
	v := page.View{
		State: s.State, Reason: s.Reason, Position: s.Position, Waiting: max(s.Waiting, s.Position),
		ETASeconds: s.ETA.Seconds, ETALow: s.ETA.Low, ETAHigh: s.ETA.High, ETAKnown: s.ETA.Known,
		RefreshAfter: s.Refresh, Message: s.Message, Paused: s.Paused,
	}
	if s.Facts != nil {
		v.Facts = s.Facts.URL
	}
	if s.Position > 0 {
		v.Ahead = s.Position - 1
	}
	if s.OpensAt > 0 {
		v.OpensAt = FormatTime(s.OpensAt)
	}
	if s.ClosesAt > 0 {
		v.ClosesAt = FormatTime(s.ClosesAt)
	}
	if s.JoinedAt > 0 {
		v.JoinedAt = FormatTime(s.JoinedAt)
	}
	return v
}
