package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/visitor"
)

// target is one of the servers, with an origin of its own.
type target struct {
	name   string
	origin *recorder
	addr   string
	pass   string // the header line of a pass; empty for other servers than the gateway
}

// startTargets starts the servers. The gateway is the last one.
func startTargets(r *rig.Run, gateway string, all []abuse) []*target {
	targets := []*target{{name: "nginx"}, {name: "HAProxy"}, {name: "fasthttp"}, {name: "gateway"}}
	for _, t := range targets {
		t.addr, t.origin = r.Port(), newRecorder(r, all)
		switch t.name {
		case "nginx":
			r.Nginx(t.name, 1, t.addr, rig.NginxProxy(t.addr, t.origin.addr, "proxy_set_header Host $http_host;"))
		case "HAProxy":
			r.HAProxy(t.addr, t.origin.addr)
		case "fasthttp":
			startFasthttp(r, t)
		default:
			g := r.Gateway(gateway, r.OwnStore()+fmt.Sprintf(`origins: [{id: origin, servers: ["http://%s"]}]
rooms: [{id: open, paths: ["/"], origin: origin, admission: {rate: 100000}, session: {ttl: 1h}}]
`, t.origin.addr))
			p := rig.Must(visitor.Gather(r, visitor.Options{URLs: []string{g.URL()}, Room: "open", Connections: 1, Timeout: 10 * time.Second}, 0, 1))
			t.addr, t.pass = g.Addr, "X-Waiting-Room-Pass: "+p.Admitted[0].Pass+"\r\n"
		}
	}
	return targets
}

// startFasthttp starts a proxy as one writes it with that library in an hour.
func startFasthttp(r *rig.Run, t *target) {
	ln := rig.Must(net.Listen("tcp", t.addr))
	client := &fasthttp.HostClient{
		Addr: t.origin.addr, MaxConns: 256, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		DisablePathNormalizing: true, DisableHeaderNamesNormalizing: true, NoDefaultUserAgentHeader: true,
	}
	s := &fasthttp.Server{
		ReadBufferSize: 16 << 10, ReadTimeout: 10 * time.Second, NoDefaultServerHeader: true, DisableHeaderNamesNormalizing: true,
		Logger: quiet{},
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.Request.Header.Del("Connection")
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error("bad gateway", fasthttp.StatusBadGateway)
			}
			ctx.Response.Header.Del("Connection")
		},
	}
	go func() { _ = s.Serve(ln) }() // returns after Shutdown
	r.Cleanup(func() { _ = s.Shutdown() })
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

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
