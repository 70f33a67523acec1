package suite

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// Contract returns the cases of what a proxy has to do with the responses to its checks.
func Contract() []Row {
	return []Row{
		{"a visitor of a free room is admitted at once", admittedAtOnce},
		{"a visitor who has to wait gets the page", waitsWithPage},
		{"a script that has to wait gets JSON", waitsWithJSON},
		{"ticket, status, admission, claim, next request", fromTicketToPass},
		{"a pass is renewed once after half its life, and without cookies the session goes on", renewed},
		{"a subresource without a pass", subresource},
		{"a preflight is forwarded", preflight},
		{"a request that a bypass rule matches is forwarded", bypass},
		{"a paused room admits no new visitor", paused},
		{"a closed room", func(t *testing.T, s *Site) { s.waits(t, s.visitor(t, "closed").Do("GET /", Page), "rejected", 503) }},
		{"a full queue", fullQueue},
		{"a room before its draw", func(t *testing.T, s *Site) { s.waits(t, s.visitor(t, "draw").Do("GET /", JSON), "prequeue", 202) }},
		{"a room that is not enabled", func(t *testing.T, s *Site) { reaches(t, s.visitor(t, "off").Do("GET /", Page)) }},
		{"an event that closes the room", func(t *testing.T, s *Site) { s.waits(t, s.visitor(t, "event").Do("GET /", Page), "rejected", 503) }},
		{"a revoked session is refused within a second", revoked},
		{"a visitor with an ended pass waits again", ended},
		{"POST with a pass arrives with its body", post},
		{"POST without a pass", postWithoutPass},
		{"HEAD", head},
		{"the query arrives byte for byte", query},
		{"a WebSocket with a pass", webSocket},
		{"a host and a path without a room", elsewhere},
	}
}

func admittedAtOnce(t *testing.T, s *Site) {
	v := s.visitor(t, "free")
	if !s.Proxy.Dialect.Cookies() {
		a := v.Do("GET /", Page)
		s.waits(t, a, "waiting", 401)
		if !strings.Contains(a.Text, `data-refresh="0"`) {
			t.Errorf("the page does not take a ticket: %s", a)
		}
		v.Admit(s.Proxy)
		a = v.Do("GET /", Page)
		reaches(t, a)
	} else {
		a := v.Do("GET /", Page)
		reaches(t, a)
		if n := len(a.Header["Set-Cookie"]); n != 1 || v.Pass() == "" {
			t.Errorf("%d cookies, want the pass: %s", n, a)
		}
		if cache := strings.Join(a.Header["Cache-Control"], ", "); !s.Proxy.KeepsCaching && !strings.Contains(cache, "no-store") {
			t.Errorf("a shared cache may store the pass: Cache-Control: %s", cache)
		}
	}
	got := s.last(t)
	if len(got.Header["X-Waiting-Room-Session"]) != 1 || len(got.Header.Get("X-Waiting-Room-Session")) != 22 {
		t.Errorf("the origin got X-Waiting-Room-Session %q", got.Header["X-Waiting-Room-Session"])
	}
	if got.Host != "free.test" {
		t.Errorf("the origin got Host %s", got.Host)
	}
}

func waitsWithPage(t *testing.T, s *Site) {
	a := s.visitor(t, "full").Do("GET /seats", Page)
	s.waits(t, a, "waiting", 200)
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || a.Header.Get("Content-Security-Policy") == "" || !strings.Contains(a.Text, "<!doctype html>") || !strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
		t.Errorf("not the page: %s", a)
	}
}

func waitsWithJSON(t *testing.T, s *Site) {
	a := s.visitor(t, "full").Do("GET /seats", JSON)
	s.waits(t, a, "waiting", 202)
	if a.Field("state") != "waiting" || a.Field("refresh_after") == "" || a.Header.Get("Retry-After") == "" {
		t.Errorf("not a status: %s", a)
	}
}

