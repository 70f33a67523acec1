package gateway

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// certificate writes a key pair for shop.test of that common name.
func certificate(t *testing.T, dir, name string) TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"shop.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	out := TLS{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
	for file, block := range map[string]*pem.Block{out.CertFile: {Type: "CERTIFICATE", Bytes: der}, out.KeyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestTLS(t *testing.T) {
	s := newSite(t, "shop", nil)
	dir := t.TempDir()
	first, second := certificate(t, dir, "first"), certificate(t, dir, "second")
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}}, TLS: first, SameSite: SameSiteNone,
	})
	ask := func(clientCert ...tls.Certificate) (string, *answer, error) {
		c, err := tls.Dial("tcp", b.addr, &tls.Config{InsecureSkipVerify: true, ServerName: "shop.test", Certificates: clientCert})
		if err != nil {
			return "", nil, err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		a, err := exchange(c, bufio.NewReader(c), "GET /", asPage)
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName, a, err
	}
	name, a, err := ask()
	if err != nil || name != "first" {
		t.Fatalf("%q: %v", name, err)
	}
	a.is(t, `
200
Cache-Control: private, no-store
Content-Type: text/plain; charset=utf-8
Set-Cookie: __Host-wr_sale_nonce=NONCE; Path=/; Max-Age=86400; HttpOnly; SameSite=None; Secure; Partitioned
Set-Cookie: __Host-wr_sale_pass=JWT; Path=/; Max-Age=TTL; HttpOnly; SameSite=None; Secure; Partitioned

shop GET /`)
	o := b.o
	o.TLS = TLS{CertFile: second.CertFile, KeyFile: first.KeyFile}
	if err := b.Reload(o); err == nil || !strings.Contains(err.Error(), "tls: cert_file") {
		t.Errorf("a key that does not fit: %v", err)
	}
	o.TLS = second
	o.TLS.ClientCAFile = second.CertFile
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(); err == nil {
		t.Error("a client without certificate is let in")
	}
	pair, err := tls.LoadX509KeyPair(second.CertFile, second.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if name, _, err := ask(pair); err != nil || name != "second" {
		t.Errorf("after the reload: %q %v", name, err)
	}
}

func TestReloadLosesNoPlaceAndNoConnection(t *testing.T) {
	shop, next := newSite(t, "shop", nil), newSite(t, "next", nil)
	o := Options{Origins: []proxy.Config{originAt("shop", shop.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}}
	b := start(t, redistest.Client(t), redistest.Prefix(t), o)
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	first, err := exchange(c, r, "GET /", asJSON)
	if err != nil {
		t.Fatal(err)
	}
	changed := b.o
	changed.Origins = []proxy.Config{originAt("shop", next.URL)}
	changed.Rooms = []Room{
		{ID: "sale", Paths: []string{"/sale"}, Policy: policy(0), Page: page.Options{Title: "Renamed"}},
		{ID: "vip", Paths: []string{"/vip"}, Policy: policy(1)},
	}
	if err := b.Reload(changed); err != nil {
		t.Fatal(err)
	}
	same, err := exchange(c, r, "GET /sale", asJSON, first.jar())
	if err != nil {
		t.Fatal(err)
	}
	if same.status != 202 || same.field("joined_at") != first.field("joined_at") || same.field("token") != "" {
		t.Errorf("the place after a reload: %s", same.text())
	}
	if a := b.call("GET /about").code(t, 200); a.body != "next GET /about" {
		t.Errorf("the new origin: %s", a.text())
	}
	eventually(t, "the new room is known", func() bool { return b.line("vip").Snapshot().Known })
	b.call("GET /vip", asJSON).code(t, 200)
	if a := b.call("GET /sale", asPage).code(t, 200); !strings.Contains(a.body, "Renamed") {
		t.Error("the page is the old one")
	}

	bad := changed
	bad.DefaultOrigin = "none"
	bad.Rooms = []Room{{ID: "a", Origin: "gone"}, {ID: "b", Paths: []string{"x"}}, {ID: "c", Estimator: "guess"}, {ID: "d", Bypass: []Bypass{{}}}}
	err = b.Reload(bad)
	const want = `default_origin: there is no origin "none"
rooms.a.origin: there is no origin "gone"
rooms.c.eta.estimator: eta: estimator "guess" is not known; use one of: window
rooms.d.bypass[0]: the rule is empty; name paths, methods, ips, user_agents or headers
rooms.b.paths: "x": a path begins with / and a regular expression with ~`
	if err == nil || err.Error() != want {
		t.Errorf("a bad configuration: %v", err)
	}
	b.call("GET /sale", asJSON, first.jar()).code(t, 202)
	gone := changed
	gone.Rooms = changed.Rooms[1:]
	if err := b.Reload(gone); err != nil {
		t.Fatal(err)
	}
	b.call("GET /.waiting-room/sale/status", first.jar()).code(t, 404)
}

func TestWebSocketNeedsAPass(t *testing.T) {
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			kind, msg, err := c.ReadMessage()
			if err != nil || c.WriteMessage(kind, append([]byte("echo "), msg...)) != nil {
				return
			}
		}
	})
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}},
	})
	_, resp, err := websocket.DefaultDialer.Dial("ws://"+b.addr+"/ws", nil)
	if err == nil || resp.StatusCode != 503 {
		t.Fatalf("without a pass: %v", err)
	}
	_, raw := aPass(t, "sale", 0, 300, "")
	c, resp, err := websocket.DefaultDialer.Dial("ws://"+b.addr+"/ws", http.Header{"Cookie": {"wr_sale_pass=" + raw}})
	if err != nil {
		t.Fatalf("with a pass: %v %v", err, resp)
	}
	defer c.Close()
	if err := c.WriteMessage(websocket.TextMessage, []byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, msg, err := c.ReadMessage(); err != nil || string(msg) != "echo a" {
		t.Fatalf("%q %v", msg, err)
	}
	changed := b.o
	changed.Origins = []proxy.Config{originAt("shop", s.URL)}
	changed.Origins[0].Timeout += time.Second
	if err := b.Reload(changed); err != nil { // the connection stays with the origin as it was
		t.Fatal(err)
	}
	if err := c.WriteMessage(websocket.TextMessage, []byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, msg, err := c.ReadMessage(); err != nil || string(msg) != "echo b" {
		t.Fatalf("%q %v", msg, err)
	}
	b.stop() // ends the connection, though it would last for ever
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, _, err := c.ReadMessage(); err == nil {
		t.Error("the connection outlives the gateway")
	}
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-finish
		}
		fmt.Fprint(w, "whole")
	})
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(5)}},
	})
	idle, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := exchange(idle, bufio.NewReader(idle), "GET /", asJSON); err != nil {
		t.Fatal(err)
	}
	slow := make(chan *answer, 1)
	go func() {
		a, err := b.try("GET /slow", asJSON)
		if err != nil {
			t.Errorf("the running request: %v", err)
		}
		slow <- a
	}()
	select {
	case <-arrived:
	case a := <-slow:
		t.Fatalf("the request did not reach the origin: %+v", a)
	}
	if !b.Ready() {
		t.Error("not ready while serving")
	}
	down := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() { down <- b.Gateway.Shutdown(ctx) }()
	eventually(t, "nobody new is taken", func() bool {
		c, err := net.Dial("tcp", b.addr)
		if err == nil {
			c.Close()
		}
		return err != nil && !b.Ready()
	})
	close(finish)
	if a := <-slow; a == nil || a.body != "whole" || !a.closed {
		t.Errorf("the running request: %+v", a)
	}
	if err := <-down; err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func TestFaultEndsTheRequestNotTheProcess(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	room := b.state.Load().byID["sale"]
	whole := room.line
	room.line = faulty{whole}
	a := b.call("GET /", asJSON)
	if !a.closed {
		t.Error("the connection goes on")
	}
	a.is(t, `
500
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:internal","title":"Something broke","status":500,"detail":"It was not your request; it has been logged.","code":"internal"}`)
	room.line = whole
	b.call("GET /", asJSON).code(t, 202)
	if log := b.logs.String(); !strings.Contains(log, "fault in a request") || !strings.Contains(log, "a fault of the test") {
		t.Errorf("the log: %s", log)
	}
}

