package e2e

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// ledger is an origin on a raw socket that records every byte. Its parser is strict: any server would accept the requests that it accepts.
type ledger struct {
	t  testing.TB
	ln net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	taken  []string // whole requests, header and body, byte for byte
	begun  int      // headers, of whole requests and of others
	strays []string // bytes that were no request, or an incomplete one
	answer string   // to all requests but probes; empty: a small response
	hangUp bool     // the connection ends with answer
}

const smallAnswer = "HTTP/1.1 200 OK\r\nX-Origin: yes\r\nContent-Length: 2\r\n\r\nok"

func newLedger(t testing.TB) *ledger {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{t: t, ln: ln, conns: map[net.Conn]bool{}}
	l.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.conns[c] = true
			l.mu.Unlock()
			l.wg.Go(func() { l.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		l.mu.Lock()
		for c := range l.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.wg.Wait()
	})
	return l
}

func (l *ledger) url() string { return "http://" + l.ln.Addr().String() }

func (l *ledger) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	}()
	var held []byte
	more := func() error {
		buf := make([]byte, 64<<10)
		n, err := c.Read(buf)
		held = append(held, buf[:n]...)
		if n > 0 {
			return nil
		}
		return err
	}
	for {
		n, err := request(held, more, func() []byte { return held }, func() {
			l.mu.Lock()
			l.begun++
			l.mu.Unlock()
		})
		l.mu.Lock()
		if err != nil {
			if len(held) > 0 {
				l.strays = append(l.strays, string(held))
			}
			l.mu.Unlock()
			return
		}
		whole := string(held[:n])
		held = held[n:]
		l.taken = append(l.taken, whole)
		answer, hangUp := l.answer, l.hangUp
		l.mu.Unlock()
		if answer == "" || strings.Contains(whole[:strings.Index(whole, "\r\n")], "/probe") {
			answer, hangUp = smallAnswer, false
		}
		if _, err := io.WriteString(c, answer); err != nil || hangUp {
			return
		}
	}
}

var errNoRequest = errors.New("not a request")

// request reads one whole request and returns its length. held returns the bytes received so far, which more extends.
func request(b []byte, more func() error, held func() []byte, begun func()) (int, error) {
	until := func(ok func() bool) error {
		for !ok() {
			if err := more(); err != nil {
				return err
			}
			b = held()
		}
		return nil
	}
	end := -1
	if err := until(func() bool { end = bytes.Index(b, []byte("\r\n\r\n")); return end >= 0 }); err != nil {
		return 0, err
	}
	begun()
	head := string(b[:end+2])
	at := end + 4
	length, chunked := 0, false
	for _, line := range strings.Split(head, "\r\n")[1:] {
		name, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(name) {
		case "content-length":
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				return 0, errNoRequest
			}
			length = n
		case "transfer-encoding":
			chunked = true
		}
	}
	if !chunked {
		return at + length, until(func() bool { return len(b) >= at+length })
	}
	line := func() (string, error) {
		nl := -1
		if err := until(func() bool { nl = bytes.IndexByte(b[at:], '\n'); return nl >= 0 }); err != nil {
			return "", err
		}
		s := string(b[at : at+nl+1])
		at += nl + 1
		return s, nil
	}
	for {
		s, err := line()
		if err != nil {
			return 0, err
		}
		size, err := strconv.ParseUint(strings.TrimSuffix(s, "\r\n"), 16, 31)
		if err != nil {
			return 0, errNoRequest
		}
		if size == 0 {
			break
		}
		at += int(size) + 2
		if err := until(func() bool { return len(b) >= at }); err != nil {
			return 0, err
		}
	}
	for {
		if s, err := line(); err != nil || s == "\r\n" {
			return at, err
		}
	}
}

// script sets the response to all requests but probes.
func (l *ledger) script(answer string, hangUp bool) {
	l.mu.Lock()
	l.answer, l.hangUp = answer, hangUp
	l.mu.Unlock()
}

// mark returns the size of the ledger.
type mark struct{ taken, begun, strays int }

func (l *ledger) mark() mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return mark{len(l.taken), l.begun, len(l.strays)}
}

// since returns the whole requests after a mark, and the number that began.
func (l *ledger) since(m mark) (whole []string, begun int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.taken[m.taken:]...), l.begun - m.begun
}
