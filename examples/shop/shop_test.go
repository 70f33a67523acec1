package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*shop, *httptest.Server) {
	t.Helper()
	s, err := newShop(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.handler(0, 0))
	t.Cleanup(func() {
		s.endLive()
		srv.Close()
		s.sockets.Wait()
	})
	return s, srv
}

func get(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func request(method, url, kind, body string) *http.Request {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

func TestPages(t *testing.T) {
	_, srv := open(t)
	tests := []struct {
		path    string
		code    int
		kind    string
		content string
	}{
		{"/", 200, "text/html; charset=utf-8", "Aurora Orchestra: Night Music"},
		{"/events/paper-boats", 200, "text/html; charset=utf-8", `value="N24"`},
		{"/events/paper-boats/seats", 200, "application/json", `{"sold":[],"free":336}`},
		{"/assets/shop.css", 200, "text/css; charset=utf-8", "prefers-color-scheme: dark"},
		{"/assets/seats.js", 200, "text/javascript; charset=utf-8", "WebSocket"},
		{"/assets/ticket.svg", 200, "image/svg+xml", "<svg"},
		{"/healthz", 200, "text/plain; charset=utf-8", "ok"},
		{"/assets/", 404, "text/html; charset=utf-8", "nothing here"},
		{"/pages/layout.html", 404, "text/html; charset=utf-8", "nothing here"},
		{"/events/none", 404, "text/html; charset=utf-8", "nothing here"},
		{"/events/none/seats/stream", 404, "text/html; charset=utf-8", "nothing here"},
		{"/nowhere", 404, "text/html; charset=utf-8", "nothing here"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			resp, body := get(t, request("GET", srv.URL+tt.path, "", ""))
			if resp.StatusCode != tt.code || resp.Header.Get("Content-Type") != tt.kind || !strings.Contains(body, tt.content) {
				t.Errorf("%d %s, want %d %s with %q", resp.StatusCode, resp.Header.Get("Content-Type"), tt.code, tt.kind, tt.content)
			}
			if strings.HasPrefix(tt.kind, "text/html") && !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
				t.Error("no policy on a page")
			}
			if resp.Header.Get("X-Waiting-Room-Command") != "" {
				t.Error("the session is ended by a page that sells nothing")
			}
		})
	}
}

var outside = regexp.MustCompile(`(?:src|href|action)="(?:https?:)?//|url\(|@import|https?://`)

func TestNothingComesFromElsewhere(t *testing.T) {
	_, srv := open(t)
	for _, path := range []string{"/", "/events/aurora", "/assets/shop.css", "/assets/seats.js"} {
		if _, body := get(t, request("GET", srv.URL+path, "", "")); outside.MatchString(body) {
			t.Errorf("%s asks for %q", path, outside.FindString(body))
		}
	}
}

func TestSessionIsShown(t *testing.T) {
	_, srv := open(t)
	r := request("GET", srv.URL+"/", "", "")
	r.Header.Set("X-Waiting-Room-Session", `s-42<script>`)
	if _, body := get(t, r); !strings.Contains(body, "<code>s-42&lt;script&gt;</code>") {
		t.Error("the session is not shown, or not escaped")
	}
}