// faulty is a line with a fault in it.
type faulty struct{ line }

func (faulty) Join(context.Context, admission.Arrival) (admission.Standing, admission.Refusal, error) {
	panic("a fault of the test")
}

func TestStoreAway(t *testing.T) {
	srv := redistest.Server(t)
	s := newSite(t, "shop", nil)
	rooms := []Room{}
	for _, mode := range []string{admission.OnErrorWait, admission.OnErrorOpen, admission.OnErrorClosed} {
		p := policy(1)
		p.OnStoreError = mode
		rooms = append(rooms, Room{ID: mode, Paths: []string{"/" + mode}, Policy: p})
	}
	b := start(t, srv.Client(), "wr", Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: rooms})
	b.call("GET /wait", asJSON).code(t, 200)
	line := b.call("GET /wait", asJSON).code(t, 202)
	srv.Kill()
	eventually(t, "the store is known to be away", func() bool { return !b.core.Up() })
	_, raw := aPass(t, "wait", 0, 300, "")
	b.call("GET /wait", asJSON, "X-Waiting-Room-Pass: "+raw).code(t, 200)
	eventually(t, "a new visitor waits", func() bool { return b.call("GET /wait", asJSON).status == 202 })
	kept := b.call("GET /.waiting-room/wait/status", line.jar()).code(t, 200)
	if kept.field("state") != "waiting" || kept.field("position") != "1" || kept.field("joined_at") != line.field("joined_at") {
		t.Errorf("the place while the store is away: %s", kept.text())
	}
	eventually(t, "open lets in", func() bool {
		a := b.call("GET /open", asJSON)
		return a.status == 200 && readPass(t, a.header.Get("X-Waiting-Room-Pass"), "open").Off
	})
	eventually(t, "closed refuses", func() bool {
		a := b.call("GET /closed", asJSON)
		return a.status == 503 && a.field("code") == "store_unavailable" && a.header.Get("Retry-After") == "5"
	})
	b.call("GET /closed", asPage).code(t, 503)
	b.call("GET /wait/i.png", "Sec-Fetch-Dest: image").code(t, 503)
}

func TestOriginAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + ln.Addr().String()
	ln.Close()
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", dead)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}},
	})
	a := b.call("GET /", asJSON)
	a.is(t, `
502
Cache-Control: no-store
Content-Type: application/problem+json
Set-Cookie: wr_sale_pass=JWT; Path=/; Max-Age=TTL; HttpOnly; SameSite=Lax
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room-Pass: JWT

{"type":"urn:anteroom:problem:bad_gateway","title":"The site does not answer","status":502,"detail":"The site behind this page could not be reached or broke off. Try again in a moment.","code":"bad_gateway"}`)
	if b.call("GET /", asPage, a.jar()).code(t, 502).header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Error("a navigation does not get a page")
	}
	const want = `
# HELP anteroom_upstream_errors_total Requests that an origin did not answer properly.
# TYPE anteroom_upstream_errors_total counter
`
	var rows []string
	for _, kind := range proxy.Kinds() {
		n := 0
		if kind == proxy.KindConnect {
			n = 2
		}
		rows = append(rows, fmt.Sprintf("anteroom_upstream_errors_total{kind=%q,origin=\"shop\"} %d", kind, n))
	}
	slices.Sort(rows)
	if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want+strings.Join(rows, "\n")+"\n"), "anteroom_upstream_errors_total"); err != nil {
		t.Error(err)
	}
}

