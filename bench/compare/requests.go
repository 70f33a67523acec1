package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// requests measures one kind of request at a time, beside what nginx and HAProxy do for a similar one.
func (b *bench) requests() (rows []table.Row) {
	rig.Say("gathering passes and %d waiting tickets", b.waiting+front)
	passes, queue := b.gather(b.gateway, "open", 0, 100), b.gather(b.gateway, "line", b.waiting+front, 0)
	pass := passes.Admitted[0].Pass
	gateway := b.gateway.URL()
	status := b.fetch(gateway+"/.waiting-room/line/status", "X-Waiting-Room-Token", queue.Waiting[front].Token)
	rig.Require(json.Valid(status), "the status is not JSON: %s", status)
	b.startNginx(string(status))
	haproxyAddr := b.Port()
	haproxy := b.HAProxy(haproxyAddr, b.origin)
	for name, addr := range map[string]string{"nginx": b.proxyAddr, "HAProxy": haproxyAddr, "gateway": b.gateway.Addr} {
		page := b.fetch("http://"+addr+"/", "X-Waiting-Room-Pass", pass)
		rig.Require(len(page) == rig.PageBytes, "%s sends a page of %d bytes, want %d", name, len(page), rig.PageBytes)
	}
	nginx, proxy := contest{b.nginx, b.proxyAddr}, contest{haproxy, haproxyAddr}
	ours := contest{b.gateway.Child, b.gateway.Addr}
	passFile := b.credentials("passes", passes.Admitted, func(c visitor.Credentials) string { return c.Pass })
	tokenFile := b.credentials("tokens", queue.Waiting[front:], func(c visitor.Credentials) string { return c.Token })
	if b.wants("pass") {
		before := rig.Must(b.passed())
		r := b.turns("request with a pass", b.rounds, request{Header: "X-Waiting-Room-Pass", Method: "GET", Path: "/", Credentials: passFile},
			nginx, proxy, ours)
		counted := rig.Must(b.passed()) - before
		rig.Require(counted >= r[2].Requests, "the gateway counts %.0f requests with a pass, wrk has sent %.0f: something else was measured", counted, r[2].Requests)
		rows = append(rows,
			table.Row{What: "request with a pass", Unit: "/s", Peers: []float64{r[0].Rate, r[1].Rate}, Ours: r[2].Rate, Bars: []table.Bar{{Limit: 30_000}, {Limit: 0.8, Ratio: true}}},
			table.Row{What: "request with a pass", Unit: "CPU µs", Peers: []float64{r[0].CPU, r[1].CPU}, Ours: r[2].CPU, Bars: []table.Bar{{Limit: 1.25, AtMost: true, Ratio: true}}},
			table.Row{What: "… of HAProxy's CPU", Unit: "×", Ours: ratio(r[2].CPU, r[1].CPU)},
			table.Row{What: "request with a pass", Unit: "p99 ms", Peers: []float64{r[0].P99, r[1].P99}, Ours: r[2].P99})
	}
	if b.wants("poll") {
		r := b.turns("status poll", b.rounds, request{Header: "X-Waiting-Room-Token", Method: "GET", Path: "/.waiting-room/line/status", Credentials: tokenFile},
			contest{b.nginx, b.statusAddr}, ours)
		rows = append(rows,
			table.Row{What: fmt.Sprintf("status poll, %s waiting", table.Figure(float64(b.waiting))), Unit: "/s", Peers: []float64{r[0].Rate, 0}, Ours: r[1].Rate, Bars: []table.Bar{{Limit: 100_000}, {Limit: 0.5, Ratio: true}}},
			table.Row{What: "status poll", Unit: "CPU µs", Peers: []float64{r[0].CPU, 0}, Ours: r[1].CPU},
			table.Row{What: "status poll", Unit: "p99 ms", Peers: []float64{r[0].P99, 0}, Ours: r[1].P99})
	}
	if b.wants("join") {
		r := b.turns("join in a long queue", min(b.rounds, 3), request{Method: "POST", Path: "/.waiting-room/line/tickets", Body: "{}", Credentials: b.File("none", "\n")}, ours)
		rows = append(rows, table.Row{What: "join in a long queue", Unit: "/s", Ours: r[0].Rate, Bars: []table.Bar{{Limit: 80_000}}})
	}
	if b.wants("check") {
		rows = append(rows, b.checkRows(passFile, tokenFile)...)
	}
	return rows
}

