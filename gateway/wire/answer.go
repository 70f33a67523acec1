package wire

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
)

// Answer writes a response of the handler's own in one piece, for responses that are frequent enough to bypass fasthttp.
// lines are its field lines, each with its CRLF, except Date and the framing, which are added. now is the value of Date.
// If Answer returns false, it has not sent a byte, and the handler responds in another way.
func (r *Request) Answer(now time.Time, status int, lines, body []byte) bool {
	if r.from != nil || r.c.phase < phaseRead || r.c.phase >= phaseAnswered || r.refusal != nil || len(lines)+len(body) > http1.BlockSize-512 {
		return false
	}
	closing := r.Drain() || r.c.listener.stopping.Load()
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	p := appendStatus((*block)[:0], status, now)
	p = append(p, lines...)
	r.finishAnswer(p, body, true, closing)
	return true
}

// Send writes res to a request that Direct's handler took, as fasthttp does after other handlers. To a described request nothing is sent.
func (r *Request) Send(now time.Time, res *fasthttp.Response) {
	if r.from != nil || r.c.phase >= phaseAnswered {
		return
	}
	closing := r.Drain() || r.c.listener.stopping.Load() || res.ConnectionClose()
	status := res.StatusCode()
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	p := appendStatus((*block)[:0], status, now)
	for k, v := range res.Header.All() {
		if !http1.FramingName(k) {
			p = append(append(append(append(p, k...), ": "...), v...), "\r\n"...)
		}
	}
	r.finishAnswer(p, res.Body(), status != fasthttp.StatusNoContent && status != fasthttp.StatusNotModified, closing)
}

// appendStatus appends a status line and Date.
func appendStatus(p []byte, status int, now time.Time) []byte {
	p = append(p, "HTTP/1.1 "...)
	p = strconv.AppendInt(p, int64(status), 10)
	p = append(p, ' ')
	p = append(p, fasthttp.StatusMessage(status)...)
	p = append(p, "\r\nDate: "...)
	p = append(p, http1.Date(now)...)
	return append(p, "\r\n"...)
}

// finishAnswer appends the framing and the body to a header and writes the response.
func (r *Request) finishAnswer(p, body []byte, hasBody, closing bool) {
	c := r.c
	if hasBody {
		p = append(p, "Content-Length: "...)
		p = strconv.AppendInt(p, int64(len(body)), 10)
		p = append(p, "\r\n"...)
	}
	switch {
	case closing:
		p = append(p, "Connection: close\r\n"...)
	case r.header.HTTP10:
		p = append(p, "Connection: keep-alive\r\n"...)
	}
	p = append(p, "\r\n"...)
	if hasBody && !r.header.IsHead() {
		p = append(p, body...)
	}
	if _, err := c.Write(p); err != nil {
		c.detach()
		return
	}
	c.phase = phaseAnswered
	c.last = c.last || closing
}
