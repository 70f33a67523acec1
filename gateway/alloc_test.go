package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/check"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/redistest"
)

// plainOrigin sends one response to every request and allocates nothing.
func plainOrigin(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := make([]byte, 32<<10)
				out := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
				for n := 0; ; {
					m, err := c.Read(in[n:])
					if err != nil {
						return
					}
					if n += m; !bytes.HasSuffix(in[:n], []byte("\r\n\r\n")) {
						continue
					}
					n = 0
					if _, err := c.Write(out); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// keepAsking returns a function that sends one request on a persistent connection and reads the response.
func keepAsking(t testing.TB, addr, request string, end []byte) func() {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	out, in := []byte(request), make([]byte, 16<<10)
	return func() {
		if _, err := c.Write(out); err != nil {
			t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(in[:n], end); {
			m, err := c.Read(in[n:])
			if err != nil && !errors.Is(err, io.EOF) || m == 0 {
				t.Fatalf("%v after %q", err, in[:n])
			}
			n += m
		}
	}
}

func passPath(t testing.TB, bind string) func() { return passPathOf(t, bind, policy(0)) }

func passPathOf(t testing.TB, bind string, p admission.Policy) func() {
	t.Helper()
	b := startTicking(t, redistest.Client(t), redistest.Prefix(t), calm, Options{
		Origins: []proxy.Config{originAt("shop", plainOrigin(t))}, Rooms: []Room{{ID: "sale", Policy: p, Renew: true, SessionRequests: meter.Quota{N: 1_000_000, Per: time.Second}}},
		TrustedProxies: loopback(), Bind: bind,
	})
	raw := b.passFor(t, randomID(), bind, []string{"User-Agent: Mozilla/5.0", "X-Forwarded-For: 192.0.2.7"})
	if p.PassLife > 0 {
		pass := readPass(t, raw, "sale")
		pass.Live, pass.IssuedAt, pass.Expires = true, pass.IssuedAt-600, pass.Expires+600
		raw = string(testRing(t).AppendPass(nil, &pass))
	}
	return keepAsking(t, b.addr, "GET /sale/seats?row=7 HTTP/1.1\r\nHost: shop.test\r\nUser-Agent: Mozilla/5.0\r\nAccept: text/html\r\n"+
		"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nCookie: cart=1; __Host-wr_sale_pass="+raw+"\r\n\r\n", []byte("\r\n\r\nok"))
}

func statusPath(t testing.TB) func() {
	t.Helper()
	b := startTicking(t, redistest.Client(t), redistest.Prefix(t), calm, Options{
		Origins: []proxy.Config{originAt("shop", plainOrigin(t))}, Rooms: []Room{{ID: "sale", Policy: policy(0)}},
	})
	token := b.call("POST /.waiting-room/sale/tickets").code(t, 201).field("token")
	eventually(t, "the ticket is in the snapshot", func() bool { return b.queue("sale").Snapshot().Waiting == 1 })
	return keepAsking(t, b.addr, "GET /.waiting-room/sale/status HTTP/1.1\r\nHost: shop.test\r\nX-Waiting-Room-Token: "+token+"\r\n\r\n", []byte("}"))
}

// checkPath returns a function that sends a check about a request with a pass, as a proxy of a dialect does.
func checkPath(t testing.TB, d dialect.Dialect) func() {
	t.Helper()
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(0)}}, Check: Check{Dialect: d}})
	_, raw := aPass(t, "sale", 0, 300, "")
	line, fields := "GET "+check.Path, ""
	switch d.Family() {
	case dialect.Original:
		fields = "X-Original-Method: GET\r\nX-Original-URI: /sale/seats?row=7\r\n"
	case dialect.Forwarded:
		fields = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /sale/seats?row=7\r\nX-Forwarded-Host: shop.test\r\n"
	case dialect.Prefixed:
		line += "/sale/seats?row=7"
	}
	return keepAsking(t, c.at, line+" HTTP/1.1\r\nHost: shop.test\r\n"+fields+"User-Agent: Mozilla/5.0\r\nAccept: text/html\r\n"+
		"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nCookie: cart=1; wr_sale_pass="+raw+"\r\n\r\n", []byte("\r\n\r\n"))
}