func TestMetricsAndAccessLog(t *testing.T) {
	log := &syncBuffer{}
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)},
		Rooms:   []Room{{ID: "sale", Policy: policy(1), Bypass: []Bypass{{Paths: []string{"/health"}}}}},
		Access:  Access{Output: log, Sample: 1, Prefix: true},
	})
	in := b.call("GET /secret?token=abc&q=1", asJSON, "User-Agent: test\"er").code(t, 200)
	b.call("GET /", asJSON, in.jar()).code(t, 200)
	wait := b.call("GET /", asJSON).code(t, 202)
	b.call("GET /.waiting-room/sale/status", wait.jar()).code(t, 200)
	b.call("GET /health").code(t, 200)
	b.call("GET /.waiting-room/sale/status", "Cookie: wr_sale_ticket=forged").code(t, 401)
	b.call("GET /.waiting-room/none/status").code(t, 404)
	const want = `
# HELP anteroom_requests_total Requests by room and outcome.
# TYPE anteroom_requests_total counter
anteroom_requests_total{outcome="bypass",room=""} 0
anteroom_requests_total{outcome="bypass",room="sale"} 1
anteroom_requests_total{outcome="error",room=""} 0
anteroom_requests_total{outcome="error",room="sale"} 0
anteroom_requests_total{outcome="let_in",room=""} 0
anteroom_requests_total{outcome="let_in",room="sale"} 1
anteroom_requests_total{outcome="proxied",room=""} 0
anteroom_requests_total{outcome="proxied",room="sale"} 1
anteroom_requests_total{outcome="refused",room=""} 1
anteroom_requests_total{outcome="refused",room="sale"} 1
anteroom_requests_total{outcome="waiting",room=""} 0
anteroom_requests_total{outcome="waiting",room="sale"} 2
`
	if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want), "anteroom_requests_total"); err != nil {
		t.Error(err)
	}
	eventually(t, "the snapshot has the one who waits", func() bool {
		return testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP anteroom_waiting People in line.
# TYPE anteroom_waiting gauge
anteroom_waiting{room="sale"} 1
# HELP anteroom_admissions_total Visitors let in, those let in at once included, since the store began.
# TYPE anteroom_admissions_total counter
anteroom_admissions_total{room="sale"} 1
# HELP anteroom_store_up 1 while the store answers.
# TYPE anteroom_store_up gauge
anteroom_store_up 1
`), "anteroom_waiting", "anteroom_admissions_total", "anteroom_store_up") == nil
	})
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, strings.TrimPrefix(f.GetName(), "anteroom_"))
	}
	for _, name := range []string{"requests_total", "request_seconds", "upstream_seconds", "upstream_errors_total", "waiting", "parked", "active",
		"admitted_unclaimed", "joins_total", "admissions_total", "claims_total", "lapsed_total", "abandoned_total", "rate", "rate_limit",
		"wait_seconds", "eta_error_ratio", "snapshot_age_seconds", "store_command_seconds", "store_up", "tokens_rejected_total", "build_info"} {
		if !slices.Contains(names, name) {
			t.Errorf("no metric %s", name)
		}
	}
	b.stop()
	text := log.String()
	for _, secret := range []string{"abc", "forged", "eyJ", "127.0.0.1\""} {
		if strings.Contains(text, secret) {
			t.Errorf("the access log holds %q:\n%s", secret, text)
		}
	}
	first, _, _ := strings.Cut(text, "\n")
	for _, part := range []string{`"ip":"127.0.0.0/24"`, `"method":"GET"`, `"target":"/secret?token=***&q=1"`, `"status":200`, `"room":"sale"`, `"outcome":"let_in"`, `"user_agent":"test\"er"`, `"bytes":30`} {
		if !strings.Contains(first, part) {
			t.Errorf("no %s in %s", part, first)
		}
	}
	if n := strings.Count(text, "\n"); n != 7 {
		t.Errorf("%d lines for 7 requests", n)
	}
}

func TestCombinedLog(t *testing.T) {
	log := &syncBuffer{}
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Access: Access{Output: log, Sample: 1, Combined: true},
	})
	b.call("GET /a?key=1", "User-Agent: a\"b", "Referer: http://h/?token=2").code(t, 200)
	b.stop()
	line := log.String()
	if !strings.HasPrefix(line, "127.0.0.1 - - [") || !strings.HasSuffix(line, ` +0000] "GET /a?key=*** HTTP/1.1" 200 17 "http://h/?token=***" "a\x22b"`+"\n") {
		t.Errorf("%s", line)
	}
}

func TestRequestThatIsNotHTTPIsLoggedAsItIs(t *testing.T) {
	log := &syncBuffer{}
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Access: Access{Output: log, Sample: 1},
	})
	b.call("GET /", "Bad Name: x").code(t, 400)
	b.stop()
	line := regexp.MustCompile(`"(time|seconds)":("[^"]*"|[^,]*),`).ReplaceAllString(log.String(), "")
	if want := `{"msg":"access","ip":"127.0.0.1","method":"","host":"","target":"","status":400,"bytes":156,"outcome":"refused","user_agent":""}` + "\n"; line != want {
		t.Errorf("%swant\n%s", line, want)
	}
}