func TestCheckout(t *testing.T) {
	const form, js = "application/x-www-form-urlencoded", "application/json"
	tests := []struct {
		name, kind, body string
		code             int
		content          string
		sold             int
	}{
		{"seats by name", form, "event=aurora&seats=C3&seats=C4&name=Ana&email=ana%40example.com", 200, "C3, C4", 2},
		{"the best left", form, "event=aurora&quantity=3&name=Ana&email=ana%40example.com", 200, "A1, A2, A3", 3},
		{"JSON", js, `{"event":"aurora","seats":["B1"],"name":"Ana","email":"ana@example.com"}`, 201, `"seats":["B1"]`, 1},
		{"markup is escaped", form, "event=aurora&quantity=1&name=%3Cb%3E&email=ana%40example.com", 200, "&lt;b&gt;", 1},
		{"no such event", js, `{"event":"x","quantity":1,"name":"Ana","email":"ana@example.com"}`, 422, "no such event", 0},
		{"no such seat", js, `{"event":"aurora","seats":["Z9"],"name":"Ana","email":"ana@example.com"}`, 422, "no such seat", 0},
		{"a seat twice", js, `{"event":"aurora","seats":["A1","A1"],"name":"Ana","email":"ana@example.com"}`, 422, "the same seat twice", 0},
		{"no seats", form, "event=aurora&name=Ana&email=ana%40example.com", 422, "choose 1 to 6", 0},
		{"too many", js, `{"event":"aurora","quantity":7,"name":"Ana","email":"ana@example.com"}`, 422, "choose 1 to 6", 0},
		{"too many by name", js, `{"event":"aurora","seats":["A1","A2","A3","A4","A5","A6","A7"],"name":"Ana","email":"ana@example.com"}`, 422, "at most 6", 0},
		{"two ways to say how many", js, `{"event":"aurora","seats":["A1"],"quantity":2,"name":"Ana","email":"ana@example.com"}`, 422, "quantity: leave it out", 0},
		{"no name", form, "event=aurora&quantity=1&name=+&email=ana%40example.com", 422, "name: 1 to 100", 0},
		{"no address", form, "event=aurora&quantity=1&name=Ana&email=ana", 422, "email: an address", 0},
		{"an address with a name", js, `{"event":"aurora","quantity":1,"name":"Ana","email":"Ana <ana@example.com>"}`, 422, "email: an address", 0},
		{"every problem at once", js, `{"event":"aurora"}`, 422, `["name: 1 to 100 characters","email: an address such as ana@example.com","seats: choose 1 to 6"]`, 0},
		{"not JSON", js, `{`, 400, "cannot read the order", 0},
		{"unknown field", js, `{"evnt":"aurora"}`, 400, "cannot read the order", 0},
		{"quantity in words", form, "event=aurora&quantity=two&name=Ana&email=ana%40example.com", 400, "cannot read the order", 0},
		{"neither form nor JSON", "text/plain", "aurora", 400, "cannot read the order", 0},
		{"no content type", "", "aurora", 400, "cannot read the order", 0},
		{"too large", js, `{"name":"` + strings.Repeat("x", 70<<10) + `"}`, 413, "cannot read the order", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, srv := open(t)
			resp, body := get(t, request("POST", srv.URL+"/checkout", tt.kind, tt.body))
			if resp.StatusCode != tt.code || !strings.Contains(body, tt.content) {
				t.Errorf("%d, want %d with %q:\n%s", resp.StatusCode, tt.code, tt.content, body)
			}
			if got := len(s.byID["aurora"].soldSeats()); got != tt.sold {
				t.Errorf("%d sold, want %d", got, tt.sold)
			}
			want := ""
			if tt.code < 300 {
				want = "revoke"
			}
			if got := resp.Header.Get("X-Waiting-Room-Command"); got != want {
				t.Errorf("X-Waiting-Room-Command %q, want %q", got, want)
			}
			if got := resp.Header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control %q", got)
			}
		})
	}
}

// The confirmation ends the session, so it may not load anything that needs a pass.
func TestConfirmationNeedsNothingMore(t *testing.T) {
	_, srv := open(t)
	_, body := get(t, request("POST", srv.URL+"/checkout", "application/x-www-form-urlencoded", "event=aurora&quantity=1&name=Ana&email=ana%40example.com"))
	if strings.Contains(body, "/assets/") || !strings.Contains(body, "prefers-color-scheme") {
		t.Error("the confirmation fetches assets, or has no style")
	}
}

func TestFormSentTwiceBuysOnce(t *testing.T) {
	s, srv := open(t)
	var ids []string
	for range 2 {
		resp, body := get(t, request("POST", srv.URL+"/checkout", "application/json", `{"event":"aurora","quantity":2,"name":"Ana","email":"ana@example.com","key":"k1"}`))
		var o order
		if err := json.Unmarshal([]byte(body), &o); err != nil || resp.StatusCode != 201 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		ids = append(ids, o.ID)
	}
	if ids[0] != ids[1] || s.byID["aurora"].Left() != 334 {
		t.Errorf("orders %v, %d left", ids, s.byID["aurora"].Left())
	}
}

func TestOneSeatIsSoldOnce(t *testing.T) {
	s, srv := open(t)
	var won, lost atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			body := fmt.Sprintf(`{"event":"aurora","seats":["D%d","D7"],"name":"Ana","email":"ana@example.com"}`, i%6+1)
			resp, _ := get(t, request("POST", srv.URL+"/checkout", "application/json", body))
			switch resp.StatusCode {
			case http.StatusCreated:
				won.Add(1)
			case http.StatusConflict:
				lost.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 39 || s.byID["aurora"].Left() != 334 {
		t.Errorf("%d won, %d lost, %d left", won.Load(), lost.Load(), s.byID["aurora"].Left())
	}
}

func TestSoldOut(t *testing.T) {
	s, srv := open(t)
	for s.byID["aurora"].Left() > 0 {
		if _, err := s.byID["aurora"].buy(nil, maxPerSale); err != nil {
			t.Fatal(err)
		}
	}
	resp, body := get(t, request("POST", srv.URL+"/checkout", "application/x-www-form-urlencoded", "event=aurora&quantity=1&name=Ana&email=ana%40example.com"))
	if resp.StatusCode != http.StatusConflict || !strings.Contains(body, errSoldOut.Error()) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if _, home := get(t, request("GET", srv.URL+"/", "", "")); !strings.Contains(home, "Sold out") {
		t.Error("the first page does not say so")
	}
}

func TestSeatMapOverEvents(t *testing.T) {
	s, srv := open(t)
	if _, err := s.byID["aurora"].buy([]string{"A1"}, 0); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/events/aurora/seats/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("Content-Type %q", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the stream ended without %q: %v", want, lines.Err())
	}
	next("event: seats")
	next(`data: {"sold":["A1"],"free":335}`)
	if _, err := s.byID["aurora"].buy([]string{"B2", "B3"}, 0); err != nil {
		t.Fatal(err)
	}
	next("event: change")
	next(`data: {"sold":["B2","B3"],"free":333}`)
	s.endLive()
	for lines.Scan() {
	}
	if lines.Err() != nil {
		t.Errorf("the stream was cut: %v", lines.Err())
	}
}

func TestSeatMapOverWebSocket(t *testing.T) {
	s, srv := open(t)
	dial := func(origin string) (*websocket.Conn, *http.Response, error) {
		d := websocket.Dialer{HandshakeTimeout: time.Minute}
		return d.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/events/aurora/seats/ws", http.Header{"Origin": {origin}})
	}
	conn, _, err := dial(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	next := func(want string) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		_, m, err := conn.ReadMessage()
		if got := strings.TrimSpace(string(m)); err != nil || got != want {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
	}
	next(`{"kind":"seats","sold":[],"free":336}`)
	if _, err := s.byID["aurora"].buy([]string{"B2"}, 0); err != nil {
		t.Fatal(err)
	}
	next(`{"kind":"change","sold":["B2"],"free":335}`)
	if _, resp, err := dial("http://evil.example"); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another host may connect: %v", err)
	}
	s.endLive()
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("at the end: %v", err)
	}
}

