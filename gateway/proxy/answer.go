package proxy

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Answer sends an answer of the handler's own in one piece, for those that are sent so often that their form matters:
// lines are its header lines, each with its CRLF, but for Date and those that say how the message travels, which are
// added. now is the time by the clock, for Date. ctx.Response keeps the status, for logs, and is otherwise not looked at. Where
// Answer says false nothing was sent, and ctx.Response is to be used.
func Answer(ctx *fasthttp.RequestCtx, now time.Time, status int, lines, body []byte) bool {
	c := clientOf(ctx)
	if c == nil || !c.delivered || c.refusal != nil || c.answered || c.gone || len(lines)+len(body) > blockSize-512 {
		return false
	}
	Drain(ctx)
	closing := c.head.close || c.last || ctx.Response.ConnectionClose() || stopping(ctx)
	if closing {
		ctx.SetConnectionClose()
	}
	block := getBlock()
	defer putBlock(block)
	p := append((*block)[:0], "HTTP/1.1 "...)
	p = strconv.AppendInt(p, int64(status), 10)
	p = append(p, ' ')
	p = append(p, fasthttp.StatusMessage(status)...)
	p = append(p, "\r\nDate: "...)
	p = append(p, dateAt(now)...)
	p = append(p, "\r\n"...)
	p = append(p, lines...)
	p = append(p, "Content-Length: "...)
	p = strconv.AppendInt(p, int64(len(body)), 10)
	switch {
	case closing:
		p = append(p, "\r\nConnection: close"...)
	case c.head.http10:
		p = append(p, "\r\nConnection: keep-alive"...)
	}
	p = append(p, "\r\n\r\n"...)
	if !c.head.isHead() {
		p = append(p, body...)
	}
	if _, err := c.Write(p); err != nil {
		c.gone, c.last = true, true
		ctx.SetConnectionClose()
	}
	c.answered = true
	ctx.Response.SetStatusCode(status)
	return true
}

// date is the value of Date in a second.
type date struct {
	second int64
	text   []byte
}

var lastDate atomic.Pointer[date]

// dateAt gives the value of Date, which is put into words once a second.
func dateAt(now time.Time) []byte {
	d := lastDate.Load()
	if second := now.Unix(); d == nil || d.second != second {
		d = &date{second, fasthttp.AppendHTTPDate(nil, now)}
		lastDate.Store(d)
	}
	return d.text
}
