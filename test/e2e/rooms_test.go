package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/freeport"
)

// Every spelling of a path leads to the room of the path that the origin may read, and is forwarded byte for byte.
func TestPaths_CannotBeDisguised(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{"{id: sale, paths: [/sale, \"~^/x[0-9]+$\"], admission: {rate: 0}}"}})
	c := newClient(t, g)
	c.join(g)
	for path, gated := range map[string]bool{
		"/sale": true, "/sale/": true, "/sale/x": true, "/sale;v=1": true, "/sale;v=1/x": true, "/sale?x=1": true, "/SALE": true, "/Sale/x": true,
		"//sale": true, "///sale": true, "/./sale": true, "/x/../sale": true, "/%73ale": true, "/%53ALE": true, "/sale%2Fx": true, "/sale%2fx": true,
		"/x/%2e%2e/sale": true, "/x/%2E./sale": true, "/x/..%2fsale": true, "/%2fsale": true, "/%2Fsale": true, "/sale%5Cx": true, "/x%5C..%5Csale": true,
		"/sale%00": true, "/sale%00x": true, "/sale/../sale": true, "/x//../sale": true, "/./././sale": true, "/x12": true,
		"/sales": false, "/sal": false, "/": false, "/x/sale": false, "/sale2/x": false, "/saleX": false, "/x/?p=/sale": false, "/x12y": false,
		"/%2573ale": false, // decoded once
	} {
		// Through a raw socket, because the exact bytes matter.
		text := raw(t, g.addr, "GET "+path+" HTTP/1.1\r\nHost: "+g.addr+"\r\nAccept: application/json\r\nConnection: close\r\n\r\n")
		line, _, _ := strings.Cut(text, "\r\n")
		reached := strings.Contains(text, "\r\nX-Origin: yes\r\n")
		if reached == gated {
			t.Errorf("%s: reached the origin %t, want gated %t: %s", path, reached, gated, line)
		}
		if gated && !strings.HasPrefix(line, "HTTP/1.1 202") {
			t.Errorf("%s: %s, want 202", path, line)
		}
		if !gated && reached && site.last().URI != path {
			t.Errorf("%s reached the origin as %s", path, site.last().URI)
		}
	}
}

// The longest path of all rooms wins; an exact host comes before *; each room has its own origin.
func TestRooms_SeveralOrigins(t *testing.T) {
	t.Parallel()
	var sites []*origin
	var servers []string
	for _, name := range []string{"a", "b", "c"} {
		site := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
		sites = append(sites, site)
		servers = append(servers, "{id: "+name+", servers: [\""+site.URL+"\"]}")
	}
	g := start(t, setup{
		more: "origins: [" + strings.Join(servers, ", ") + "]\ndefault_origin: c\n",
		rooms: []string{
			"{id: shop, paths: [/shop], origin: a, admission: {rate: 100, burst: 100}}",
			"{id: deep, paths: [/shop/deep, /other], origin: b, admission: {rate: 100, burst: 100}}",
			"{id: host, hosts: [vip.example], paths: [/shop], origin: b, admission: {rate: 100, burst: 100}}",
		},
	})
	for _, row := range []struct{ host, path, site, room string }{
		{"", "/shop", "a", "shop"}, {"", "/shop/x", "a", "shop"}, {"", "/shop/deep", "b", "deep"}, {"", "/shop/deep/x", "b", "deep"},
		{"", "/shop/deeper", "a", "shop"}, {"", "/other", "b", "deep"}, {"", "/", "c", ""}, {"", "/else", "c", ""},
		{"vip.example", "/shop", "b", "host"}, {"vip.example", "/other", "b", "deep"},
	} {
		h := headers{}
		if row.host != "" {
			h["Host"] = row.host
		}
		a := newClient(t, g).get(g, row.path, h, asBrowser).want(http.StatusOK)
		if a.body != row.site {
			t.Errorf("%s%s reached %s, want %s", row.host, row.path, a.body, row.site)
		}
		cookies := strings.Join(a.header.Values("Set-Cookie"), " ")
		if row.room == "" && cookies != "" || row.room != "" && !strings.Contains(cookies, "wr_"+row.room+"_pass=") {
			t.Errorf("%s%s: cookies %q, want of room %q", row.host, row.path, cookies, row.room)
		}
	}
	_ = sites
}

