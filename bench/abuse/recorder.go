package main

import (
	"bufio"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// recorder is an origin that keeps what it got and answers each case as the case says.
type recorder struct {
	ln     net.Listener
	cases  []abuse
	served sync.WaitGroup

	mu    sync.Mutex
	got   map[int][]*message // by case
	stray []*message         // of which nobody knows whose they are
	conns map[net.Conn]struct{}
}

func newRecorder(cases []abuse) (*recorder, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &recorder{ln: ln, cases: cases, got: map[int][]*message{}, conns: map[net.Conn]struct{}{}}
	o.served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns[c] = struct{}{}
			o.mu.Unlock()
			o.served.Go(func() {
				o.serve(c)
				o.mu.Lock()
				delete(o.conns, c)
				o.mu.Unlock()
			})
		}
	})
	return o, nil
}

func (o *recorder) addr() string { return o.ln.Addr().String() }

func (o *recorder) close() {
	_ = o.ln.Close()
	o.mu.Lock()
	for c := range o.conns {
		_ = c.Close()
	}
	o.mu.Unlock()
	o.served.Wait()
}

func (o *recorder) serve(c net.Conn) {
	defer c.Close()
	early := &peek{Reader: c, o: o, c: c}
	r := bufio.NewReader(early)
	for {
		early.answered = false
		early.seen = early.seen[:0]
		m, err := readMessage(r, true)
		if m == nil {
			return
		}
		n := caseOf(m)
		o.mu.Lock()
		if n < 0 {
			o.stray = append(o.stray, m)
		} else {
			o.got[n] = append(o.got[n], m)
		}
		o.mu.Unlock()
		if err != nil {
			return
		}
		answer := ""
		if n >= 0 && n < len(o.cases) {
			answer = o.cases[n].answer
		}
		switch {
		case early.answered:
			continue
		case answer == "":
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
			if strings.HasPrefix(m.first, "HEAD ") {
				answer = strings.TrimSuffix(answer, "ok")
			}
		default:
			_, _ = io.WriteString(c, answer)
			if strings.Contains(answer, "POISON") { // it is kept, for whom the rest is then given
				continue
			}
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// peek answers a case whose origin does so early as soon as its header is through.
type peek struct {
	io.Reader
	o        *recorder
	c        net.Conn
	seen     []byte
	answered bool
}

func (p *peek) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if !p.answered && len(p.seen) < 64<<10 {
		p.seen = append(p.seen, b[:n]...)
		if head, _, ok := strings.Cut(string(p.seen), "\r\n\r\n"); ok {
			if k := caseOf(&message{header: head + "\r\n"}); k >= 0 && k < len(p.o.cases) && p.o.cases[k].answer == early {
				p.answered = true
				_, _ = io.WriteString(p.c, early)
			}
		}
	}
	return n, err
}

var number = regexp.MustCompile(`(?i)(?:x-case: |/case-)([0-9]{3})`)

// caseOf finds the number that every request of a case carries, wherever it has got to.
func caseOf(m *message) int {
	for _, text := range []string{m.header, string(m.body)} {
		if found := number.FindStringSubmatch(text); found != nil {
			n, err := strconv.Atoi(found[1])
			if err == nil {
				return n
			}
		}
	}
	return -1
}

func (o *recorder) of(n int) []*message {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got[n]
}

// settle waits until what is under way has arrived.
func (o *recorder) settle() { time.Sleep(500 * time.Millisecond) }
