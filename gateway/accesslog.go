package gateway

import (
	"bufio"
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
)

// accessLog writes a line for each request, or for a share of them. Lines are collected and written once a second. The
// lock is held only to copy a finished line.
type accessLog struct {
	to  atomic.Pointer[Access] // nil: none
	mu  sync.Mutex
	out *bufio.Writer // nil: none
}

const (
	accessBuffer = 64 << 10
	accessFlush  = time.Second
	// maxLogged is how many bytes of a field are logged. The rest is cut off before the field is searched for secrets.
	maxLogged = 2 << 10
	cutMark   = "..."
)

func (l *accessLog) set(a Access) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.out.Flush()
	}
	l.out = nil
	l.to.Store(nil)
	if a.Output != nil {
		l.out = bufio.NewWriterSize(a.Output, accessBuffer)
		l.to.Store(&a)
	}
}

// run flushes until ctx ends.
func (l *accessLog) run(ctx context.Context) {
	tick := time.NewTicker(accessFlush)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.flush()
		case <-ctx.Done():
			l.flush()
			return
		}
	}
}

func (l *accessLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.out.Flush()
	}
}

// entry is a line. The slices are of the request.
type entry struct {
	at             time.Time
	took           time.Duration
	addr           netip.Addr
	method, host   []byte
	target         []byte
	proto          string
	agent, referer []byte
	room           string
	outcome        string
	status         int
	bytes          int64
	field          []byte // memory for one of them
}

// lineBuffer is the memory of a line while it is composed.
type lineBuffer struct{ line, field []byte }

var lineBuffers = sync.Pool{New: func() any { return &lineBuffer{} }}

func (l *accessLog) write(e *entry) {
	buffer := lineBuffers.Get().(*lineBuffer)
	defer lineBuffers.Put(buffer)
	if line := l.line(e, buffer); len(line) > 0 {
		l.append(line)
	}
}

// line returns the line of a request, empty where the request is not logged. It is valid as long as the buffer is.
func (l *accessLog) line(e *entry, buffer *lineBuffer) []byte {
	to := l.to.Load()
	if to == nil || to.Sample < 1 && rand.Float64() >= to.Sample {
		return nil
	}
	e.field = buffer.field
	if to.Combined {
		buffer.line = e.appendCombined(buffer.line[:0], to.Prefix)
	} else {
		buffer.line = e.appendJSON(buffer.line[:0], to.Prefix)
	}
	buffer.field = e.field
	return buffer.line
}

// append copies a finished line to what is written next.
func (l *accessLog) append(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return
	}
	if len(line) > l.out.Available() {
		l.out.Flush() // whole lines only: other log output could come between two parts of one
	}
	l.out.Write(line) //nolint:errcheck // the log cannot report its own failure
}

// cut returns at most maxLogged bytes of a field; where something is missing the mark stands at the end.
func (e *entry) cut(value []byte) []byte {
	if len(value) <= maxLogged {
		return value
	}
	e.field = append(append(e.field[:0], value[:maxLogged]...), cutMark...)
	return e.field
}

// redacted returns at most maxLogged bytes of a target without its secrets.
func (e *entry) redacted(target []byte) []byte {
	e.field = appendRedacted(e.field[:0], target[:min(len(target), maxLogged)])
	if len(target) > maxLogged {
		e.field = append(e.field, cutMark...)
	}
	return e.field
}

func (e *entry) appendJSON(b []byte, prefix bool) []byte {
	field := func(name string, value []byte) {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = answer.AppendString(b, unsafe.String(unsafe.SliceData(value), len(value)))
	}
	b = answer.AppendTime(append(b, `{"time":`...), e.at.UnixMicro())
	b = append(b, `,"msg":"access","ip":"`...)
	b = append(appendLogAddr(b, e.addr, prefix), '"')
	field("method", e.method)
	field("host", e.cut(e.host))
	field("target", e.redacted(e.target))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), e.bytes, 10)
	b = strconv.AppendFloat(append(b, `,"seconds":`...), e.took.Seconds(), 'f', 6, 64)
	if e.room != "" {
		b = answer.AppendString(append(b, `,"room":`...), e.room)
	}
	b = answer.AppendString(append(b, `,"outcome":`...), e.outcome)
	field("user_agent", e.cut(e.agent))
	if len(e.referer) > 0 {
		field("referer", e.redacted(e.referer))
	}
	return append(b, "}\n"...)
}

