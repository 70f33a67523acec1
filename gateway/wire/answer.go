package wire

import (
	"strconv"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/valyala/fasthttp"
)

// Answer sends an answer of the handler's own in one piece, for those that are sent so often that their form matters:
// lines are its header lines, each with its CRLF, but for Date and those that say how the message travels, which are
// added. now is the time by the clock, for Date. Where Answer says false nothing was sent, and the handler answers in
// its other way.
func (r *Request) Answer(now time.Time, status int, lines, body []byte) bool {
	c := r.c
	if !c.delivered || c.refusal != nil || c.answered || c.gone || len(lines)+len(body) > http1.BlockSize-512 {
		return false
	}
	closing := r.Drain() || c.l.stopping.Load()
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	p := append((*block)[:0], "HTTP/1.1 "...)
	p = strconv.AppendInt(p, int64(status), 10)
	p = append(p, ' ')
	p = append(p, fasthttp.StatusMessage(status)...)
	p = append(p, "\r\nDate: "...)
	p = append(p, http1.Date(now)...)
	p = append(p, "\r\n"...)
	p = append(p, lines...)
	p = append(p, "Content-Length: "...)
	p = strconv.AppendInt(p, int64(len(body)), 10)
	p = append(c.appendConnection(p, closing), "\r\n"...)
	if !c.head.IsHead() {
		p = append(p, body...)
	}
	c.answer(p, closing)
	return true
}

// Send sends res, for a request that Direct's handler took: what fasthttp would do after another handler.
func (r *Request) Send(now time.Time, res *fasthttp.Response) {
	c := r.c
	if c.answered || c.gone {
		return
	}
	closing := r.Drain() || c.l.stopping.Load() || res.ConnectionClose()
	h, body := &res.Header, res.Body()
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	p := append((*block)[:0], "HTTP/1.1 "...)
	p = strconv.AppendInt(p, int64(h.StatusCode()), 10)
	p = append(p, ' ')
	p = append(p, fasthttp.StatusMessage(h.StatusCode())...)
	p = append(p, "\r\nDate: "...)
	p = append(append(p, http1.Date(now)...), "\r\n"...)
	for k, v := range h.All() {
		if !http1.FramingName(k) {
			p = append(append(append(append(p, k...), ": "...), v...), "\r\n"...)
		}
	}
	if bodiless := h.StatusCode() == fasthttp.StatusNoContent || h.StatusCode() == fasthttp.StatusNotModified; !bodiless {
		p = append(p, "Content-Length: "...)
		p = append(strconv.AppendInt(p, int64(len(body)), 10), "\r\n"...)
	} else {
		body = nil
	}
	p = append(c.appendConnection(p[:len(p)-2], closing), "\r\n"...)
	if !c.head.IsHead() {
		p = append(p, body...)
	}
	c.answer(p, closing)
}

// appendConnection ends a header's last line, and says what becomes of the connection.
func (c *conn) appendConnection(p []byte, closing bool) []byte {
	switch {
	case closing:
		p = append(p, "\r\nConnection: close"...)
	case c.head.Http10:
		p = append(p, "\r\nConnection: keep-alive"...)
	}
	return append(p, "\r\n"...)
}

// answer sends a whole answer.
func (c *conn) answer(p []byte, closing bool) {
	if _, err := c.Write(p); err != nil {
		c.gone, c.last = true, true
	}
	c.answered = true
	c.last = c.last || closing
}