// A request that matches a bypass rule is forwarded and not counted.
func TestBypass(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", `bypass: [`+
		`{paths: [/health, /static]}, {methods: [PURGE]}, {ips: ["198.51.100.0/24"]}, {user_agents: [goodbot]}, `+
		`{headers: {X-Partner: "secret-of-the-partner", X-Two: ""}}, {paths: [/both], methods: [POST]}]`)}})
	for _, row := range []struct {
		name, method, path, ip string
		h                      headers
		bypass                 bool
	}{
		{"a path", "GET", "/health", "", nil, true},
		{"below a path", "GET", "/static/a.css", "", nil, true},
		{"not quite the path", "GET", "/healthy", "", nil, false},
		{"a way out of the path", "GET", "/static/../sale", "", nil, false},
		{"an encoded way out of the path", "GET", "/static/%2e%2e/sale", "", nil, false},
		{"an encoded slash on the way out", "GET", "/static%2f..%2fsale", "", nil, false},
		{"a method", "PURGE", "/x", "", nil, true},
		{"an address", "GET", "/x", "198.51.100.9", nil, true},
		{"another address", "GET", "/x", "198.51.101.9", nil, false},
		{"a user agent", "GET", "/x", "", headers{"User-Agent": "Mozilla/5.0 (GoodBot/2)"}, true},
		{"headers", "GET", "/x", "", headers{"X-Partner": "secret-of-the-partner", "X-Two": "anything"}, true},
		{"one header of two", "GET", "/x", "", headers{"X-Partner": "secret-of-the-partner"}, false},
		{"a wrong value", "GET", "/x", "", headers{"X-Partner": "x", "X-Two": "1"}, false},
		{"path and method", "POST", "/both", "", nil, true},
		{"the path alone", "GET", "/both", "", nil, false},
	} {
		c := newClient(t, g)
		c.ip = row.ip
		text := row.h
		a := c.ask(g, row.method, row.path, "", text)
		if got := a.header.Get("X-Origin") != ""; got != row.bypass {
			t.Errorf("%s: reached the origin %t, want %t (%d)", row.name, got, row.bypass, a.code)
		}
		if row.bypass && len(a.header.Values("Set-Cookie")) > 0 {
			t.Errorf("%s: it was given cookies", row.name)
		}
	}
	if r := adminOf(t, g).room("sale"); r.Active != 0 {
		t.Errorf("bypassed requests count as active: %+v", r)
	}
	g.secret("secret-of-the-partner")
}

func TestRooms_QueueMethods(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{
		"{id: shut, paths: [/shut], queue: {method: reject}, page: {message: Back at nine}}",
		"{id: through, paths: [/through], queue: {method: passthrough}, admission: {rate: 0}}",
		"{id: off, paths: [/off], enabled: false, admission: {rate: 0}}",
	}})
	c := newClient(t, g)
	c.get(g, "/shut").problem(http.StatusServiceUnavailable, "room_closed").waits("rejected")
	c.ask(g, http.MethodPost, "/.waiting-room/shut/tickets", "").problem(http.StatusServiceUnavailable, "room_closed")
	a := newBrowser(t, g).get(g, "/shut", asBrowser).waits("rejected").has(headers{"Content-Type": "text/html*"})
	if !strings.Contains(a.body, "Back at nine") {
		t.Error("the message is not on the page")
	}
	for _, path := range []string{"/through", "/off"} {
		a := newBrowser(t, g).get(g, path, asBrowser).want(http.StatusOK)
		if a.header.Get("X-Origin") == "" || len(a.header.Values("Set-Cookie")) > 0 {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	// Operators switch it while it runs.
	o := adminOf(t, g)
	o.patch("rooms/shut", `{"method":"passthrough"}`).want(http.StatusOK)
	until(t, "the closed room is open", func() bool { return c.get(g, "/shut").code == http.StatusOK })
	o.patch("rooms/off", `{"enabled":true}`).want(http.StatusOK)
	until(t, "the room that was off holds people up", func() bool { return c.get(g, "/off").code == http.StatusAccepted })
	o.patch("rooms/shut", `{"method":null}`).want(http.StatusOK)
	until(t, "the room is closed again", func() bool { return c.get(g, "/shut").code == http.StatusServiceUnavailable })
	o.patch("rooms/through", `{"method":"lottery"}`).want(http.StatusUnprocessableEntity)
}

// Without the origin the gateway returns 502; passes and admissions stay valid.
func TestOrigin_Down(t *testing.T) {
	t.Parallel()
	g := start(t, setup{origin: "http://" + freeport.Address(t), rooms: []string{room("admission: {rate: 0.001, burst: 1}")}})
	b := newBrowser(t, g)
	b.get(g, "/", asBrowser).want(http.StatusBadGateway).has(headers{"Content-Type": "text/html*"})
	pass := b.cookie(g, "wr_sale_pass")
	if pass == "" {
		t.Fatal("the pass was lost with the origin's answer")
	}
	newClient(t, g).get(g, "/", headers{"X-Waiting-Room-Pass": pass}).problem(http.StatusBadGateway, "")
}

// A message that parsers may read in different ways is refused, and the connection is closed.
func TestFraming_IsStrict(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(100, 100))}})
	for name, request := range map[string]string{
		"both lengths":     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
		"a signed length":  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nabcde",
		"no host":          "GET / HTTP/1.1\r\n\r\n",
		"two hosts":        "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"a folded header":  "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
		"a blank at colon": "GET / HTTP/1.1\r\nHost: x\r\nX-A : b\r\n\r\n",
		"a NUL":            "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\x00c\r\n\r\n",
		"xchunked":         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"authority":        "GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		text := raw(t, g.addr, request+"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
		if !strings.HasPrefix(text, "HTTP/1.1 400 ") && !strings.HasPrefix(text, "HTTP/1.1 501 ") || strings.Count(text, "HTTP/1.1 ") != 1 {
			t.Errorf("%s: %.300q", name, text)
		}
	}
	for _, r := range site.Requests() {
		t.Errorf("the origin got %s %s", r.Method, r.URI)
	}
	large := raw(t, g.addr, "GET / HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 20<<10)+"\r\n\r\n")
	if !strings.HasPrefix(large, "HTTP/1.1 431 ") {
		t.Errorf("a large header: %.200q", large)
	}
	long := raw(t, g.addr, "GET /"+strings.Repeat("a", 9<<10)+" HTTP/1.1\r\nHost: x\r\n\r\n")
	if !strings.HasPrefix(long, "HTTP/1.1 414 ") {
		t.Errorf("a long target: %.200q", long)
	}
}