func fromTicketToPass(t *testing.T, s *Site) {
	s.visitor(t, "slow").Admit(s.Proxy) // the burst
	v := s.visitor(t, "slow")
	v.Do("POST /.waiting-room/slow/tickets", JSON)
	Eventually(t, "the ticket is admitted", func() bool {
		return v.Do("GET /.waiting-room/slow/status", JSON).Field("state") == "admitted" || v.Pass() != ""
	})
	reaches(t, v.Do("GET /seats", Page))
	if got := s.last(t); got.Header.Get("X-Waiting-Room-Session") == "" {
		t.Errorf("the origin got %v", got.Header)
	}
}

func renewed(t *testing.T, s *Site) {
	v := s.visitor(t, "short")
	first, began, cookies := v.Admit(s.Proxy), time.Now(), 0
	request := func() {
		a := v.Do("GET /", Page)
		reaches(t, a)
		cookies += len(a.Header["Set-Cookie"])
	}
	if !s.Proxy.Dialect.Cookies() {
		var session string
		Eventually(t, "the session is older than a pass would be", func() bool {
			request()
			now := s.last(t).Header.Get("X-Waiting-Room-Session")
			if session != "" && session != now {
				t.Fatalf("session %s after %s", now, session)
			}
			session = now
			return time.Since(began) > 5*time.Second
		})
		if cookies != 0 {
			t.Errorf("%d cookies through a proxy that sends none to visitors", cookies)
		}
		return
	}
	Eventually(t, "the pass is renewed", func() bool {
		request()
		return v.Pass() != first
	})
	if request(); cookies != 1 {
		t.Errorf("%d cookies, want 1", cookies)
	}
}

func subresource(t *testing.T, s *Site) {
	a := s.visitor(t, "full").Do("GET /logo.png", "Accept: image/png", "Sec-Fetch-Dest: image")
	if a.Reached() || a.StatusCode < 400 {
		t.Errorf("in a full room: %s", a)
	}
	reaches(t, s.visitor(t, "free").Do("GET /logo.png", "Accept: image/png", "Sec-Fetch-Dest: image"))
}

func preflight(t *testing.T, s *Site) {
	reaches(t, s.visitor(t, "full").Do("OPTIONS /seats", "Origin: http://other.test", "Access-Control-Request-Method: POST"))
	if a := s.visitor(t, "full").Do("OPTIONS /seats", JSON); a.Reached() {
		t.Errorf("OPTIONS that is not a preflight: %s", a)
	}
}

func bypass(t *testing.T, s *Site) {
	a := s.visitor(t, "full").Do("GET /open/list?x=1", Page)
	reaches(t, a)
	if got := s.last(t); len(got.Header["X-Waiting-Room-Session"]) != 0 || len(a.Header["Set-Cookie"]) != 0 {
		t.Errorf("the origin got %v, the visitor %s", got.Header, a)
	}
}

func paused(t *testing.T, s *Site) {
	v := s.visitor(t, "paused")
	v.Admit(s.Proxy)
	s.Gateway.operate(t, "POST", "/admin/v1/rooms/paused/pause", "")
	Eventually(t, "the room is paused", func() bool { return !s.visitor(t, "paused").Do("GET /", JSON).Reached() })
	reaches(t, v.Do("GET /", Page))
}

func fullQueue(t *testing.T, s *Site) {
	Eventually(t, "the queue is full", func() bool {
		return s.visitor(t, "capacity").Do("POST /.waiting-room/capacity/tickets", JSON).Field("code") == "room_full"
	})
	a := s.visitor(t, "capacity").Do("GET /", Page)
	if state := a.Header.Get("X-Waiting-Room"); a.Reached() || state != "rejected" && (s.Proxy.Dialect.Cookies() || state != "waiting") {
		t.Errorf("%s", a) // without cookies a check shows the page, whose script finds out
	}
}

func revoked(t *testing.T, s *Site) {
	v := s.visitor(t, "revoked")
	v.Admit(s.Proxy)
	reaches(t, v.Do("GET /", Page))
	session := s.last(t).Header.Get("X-Waiting-Room-Session")
	began := time.Now()
	s.Gateway.operate(t, "POST", "/admin/v1/rooms/revoked/sessions/"+session+"/revoke", "")
	Eventually(t, "the session has ended", func() bool {
		n := s.Origin.Count()
		v.Do("GET /", Page)
		return s.Origin.Count() == n || s.last(t).Header.Get("X-Waiting-Room-Session") != session // a free room gives a new one
	})
	if took := time.Since(began); took > 10*time.Second { // one second, on a machine that has other work
		t.Errorf("the session ended after %s", took)
	}
}

