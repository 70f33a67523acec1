// Package accesslog writes one line for each request, as JSON or in the combined format, without secrets.
package accesslog

import (
	"bufio"
	"bytes"
	"context"
	"io"
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

// Options are the options of an access log.
type Options struct {
	Output   io.Writer // nil: none
	Combined bool      // the combined format in place of JSON
	Sample   float64   // share of requests that are logged, 0 to 1
	Prefix   bool      // addresses as /24 and /64
}

// Log is an access log. It collects lines and writes them once a second. The zero value discards all lines.
type Log struct {
	options atomic.Pointer[Options] // nil: no log
	mu      sync.Mutex              // held only to copy a finished line
	out     *bufio.Writer           // nil: no log
}

const (
	bufferSize  = 64 << 10
	flushPeriod = time.Second
	// maxField is the number of bytes of a field that are logged. The rest is cut off before the field is searched for secrets.
	maxField = 2 << 10
	cutMark  = "..."
)

// Set replaces the options, after a flush of what the former ones collected.
func (l *Log) Set(o Options) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.out.Flush()
	}
	l.out = nil
	l.options.Store(nil)
	if o.Output != nil {
		l.out = bufio.NewWriterSize(o.Output, bufferSize)
		l.options.Store(&o)
	}
}

// Run flushes once a second until ctx ends, and then once more.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(flushPeriod)
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

func (l *Log) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.out.Flush()
	}
}

// Entry represents a request in the log. Its slices belong to the request and are read during Write only.
type Entry struct {
	At                 time.Time
	Took               time.Duration
	Addr               netip.Addr
	Method, Host       []byte
	Target             []byte // empty: the header was refused
	Protocol           string
	UserAgent, Referer []byte
	Room               string // empty: outside all rooms
	Outcome            string
	Status             int
	Bytes              int64  // of the body sent
	field              []byte // buffer for one field
}

// lineBuffer is the buffer in which a line is composed.
type lineBuffer struct{ line, field []byte }

var lineBuffers = sync.Pool{New: func() any { return &lineBuffer{} }}

// Write logs a request, or skips it where the sample omits it.
func (l *Log) Write(e *Entry) {
	buffer := lineBuffers.Get().(*lineBuffer)
	defer lineBuffers.Put(buffer)
	if line := l.line(e, buffer); len(line) > 0 {
		l.append(line)
	}
}

// line composes the line of a request in buffer. It returns an empty slice where the request is not logged.
func (l *Log) line(e *Entry, buffer *lineBuffer) []byte {
	o := l.options.Load()
	if o == nil || o.Sample < 1 && rand.Float64() >= o.Sample {
		return nil
	}
	e.field = buffer.field
	if o.Combined {
		buffer.line = e.appendCombined(buffer.line[:0], o.Prefix)
	} else {
		buffer.line = e.appendJSON(buffer.line[:0], o.Prefix)
	}
	buffer.field = e.field
	return buffer.line
}

// append adds a finished line to those that the next flush writes.
func (l *Log) append(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return
	}
	if len(line) > l.out.Available() {
		l.out.Flush() // a flush inside a line would let other log output split it
	}
	l.out.Write(line) //nolint:errcheck // the log cannot report its own failure
}

// cut returns a field, shortened to maxField bytes and cutMark where it is longer.
func (e *Entry) cut(value []byte) []byte {
	if len(value) <= maxField {
		return value
	}
	e.field = append(append(e.field[:0], value[:maxField]...), cutMark...)
	return e.field
}

// redacted returns a target without its secrets, shortened as by cut.
func (e *Entry) redacted(target []byte) []byte {
	e.field = appendRedacted(e.field[:0], target[:min(len(target), maxField)])
	if len(target) > maxField {
		e.field = append(e.field, cutMark...)
	}
	return e.field
}

func (e *Entry) appendJSON(b []byte, prefix bool) []byte {
	field := func(name string, value []byte) {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = answer.AppendString(b, unsafe.String(unsafe.SliceData(value), len(value)))
	}
	b = answer.AppendTime(append(b, `{"time":`...), e.At.UnixMicro())
	b = append(b, `,"msg":"access","ip":"`...)
	b = append(appendAddr(b, e.Addr, prefix), '"')
	field("method", e.Method)
	field("host", e.cut(e.Host))
	field("target", e.redacted(e.Target))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(e.Status), 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), e.Bytes, 10)
	b = strconv.AppendFloat(append(b, `,"seconds":`...), e.Took.Seconds(), 'f', 6, 64)
	if e.Room != "" {
		b = answer.AppendString(append(b, `,"room":`...), e.Room)
	}
	b = answer.AppendString(append(b, `,"outcome":`...), e.Outcome)
	field("user_agent", e.cut(e.UserAgent))
	if len(e.Referer) > 0 {
		field("referer", e.redacted(e.Referer))
	}
	return append(b, "}\n"...)
}

func (e *Entry) appendCombined(b []byte, prefix bool) []byte {
	b = appendAddr(b, e.Addr, prefix)
	b = append(e.At.UTC().AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700"), `] "`...)
	if len(e.Target) > 0 {
		b = append(appendEscaped(b, e.Method), ' ')
		b = append(appendEscaped(b, e.redacted(e.Target)), ' ')
		b = append(b, e.Protocol...)
	} else {
		b = append(b, '-') // the header was refused
	}
	b = strconv.AppendInt(append(b, `" `...), int64(e.Status), 10)
	b = append(strconv.AppendInt(append(b, ' '), e.Bytes, 10), ` "`...)
	b = appendEscapedOrDash(b, e.redacted(e.Referer))
	b = append(b, `" "`...)
	b = appendEscapedOrDash(b, e.cut(e.UserAgent))
	return append(b, "\"\n"...)
}

// appendEscaped appends a field of the combined format. All bytes but printable ASCII are escaped.
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

// appendAddr appends the visitor's address, or its network where prefix is set.
func appendAddr(b []byte, a netip.Addr, prefix bool) []byte {
	switch {
	case !a.IsValid():
		return append(b, '-')
	case prefix:
		return client.Network(a).AppendTo(b)
	}
	return a.AppendTo(b)
}

// secretNames are, by first letter, the substrings that mark the name of a parameter as secret.
var secretNames = func() (t [256][]string) {
	for _, s := range []string{"token", "pass", "secret", "key", "auth", "sig", "session", "code", "ticket", "jwt", "cred", "email"} {
		t[s[0]] = append(t[s[0]], s)
		t[s[0]-'a'+'A'] = t[s[0]]
	}
	return
}()

// appendRedacted appends a target. It replaces the values of parameters that look like secrets.
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

// secretName reports whether a name contains one of secretNames, in any case.
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

// signedPrefix is the beginning of every JWT.
const signedPrefix = "eyJ"

// looksSigned reports whether a value begins like a JWT.
func looksSigned(value []byte) bool {
	return bytes.HasPrefix(value, []byte(signedPrefix)) && bytes.IndexByte(value, '.') >= 0
}