// gather joins a room of a gateway.
func (b *bench) gather(g *rig.Gateway, room string, tokens, passes int) *visitor.Pool {
	p, err := visitor.Gather(b, visitor.Options{URLs: []string{g.URL()}, Room: room, Connections: 64, Timeout: 10 * time.Second}, tokens, passes)
	if err != nil {
		rig.Check(fmt.Errorf("room %s: %w\n%s", room, err, g.Log))
	}
	return p
}

// credentials writes a credential of each visitor to a file, one a line, and returns its path.
func (b *bench) credentials(name string, from []visitor.Credentials, credential func(visitor.Credentials) string) string {
	var text strings.Builder
	for _, c := range from {
		text.WriteString(credential(c) + "\n")
	}
	return b.File(name, text.String())
}

// fetch returns the body of a response, which must be 200 on a connection that stays open.
func (b *bench) fetch(url, header, credential string) []byte {
	resp, body, err := rig.Request(b, 10*time.Second, http.MethodGet, url, nil, "Accept", "application/json", header, credential)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.Close) {
		err = fmt.Errorf("GET %s: %s, connection closed: %v: want 200 on an open connection\n%s", url, resp.Status, resp.Close, body)
	}
	rig.Require(err == nil, "%v\n%s", err, b.gateway.Log)
	return body
}

// passed returns how many requests the gateway has sent to the origin of the open room because of a pass.
func (b *bench) passed() (float64, error) {
	return b.gateway.Metric(b, "anteroom_requests_total", `outcome="proxied"`, `room="open"`)
}

// checkFields are the fields by which nginx describes a request in a check.
const checkFields = "X-Original-Method: GET|X-Original-URI: /seats?row=7|X-Forwarded-Proto: http|X-Forwarded-For: 192.0.2.7"

// checkRows measures checks of requests with a pass beside status polls, in turns: both are answered from memory. passes and tokens are
// files of credentials.
func (b *bench) checkRows(passes, tokens string) []table.Row {
	kinds := []struct {
		what    string
		contest contest
		request request
	}{
		{"status poll", contest{b.gateway.Child, b.gateway.Addr}, request{Header: "X-Waiting-Room-Token", Method: "GET", Path: "/.waiting-room/line/status", Credentials: tokens}},
		{"check with a pass", contest{b.gateway.Child, b.checks}, request{Header: "X-Waiting-Room-Pass", Method: "GET", Path: "/.waiting-room/check", Credentials: passes, Fields: checkFields}},
	}
	before := rig.Must(b.passed())
	shots := table.Turns(b.rounds, len(kinds), func(n, i int) shot {
		k := &kinds[i]
		return b.fire(fmt.Sprintf("%s, round %d of %d", k.what, n, b.rounds), k.contest, k.request)
	})
	poll, check := median(shots[0]), median(shots[1])
	counted := rig.Must(b.passed()) - before
	rig.Require(counted >= check.Requests, "the gateway counts %.0f checks with a pass, wrk has sent %.0f: something else was measured", counted, check.Requests)
	return []table.Row{
		{What: "check with a pass", Unit: "/s", Ours: check.Rate, Bars: []table.Bar{{Limit: 100_000}}},
		{What: "check with a pass", Unit: "CPU µs", Ours: check.CPU},
		{What: "… of a status poll's CPU", Unit: "×", Ours: ratio(check.CPU, poll.CPU), Bars: []table.Bar{{Limit: 1.1, AtMost: true}}},
		{What: "check with a pass", Unit: "p99 ms", Ours: check.P99},
	}
}
