package main

import (
	"bufio"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/anteroom/anteroom/bench/rig"
)

// recorder is an origin that records requests and responds to each case as the case requires.
type recorder struct {
	addr  string
	cases []abuse

	mu      sync.Mutex
	got     map[int][]*message // by case
	unknown []*message         // of no case
}

func newRecorder(r *rig.Run, cases []abuse) *recorder {
	o := &recorder{cases: cases, got: map[int][]*message{}}
	o.addr = r.Accept(o.serve)
	return o
}

func (o *recorder) serve(c net.Conn) {
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
			o.unknown = append(o.unknown, m)
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
			if strings.Contains(answer, "POISON") { // the connection stays open for the bytes after the response
				continue
			}
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// peek responds to a case with an early response as soon as the header has arrived.
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

// caseOf returns the number that every request of a case carries in its header or body, or -1.
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