// allocations returns the average number of allocations in a call of ask: the least of up to five measurements, because
// testing.AllocsPerRun counts those of all goroutines.
func allocations(ask func()) float64 {
	least := testing.AllocsPerRun(3000, ask)
	for range 4 {
		if least > 0 {
			least = min(least, testing.AllocsPerRun(1000, ask))
		}
	}
	return least
}

func TestPass_AllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, bind := range []string{BindNone, BindIP, BindUA} {
		ask := passPath(t, bind)
		ask()
		if n := allocations(ask); n > 0 {
			t.Errorf("bind %s: a request with a valid pass makes %v allocations", bind, n)
		}
	}
}

// A room with permits costs a request that takes no step nothing, and a step the strings of its permit.
func TestStep_AllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := startTicking(t, redistest.Client(t), redistest.Prefix(t), calm, Options{
		Origins: []proxy.Config{originAt("shop", plainOrigin(t))},
		Rooms:   []Room{{ID: "sale", Policy: policy(0), Renew: true, Permits: []Step{{Paths: []string{"/seatmap"}}, {Methods: []string{"POST"}}}}},
	})
	session := randomID()
	head := " HTTP/1.1\r\nHost: shop.test\r\n" + b.passOf(session) + "\r\n" + b.permitOf(session, "/seatmap/812", "GET") + "\r\n\r\n"
	for path, most := range map[string]float64{"/sale/seats": 0, "/seatmap/812": 2} {
		ask := keepAsking(t, b.addr, "GET "+path+head, []byte("\r\n\r\nok"))
		ask()
		if n := allocations(ask); n > most {
			t.Errorf("GET %s makes %v allocations, want at most %v", path, n, most)
		}
	}
}

// The gateway knows that the session goes on: it allocates nothing, and calls the store no more often than it reports the session.
func TestLivePass_AllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := policy(0)
	p.PassLife = time.Hour
	ask := passPathOf(t, BindNone, p)
	ask()
	if n := allocations(ask); n > 0 {
		t.Errorf("a request with a pass that is signed once makes %v allocations", n)
	}
}

func TestStatus_AllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ask := statusPath(t)
	ask()
	if n := allocations(ask); n > 0 {
		t.Errorf("a status poll makes %v allocations", n)
	}
}

func TestCheck_AllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, d := range []dialect.Dialect{dialect.Nginx, dialect.Traefik, dialect.Envoy} {
		ask := checkPath(t, d)
		ask()
		if n := allocations(ask); n > 0 {
			t.Errorf("%s: a check with a valid pass makes %v allocations", d, n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, d := range []dialect.Dialect{dialect.Nginx, dialect.Traefik, dialect.Envoy} {
		b.Run(d.String(), func(b *testing.B) {
			ask := checkPath(b, d)
			ask()
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}

// The allocations of client and server together are counted: both are in this process.
func BenchmarkCheckGRPC(b *testing.B) {
	c := startChecked(b, Options{Rooms: []Room{{ID: "sale", Policy: policy(0)}}})
	_, conn := overGRPC(b, c.Gateway)
	_, raw := aPass(b, "sale", 0, 300, "")
	client, r := authv3.NewAuthorizationClient(conn), described("GET /sale/seats?row=7", asPage, "Cookie: cart=1; wr_sale_pass="+raw, "User-Agent: Mozilla/5.0")
	b.ReportAllocs()
	for b.Loop() {
		if a, err := client.Check(b.Context(), r); err != nil || a.GetOkResponse() == nil {
			b.Fatal(a, err)
		}
	}
}

func BenchmarkPassPath(b *testing.B) {
	ask := passPath(b, BindNone)
	ask()
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}

func BenchmarkStatus(b *testing.B) {
	ask := statusPath(b)
	ask()
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}
