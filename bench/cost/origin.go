package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// originLines is how many header lines the origin sends below …/lines: close to the most that the gateway takes.
const originLines = 490

// The answers of the origin. The two long ones have the same length.
var (
	linesAnswer = answerWith(strings.Repeat("X-Repeated: a\r\n", originLines))
	longAnswer  = answerWith("X-Plain: " + strings.Repeat("p", originLines*len("X-Repeated: a\r\n")-len("X-Plain: \r\n")) + "\r\n")
	shortAnswer = answerWith("")
)

func answerWith(lines string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n" + lines + "\r\nok"
}

// origin reads every request to its end and answers as its path asks.
type origin struct {
	ln     net.Listener
	served sync.WaitGroup
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
}

func startOrigin() (*origin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{ln: ln, conns: map[net.Conn]struct{}{}}
	o.served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns[c] = struct{}{}
			o.mu.Unlock()
			o.served.Go(func() { o.serve(c) })
		}
	})
	return o, nil
}

func (o *origin) addr() string { return o.ln.Addr().String() }

func (o *origin) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		o.mu.Lock()
		delete(o.conns, c)
		o.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		answer := shortAnswer
		switch {
		case strings.HasSuffix(r.URL.Path, "/lines"):
			answer = linesAnswer
		case strings.HasSuffix(r.URL.Path, "/long"):
			answer = longAnswer
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func (o *origin) close() {
	_ = o.ln.Close()
	o.mu.Lock()
	for c := range o.conns {
		_ = c.Close()
	}
	o.mu.Unlock()
	o.served.Wait()
}
