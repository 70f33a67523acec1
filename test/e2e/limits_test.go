package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Each documented limit that is not a time: the largest value that passes, and the smallest that is refused.
func TestLimits_Boundaries(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 0}}",
		"{id: list, hosts: [list.test], paths: ['~^/list'], admission: {rate: 0}}", "{id: rest, hosts: [list.test], paths: [/rest], admission: {rate: 0}}",
	}})
	const head = " HTTP/1.1\r\nHost: shop.test\r\n"
	names := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("x-%d", i)
		}
		return strings.Join(list, ",")
	}
	filled := func(before, after string, n int) string { // to n bytes
		return before + strings.Repeat("a", n-len(before)-len(after)) + after
	}
	post := func(path, fields, body string) string {
		return fmt.Sprintf("POST %s%s%sContent-Length: %d\r\n\r\n%s", path, head, fields, len(body), body)
	}
	const tickets = "/.waiting-room/sale/tickets"
	chunked := func(fields, rest string) string {
		return "POST /" + head + "Transfer-Encoding: chunked\r\n" + fields + "\r\n" + rest
	}
	for _, row := range []struct {
		name  string
		raw   func(n int) string
		most  int
		okay  int
		worse int
	}{
		{"limits.header", func(n int) string { return filled("GET /"+head+"X-A: ", "\r\n\r\n", n) }, 16 << 10, 200, 431},
		{"limits.target", func(n int) string { return "GET " + filled("/", "", n) + head + "\r\n" }, 8 << 10, 200, 414},
		{"limits.headers", func(n int) string { return "GET /" + head + strings.Repeat("X-A: 1\r\n", n-1) + "\r\n" }, 100, 200, 431},
		{"names in Connection", func(n int) string { return "GET /" + head + "Connection: " + names(n) + "\r\n\r\n" }, 32, 200, 400},
		{"names in Trailer", func(n int) string { return chunked("Trailer: "+names(n)+"\r\n", "0\r\n\r\n") }, 32, 200, 400},
		{"trailer lines", func(n int) string { return chunked("Trailer: x-1\r\n", "0\r\n"+strings.Repeat("x-1: 1\r\n", n)+"\r\n") }, 100, 200, 400},
		{"bytes of trailers", func(n int) string {
			return chunked("Trailer: x-1\r\n", "0\r\n"+strings.Repeat(filled("x-1: ", "\r\n", 1<<10), 7)+filled("x-1: ", "\r\n", n-7<<10)+"\r\n")
		}, 8 << 10, 200, 400},
		{"a line of a chunk", func(n int) string { return chunked("", filled("1;", "\r", n)+"\nx\r\n0\r\n\r\n") }, 512, 200, 400},
		{"a path that an expression sees", func(n int) string {
			return strings.Replace("GET "+filled("/", "", n)+head+"\r\n", "shop.test", "list.test", 1)
		}, 1 << 10, 200, 400},
		{"the body of a join", func(n int) string { return post(tickets, "", "{"+strings.Repeat(" ", n-2)+"}") }, 4 << 10, 201, 413},
		{"a nonce", func(n int) string { return post(tickets, "", `{"nonce":"`+filled("", "", n)+`"}`) }, 128, 201, 422},
		{"an Idempotency-Key", func(n int) string { return post(tickets, "Idempotency-Key: "+filled("", "", n)+"\r\n", "{}") }, 128, 201, 422},
	} {
		for n, want := range map[int]int{row.most: row.okay, row.most + 1: row.worse} {
			w := dialWire(t, g)
			go func() { _, _ = io.WriteString(w.Conn, row.raw(n)) }() // the connection may be closed before all is sent
			if code, text := w.answer(); code != want {
				t.Errorf("%s, %d: %d, want %d: %.300s", row.name, n, code, want, text)
			}
		}
	}
}

// One client has a share of an origin's connections, however many sessions it has, and each session has its own share.
func TestClientShare(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	site := newRawSite(t, func(c *rawConn, head string) {
		if strings.Contains(head, "\r\nUpgrade: websocket\r\n") {
			c.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(io.Discard, c.r)
			return
		}
		<-release
		c.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	g := start(t, setup{rooms: []string{"{id: sale, paths: [/sale, /enter], admission: {rate: 50, burst: 50}}"},
		more: "limits: {in_flight_per_address: 5, in_flight_per_session: 4, tunnels_per_address: 4}\norigins: [{id: shop, servers: [\"" + site.url() + "\"], max_conns: 6}]\n"})
	pass, o := passOf(t, g), adminOf(t, g)
	held := 0
	ask := func(path, fields string) *rawConn {
		c := dialRaw(t, g)
		c.write("GET " + path + " HTTP/1.1\r\nHost: shop.example\r\n" + fields + "\r\n")
		return c
	}
	hold := func(path, fields string) *rawConn {
		c := ask(path, fields)
		held++
		until(t, "the site has the request", func() bool { return len(site.requests()) == held })
		return c
	}
	refused := func(why, path, fields string, shares int) {
		t.Helper()
		c := ask(path, "Accept: application/json\r\n"+fields)
		head := c.answer(http.StatusServiceUnavailable)
		if field(head, "Retry-After") == "" || field(head, "X-Waiting-Room") != "" {
			t.Errorf("%s: %s", why, head)
		}
		if line := fmt.Sprintf("anteroom_upstream_errors_total{kind=\"client_share\",origin=\"shop\"} %d", shares); !o.metric(line) {
			t.Errorf("%s is not counted: no %s", why, line)
		}
	}
	var waiting []*rawConn
	for range 4 {
		waiting = append(waiting, hold("/sale", pass))
	}
	refused("the fifth of a session", "/sale", pass, 1)
	waiting = append(waiting, hold("/outside", ""))
	refused("the sixth of an address", "/outside", "", 2)
	close(release)
	for _, c := range waiting {
		c.answer(http.StatusOK)
		c.expect("ok")
	}
	const up = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for range 4 {
		hold("/outside", up).answer(http.StatusSwitchingProtocols)
	}
	refused("the fifth tunnel", "/outside", up, 3)
	c := ask("/outside", "") // tunnels do not count as requests
	c.answer(http.StatusOK)
}