func (e *entry) appendCombined(b []byte, prefix bool) []byte {
	b = appendLogAddr(b, e.addr, prefix)
	b = append(e.at.UTC().AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700"), `] "`...)
	if len(e.target) > 0 {
		b = append(appendEscaped(b, e.method), ' ')
		b = append(appendEscaped(b, e.redacted(e.target)), ' ')
		b = append(b, e.proto...)
	} else {
		b = append(b, '-') // a header that was not let in
	}
	b = strconv.AppendInt(append(b, `" `...), int64(e.status), 10)
	b = append(strconv.AppendInt(append(b, ' '), e.bytes, 10), ` "`...)
	b = appendEscapedOrDash(b, e.redacted(e.referer))
	b = append(b, `" "`...)
	b = appendEscapedOrDash(b, e.cut(e.agent))
	return append(b, "\"\n"...)
}

// appendEscaped appends a field of the combined format, in which everything but printable ASCII is escaped.
func appendEscaped(b, field []byte) []byte {
	for _, c := range field {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
			continue
		}
		b = append(b, c)
	}
	return b
}

func appendEscapedOrDash(b, field []byte) []byte {
	if len(field) == 0 {
		return append(b, '-')
	}
	return appendEscaped(b, field)
}

// appendLogAddr appends the visitor's address as the log may have it.
func appendLogAddr(b []byte, a netip.Addr, prefix bool) []byte {
	switch {
	case !a.IsValid():
		return append(b, '-')
	case prefix:
		return client.Network(a).AppendTo(b)
	}
	return a.AppendTo(b)
}

// secretNames are parts of parameters' names whose values are not logged, by their first letter.
var secretNames = func() (t [256][]string) {
	for _, s := range []string{"token", "pass", "secret", "key", "auth", "sig", "session", "code", "ticket", "jwt", "cred", "email"} {
		t[s[0]] = append(t[s[0]], s)
		t[s[0]-'a'+'A'] = t[s[0]]
	}
	return
}()

// appendRedacted appends a target without the values of those parameters that look like secrets.
func appendRedacted(dst, target []byte) []byte {
	path, query, ok := bytes.Cut(target, []byte("?"))
	dst = appendRedactedPath(dst, path)
	for sep := byte('?'); ok; sep = '&' {
		var pair []byte
		pair, query, ok = bytes.Cut(query, []byte("&"))
		name, value, valued := bytes.Cut(pair, []byte("="))
		dst = append(append(dst, sep), name...)
		switch {
		case !valued:
		case secretName(name) || looksSigned(value):
			dst = append(dst, "=***"...)
		default:
			dst = append(append(dst, '='), value...)
		}
	}
	return dst
}

func appendRedactedPath(dst, path []byte) []byte {
	if !bytes.Contains(path, []byte(signedPrefix)) {
		return append(dst, path...)
	}
	for more := true; more; {
		var part []byte
		part, path, more = bytes.Cut(path, []byte("/"))
		if looksSigned(part) {
			part = []byte("***")
		}
		dst = append(dst, part...)
		if more {
			dst = append(dst, '/')
		}
	}
	return dst
}

// secretName reports whether a name has one of secretNames in it, in any case.
func secretName(name []byte) bool {
	for i, c := range name {
		for _, s := range secretNames[c] {
			if len(name)-i >= len(s) && client.EqualFold(name[i:i+len(s)], s) {
				return true
			}
		}
	}
	return false
}

// signedPrefix is how JWTs begin.
const signedPrefix = "eyJ"

// looksSigned reports whether a value begins like a JWT.
func looksSigned(value []byte) bool {
	return bytes.HasPrefix(value, []byte(signedPrefix)) && bytes.IndexByte(value, '.') >= 0
}
