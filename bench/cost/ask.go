package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// patience is how long a response may take.
const patience = 10 * time.Second

// connections is the number of connections of a prober. They send at the same time, so that the gateway can batch.
const connections = 8

// prober sends requests to one gateway.
type prober struct {
	addr        string
	pid         int
	connections [connections]connection
}

// connection is opened with its first request.
type connection struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func newProber(addr string, pid int) *prober {
	a := &prober{addr: addr, pid: pid}
	for i := range a.connections {
		a.connections[i].addr = addr
	}
	return a
}

func (a *prober) close() {
	for i := range a.connections {
		a.connections[i].close()
	}
}

func (a *connection) close() {
	if a.conn != nil {
		_ = a.conn.Close()
		a.conn = nil
	}
}

// ask sends a request and returns the response, whose body has been read. Close in it means that the gateway closed the connection.
func (a *connection) ask(request string) (r *http.Response, err error) {
	defer func() {
		if err != nil || r.Close {
			a.close()
		}
	}()
	if a.conn == nil {
		if a.conn, err = net.DialTimeout("tcp", a.addr, patience); err != nil {
			return nil, err
		}
		a.in = bufio.NewReader(a.conn)
	}
	if err := a.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	request = strings.ReplaceAll(request, fresh, fmt.Sprintf("%08x", rand.Uint32())) //nolint:gosec // a number that was not used before, no secret
	if _, err := io.WriteString(a.conn, request); err != nil {
		return nil, err
	}
	for r == nil || r.StatusCode < 200 {
		if r, err = http.ReadResponse(a.in, nil); err != nil {
			return nil, err
		}
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r, err
}

// batch sends a request n times and returns the gateway's processor time for each.
func (a *prober) batch(request string, n int) (time.Duration, error) {
	before, err := rig.Clock(a.pid)
	if err != nil {
		return 0, err
	}
	var group errgroup.Group
	for i := range a.connections {
		group.Go(func() error {
			for range n / connections {
				if _, err := a.connections[i].ask(request); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	after, err := rig.Clock(a.pid)
	return (after - before) / time.Duration(n/connections*connections), err
}

// compose returns the request of a case and the plain request of the same length. With closing, both close their connection.
func (w *trial) compose(closing bool) (heavy, plain string) {
	p := &w.endpoint
	head := func(target, fields string) string {
		return p.method + " " + cmp.Or(target, p.path) + " HTTP/1.1\r\nHost: " + cmp.Or(p.host, "shop.test") + "\r\n" + p.fields + fields
	}
	length := func(body string) string { return "Content-Length: " + strconv.Itoa(len(body)) + "\r\n" }
	heavy, plain = head(w.target, w.fields), head(w.plainTarget, "")
	body := w.body
	if p.method == "POST" {
		if w.plainIsJSON {
			body = "{" + strings.Repeat(" ", max(0, min(len(body), 4000)-2)) + "}"
		} else {
			body = strings.Repeat("x", len(body))
		}
		plain += length(body)
	}
	switch {
	case w.chunked:
		heavy += "Transfer-Encoding: chunked\r\n"
	case p.method == "POST":
		heavy += length(w.body)
	}
	if closing {
		plain += "Connection: close\r\n"
		if !strings.Contains(w.fields, "Connection: ") {
			heavy += "Connection: close\r\n"
		}
	}
	if missing := len(heavy) - len(plain) - len("X-Plain: \r\n"); missing > 0 {
		plain += "X-Plain: " + strings.Repeat("p", min(missing, 15<<10)) + "\r\n"
	}
	return heavy + "\r\n" + w.body, plain + "\r\n" + body
}

// result is the cost of a case.
type result struct {
	*trial
	status      int
	bytes       int
	plain, cost time.Duration // medians
	ratio       float64       // the median of the rounds'
}

// measure compares a case with its plain request in rounds that take at least a few milliseconds of the gateway's time.
func (a *prober) measure(w *trial, rounds int) *result {
	must := func(what string, err error) {
		rig.Require(err == nil, "%s, %s%s: %v", w.endpoint.name, what, w.name, err)
	}
	batch := func(what, request string, n int) time.Duration {
		a.close()
		took, err := a.batch(request, n)
		must(what, err)
		return took
	}
	heavy, plain := w.compose(false)
	a.close()
	first, err := a.connections[0].ask(heavy)
	must("", err)
	if first.Close {
		heavy, plain = w.compose(true)
	}
	var costs, plains []time.Duration
	var ratios []float64
	n := 5 * connections
	for len(ratios) < rounds {
		p, c := batch("plain beside ", plain, n), batch("", heavy, n)
		if time.Duration(n)*p < roundTime && n < mostAtOnce {
			n = min(mostAtOnce, max(2*n, int(roundTime/max(p, time.Microsecond))))
			continue // too short to measure
		}
		plains, costs, ratios = append(plains, p), append(costs, c), append(ratios, float64(c)/float64(p))
	}
	a.close()
	return &result{trial: w, status: first.StatusCode, bytes: len(heavy),
		plain: table.Median(plains), cost: table.Median(costs), ratio: table.Median(ratios)}
}

// mostAtOnce is the largest batch.
const mostAtOnce = 100 * connections

// roundTime is the least processor time of a batch of plain requests.
const roundTime = 4 * time.Millisecond