func ended(t *testing.T, s *Site) {
	v := s.visitor(t, "ended")
	v.Admit(s.Proxy)
	s.Gateway.operate(t, "PATCH", "/admin/v1/rooms/ended", `{"rate":0}`)
	Eventually(t, "the pass has ended", func() bool { return !v.Do("GET /", JSON).Reached() })
}

func post(t *testing.T, s *Site) {
	v := s.visitor(t, "free")
	v.Admit(s.Proxy)
	body := strings.Repeat("seat=7&", 5000)
	reaches(t, v.Do("POST /order", JSON, "Content-Type: application/x-www-form-urlencoded", "", body))
	if got := s.last(t); got.Method != "POST" || got.Body != body {
		t.Errorf("the origin got %s with a body of %d bytes, want %d", got.Method, len(got.Body), len(body))
	}
}

func postWithoutPass(t *testing.T, s *Site) {
	const form = "Content-Type: application/x-www-form-urlencoded"
	body := strings.Repeat("seat=7&", 5000)
	a := s.visitor(t, "free").Do("POST /order", Page, form, "", body)
	if !s.Proxy.Dialect.Cookies() {
		s.waits(t, a, "waiting", 401)
	} else if got := s.last(t); !a.Reached() || got.Method != "POST" || got.Body != body {
		t.Errorf("admitted at once, the origin got %s with a body of %d bytes: %s", got.Method, len(got.Body), a)
	}
	if a := s.visitor(t, "full").Do("POST /order", Page, form, "", body); a.Reached() || a.Header.Get("X-Waiting-Room") != "waiting" {
		t.Errorf("in a full room: %s", a)
	}
}

func head(t *testing.T, s *Site) {
	v := s.visitor(t, "free")
	v.Admit(s.Proxy)
	reaches(t, v.Do("HEAD /seats", Page))
	if got := s.last(t); got.Method != "HEAD" {
		t.Errorf("the origin got %s", got.Method)
	}
	if a := s.visitor(t, "full").Do("HEAD /seats", Page); a.Reached() || a.Text != "" {
		t.Errorf("in a full room: %s", a)
	}
}

func query(t *testing.T, s *Site) {
	v := s.visitor(t, "free")
	v.Admit(s.Proxy)
	const target = "/a%20b/%C3%A9?x=%2F&y=a+b&z=%zz&&=;/open/../?"
	reaches(t, v.Do("GET "+target, Page))
	if got := s.last(t); got.URI != target {
		t.Errorf("the origin got %s, want %s", got.URI, target)
	}
}

func webSocket(t *testing.T, s *Site) {
	v := s.visitor(t, "free")
	v.Admit(s.Proxy)
	upgrade := func(host string) (*bufio.Reader, io.Writer, string) {
		conn, err := dial(s.Address, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = fmt.Fprintf(conn, "GET /live HTTP/1.1\r\nHost: %s\r\nCookie: wr_free_pass=%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", host, v.Pass())
		in := bufio.NewReader(conn)
		status, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return in, conn, status
	}
	in, out, status := upgrade("free.test")
	if !strings.HasPrefix(status, "HTTP/1.1 101 ") {
		t.Fatalf("the upgrade: %s", status)
	}
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.WriteString(out, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("the origin sent back %q, %v", line, err)
	}
	if _, _, status := upgrade("full.test"); strings.HasPrefix(status, "HTTP/1.1 101 ") {
		t.Errorf("an upgrade without a pass: %s", status)
	}
}

func elsewhere(t *testing.T, s *Site) {
	v := s.visitor(t, "part")
	reaches(t, v.Do("GET /news", Page))
	s.waits(t, v.Do("GET /sale/now", Page), "waiting", 200)
	if a := s.visitor(t, "unknown").Do("GET /", Page); a.Reached() {
		t.Errorf("a host that no room has: %s", a)
	}
}