// A reader that falls behind is disconnected, since its seat map would be incomplete.
func TestSlowReaderIsCutOff(t *testing.T) {
	e := newShows()[0]
	_, changes := e.subscribe()
	defer e.unsubscribe(changes)
	for range cap(changes) + 1 {
		if _, err := e.buy(nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for range changes {
		n++
	}
	if n != cap(changes) {
		t.Errorf("%d changes before the end, want %d", n, cap(changes))
	}
}

func TestCapacityAndDelayHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		h := slow(time.Second, 3, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			most.Store(max(most.Load(), now.Add(1)))
		})
		start := time.Now()
		var wg sync.WaitGroup
		codes := make([]int, 40)
		for i := range codes {
			wg.Go(func() {
				w := httptest.NewRecorder()
				counted.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				codes[i] = w.Code
			})
		}
		// Three a second: after two and a half seconds six have finished, and after ten the rest are refused.
		<-time.After(2500 * time.Millisecond)
		synctest.Wait()
		if now.Load() != 6 {
			t.Errorf("%d through after 2.5 s, want 6", now.Load())
		}
		wg.Wait()
		served := 0
		for _, c := range codes {
			if c == http.StatusOK {
				served++
			} else if c != http.StatusServiceUnavailable {
				t.Errorf("code %d", c)
			}
		}
		if took := time.Since(start); served < 30 || served > 33 || took < patience || took > patience+time.Second {
			t.Errorf("%d served in %s", served, took)
		}
	})
}

func TestVisitorWhoGoesAwayIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := false
		h := slow(time.Minute, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		if served {
			t.Error("served a request whose visitor had gone")
		}
	})
}

func TestFlags(t *testing.T) {
	tests := []struct {
		args string
		want options
		err  string
	}{
		{"", options{listen: "127.0.0.1:9000"}, ""},
		{"--listen 127.0.0.1:0 --delay 50ms --capacity 20", options{listen: "127.0.0.1:0", delay: 50 * time.Millisecond, capacity: 20}, ""},
		{"--delay -1s", options{}, "--delay -1s"},
		{"--capacity -1", options{}, "--capacity -1"},
		{"--facts https://ops.test/facts --facts-token-file t", options{listen: "127.0.0.1:9000", facts: "https://ops.test/facts", token: "t"}, ""},
		{"--facts ops.test", options{}, "--facts ops.test"},
		{"--facts-token-file t", options{}, "--facts-token-file"},
		{"extra", options{}, `argument "extra"`},
	}
	for _, tt := range tests {
		got, err := parse(strings.Fields(tt.args), io.Discard)
		if tt.err == "" && (err != nil || got != tt.want) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: %+v, %v", tt.args, got, err)
		}
	}
}

// A stop waits for a running purchase, ends live seat maps and closes the listener.
func TestStopsGracefully(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var log bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, l, options{delay: 300 * time.Millisecond, capacity: 1}, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	base := "http://" + l.Addr().String()
	stream, err := http.Get(base + "/events/aurora/seats/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()

	// The purchase has reached the shop when the shop responds with 100-continue.
	reached, answered := make(chan struct{}), make(chan string, 1)
	body := url.Values{"event": {"aurora"}, "quantity": {"1"}, "name": {"Ana"}, "email": {"ana@example.com"}}.Encode()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		r := bufio.NewReader(conn)
		status, _ := r.ReadString('\n')
		if strings.Contains(status, "100") {
			_, _ = r.ReadString('\n')
			close(reached)
			_, _ = io.WriteString(conn, body)
			status, _ = r.ReadString('\n')
		} else {
			close(reached)
		}
		answered <- status
	}()
	_, err = fmt.Fprintf(conn, "POST /checkout HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n", len(body))
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v\n%s", err, &log)
	}
	if got := <-answered; !strings.Contains(got, "200 OK") {
		t.Errorf("the running purchase was answered %q", got)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the live map was cut: %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("the listener is still there")
	}
}