func TestFaultOfAnOriginIsOneLine(t *testing.T) {
	s := newSite(t, "shop", nil)
	s.Close()
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}})
	b.call("GET /", asJSON).code(t, 502)
	if log := b.logs.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, `"kind":"connect"`) {
		t.Errorf("%s", log)
	}
}

// A crowd at two gateways on one store is one line: nobody is let in before who came earlier, nobody is let in twice.
func TestTwoGatewaysAreOneRoom(t *testing.T) {
	s := newSite(t, "shop", nil)
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	o := Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}, {ID: "vip", Paths: []string{"/vip"}, Policy: policy(1)}}}
	gates := []*bench{start(t, client, prefix, o), start(t, client, prefix, o)}
	gates[0].call("GET /", asJSON).code(t, 200)
	const crowd = 60
	type visitor struct{ joined, admitted, token string }
	visitors := make([]visitor, crowd)
	for i := range visitors {
		a := gates[i%2].call("POST /.waiting-room/sale/tickets").code(t, 201)
		visitors[i] = visitor{joined: a.field("joined_at"), token: a.field("token")}
	}
	gates[1].rate("sale", 100)
	var all sync.WaitGroup
	for i := range visitors {
		all.Go(func() {
			v := &visitors[i]
			deadline := time.Now().Add(15 * time.Second)
			for n := i; time.Now().Before(deadline); n++ { // each poll goes to the other gateway
				a, err := gates[n%2].try("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+v.token)
				if err != nil {
					t.Error(err)
					return
				}
				if token := a.field("token"); token != "" {
					v.token = token
				}
				if v.admitted = a.field("admitted_at"); v.admitted != "" {
					return
				}
				pause(20 * time.Millisecond)
			}
		})
	}
	all.Wait()
	slices.SortFunc(visitors, func(a, b visitor) int { return strings.Compare(a.joined, b.joined) })
	for i, v := range visitors {
		if v.admitted == "" {
			t.Fatalf("visitor %d was never let in", i)
		}
		if i > 0 && v.admitted < visitors[i-1].admitted {
			t.Errorf("%s, joined %s, was let in before %s, joined %s", v.admitted, v.joined, visitors[i-1].admitted, visitors[i-1].joined)
		}
	}
	for _, g := range gates {
		eventually(t, "both count the same", func() bool { return g.line("sale").Snapshot().Admissions == crowd+1 })
		g.call("GET /vip", asJSON) // the other room has a line of its own
	}
}

func TestStreamsEndAndAreLimited(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}, MaxStreams: 2,
	})
	token := b.call("POST /.waiting-room/sale/tickets").field("token")
	open := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(15 * time.Second))
		fmt.Fprintf(c, "GET /.waiting-room/sale/events HTTP/1.1\r\nHost: shop.test\r\nX-Waiting-Room-Token: %s\r\n\r\n", token)
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "data: ") {
				return c, r
			}
		}
	}
	_, first := open()
	open()
	b.call("GET /.waiting-room/sale/events", "X-Waiting-Room-Token: "+token).is(t, `
503
Cache-Control: no-store
Content-Type: application/problem+json
Retry-After: N
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:streams_full","title":"Too many event streams","status":503,"detail":"Poll the status instead, or try again.","code":"streams_full"}`)
	if n := testutil.ToFloat64(b.metrics.streams); n != 2 {
		t.Errorf("%v streams are counted", n)
	}
	b.stop()
	if rest, err := io.ReadAll(first); err != nil {
		t.Errorf("the stream did not end: %q %v", rest, err)
	}
}
