package gateway

import (
	"bufio"
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// accessLog writes a line for each request, or for a share of them. Lines are collected and written once a second.
type accessLog struct {
	mu  sync.Mutex
	out *bufio.Writer // nil: none
	to  Access
	buf []byte
}

const (
	accessBuffer = 64 << 10
	accessFlush  = time.Second
)

func (l *accessLog) set(a Access) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.out.Flush()
	}
	l.to, l.out = a, nil
	if a.Output != nil {
		l.out = bufio.NewWriterSize(a.Output, accessBuffer)
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
}

func (l *accessLog) write(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil || l.to.Sample < 1 && rand.Float64() >= l.to.Sample {
		return
	}
	if l.to.Combined {
		l.buf = e.appendCombined(l.buf[:0], l.to.Prefix)
	} else {
		l.buf = e.appendJSON(l.buf[:0], l.to.Prefix)
	}
	if len(l.buf) > l.out.Available() {
		l.out.Flush() // whole lines only: what others log would come between two parts of one
	}
	l.out.Write(l.buf) //nolint:errcheck // the log cannot tell of itself
}

func (e *entry) appendJSON(b []byte, prefix bool) []byte {
	field := func(name string, value []byte) {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = appendString(b, string(value))
	}
	b = appendTime(append(b, `{"time":`...), e.at.UnixMicro())
	b = append(b, `,"msg":"access","ip":"`...)
	b = append(append(b, logAddr(e.addr, prefix)...), '"')
	field("method", e.method)
	field("host", e.host)
	field("target", redact(e.target))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), e.bytes, 10)
	b = strconv.AppendFloat(append(b, `,"seconds":`...), e.took.Seconds(), 'f', 6, 64)
	if e.room != "" {
		field("room", []byte(e.room))
	}
	field("outcome", []byte(e.outcome))
	field("user_agent", e.agent)
	if len(e.referer) > 0 {
		field("referer", redact(e.referer))
	}
	return append(b, "}\n"...)
}

func (e *entry) appendCombined(b []byte, prefix bool) []byte {
	quoted := func(parts ...[]byte) {
		b = append(b, '"')
		for i, part := range parts {
			if i > 0 {
				b = append(b, ' ')
			}
			for _, c := range part {
				if c < ' ' || c > '~' || c == '"' || c == '\\' {
					const hex = "0123456789abcdef"
					b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
					continue
				}
				b = append(b, c)
			}
		}
		b = append(b, '"')
	}
	orDash := func(v []byte) []byte {
		if len(v) == 0 {
			return []byte("-")
		}
		return v
	}
	b = append(b, logAddr(e.addr, prefix)...)
	b = append(e.at.UTC().AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700"), "] "...)
	if len(e.target) > 0 {
		quoted(e.method, redact(e.target), []byte(e.proto))
	} else {
		quoted([]byte("-")) // a header that was not let in
	}
	b = strconv.AppendInt(append(b, ' '), int64(e.status), 10)
	b = append(strconv.AppendInt(append(b, ' '), e.bytes, 10), ' ')
	quoted(orDash(redact(e.referer)))
	b = append(b, ' ')
	quoted(orDash(e.agent))
	return append(b, '\n')
}

// secretNames are parts of parameters' names whose values are not logged.
var secretNames = []string{"token", "pass", "secret", "key", "auth", "sig", "session", "code", "ticket", "jwt", "cred", "email"}

// redact replaces the values of a target's parameters that look like secrets. It copies only where it has to.
func redact(target []byte) []byte {
	i := bytes.IndexByte(target, '?')
	if i < 0 {
		return redactPath(target)
	}
	out := append([]byte{}, redactPath(target[:i])...)
	sep := byte('?')
	for pair := range bytes.SplitSeq(target[i+1:], []byte("&")) {
		name, value, ok := bytes.Cut(pair, []byte("="))
		out = append(append(out, sep), name...)
		sep = '&'
		switch {
		case !ok:
		case secretName(name) || looksSigned(value):
			out = append(out, "=***"...)
		default:
			out = append(append(out, '='), value...)
		}
	}
	return out
}

func redactPath(path []byte) []byte {
	if !bytes.Contains(path, []byte("eyJ")) {
		return path
	}
	parts := bytes.Split(path, []byte("/"))
	for i, part := range parts {
		if looksSigned(part) {
			parts[i] = []byte("***")
		}
	}
	return bytes.Join(parts, []byte("/"))
}

func secretName(name []byte) bool {
	lower := bytes.ToLower(name)
	for _, s := range secretNames {
		if bytes.Contains(lower, []byte(s)) {
			return true
		}
	}
	return false
}

// looksSigned tells a JWT.
func looksSigned(value []byte) bool {
	return bytes.HasPrefix(value, []byte("eyJ")) && bytes.Count(value, []byte(".")) >= 1
}
