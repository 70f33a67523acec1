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
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/redistest"
)

// certificate writes a key pair for shop.test with a common name.
func certificate(t *testing.T, dir, name string) certs.Files {
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
	out := certs.Files{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
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
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}}, TLS: first, SameSite: client.SameSiteNone,
	})
	ask := func(clientCert ...tls.Certificate) (string, *response, error) {
		c, err := tls.Dial("tcp", b.addr, &tls.Config{InsecureSkipVerify: true, ServerName: "shop.test", Certificates: clientCert})
		if err != nil {
			return "", nil, err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
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
	o.TLS = certs.Files{CertFile: second.CertFile, KeyFile: first.KeyFile}
	if err := b.Reload(o); err == nil || !strings.Contains(err.Error(), "tls: cert_file") {
		t.Errorf("a key that does not fit: %v", err)
	}
	o.TLS = second
	o.TLS.ClientCAFile = second.CertFile
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(); err == nil {
		t.Error("a client without a certificate is accepted")
	}
	pair, err := tls.LoadX509KeyPair(second.CertFile, second.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if name, _, err := ask(pair); err != nil || name != "second" {
		t.Errorf("after the reload: %q %v", name, err)
	}
}

func TestReload_KeepsPlacesAndConnections(t *testing.T) {
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
	eventually(t, "the new room is known", func() bool { return b.queue("vip").Snapshot().Known })
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
rooms.c.eta.estimator: eta: estimator "guess" is not known; use one of: ema, fixed, hourly, model, window
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

func TestWebSocket_RequiresPass(t *testing.T) {
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
	if err := b.Reload(changed); err != nil { // the connection keeps its origin
		t.Fatal(err)
	}
	if err := c.WriteMessage(websocket.TextMessage, []byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, msg, err := c.ReadMessage(); err != nil || string(msg) != "echo b" {
		t.Fatalf("%q %v", msg, err)
	}
	b.stop() // ends the connection, which otherwise never ends
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, _, err := c.ReadMessage(); err == nil {
		t.Error("the connection outlives the gateway")
	}
}

func TestShutdown_FinishesRequests(t *testing.T) {
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
	slow := make(chan *response, 1)
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

// A client that closes its sending side in the middle of a body still reads. It must not receive a success.
func TestForward_HalfBodyIsNoSuccess(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(5)})
	for _, rest := range []string{"Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: shop.test\r\nAccept: application/json\r\n%s", rest)
		c.(*net.TCPConn).CloseWrite()
		said, err := io.ReadAll(c)
		c.Close()
		if !strings.HasPrefix(string(said), "HTTP/1.1 400 ") || !strings.Contains(string(said), "Connection: close\r\n") {
			t.Errorf("%q: %q, %v", rest, said, err)
		}
	}
}

// The signal may arrive while the gateway opens a socket. The gateway must not become ready again.
func TestReady_StaysFalseAfterShutdown(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(5)}},
	})
	b.NotReady()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(ln) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a, err := exchange(c, bufio.NewReader(c), "GET /", asJSON); err != nil || a.status != 200 {
		t.Fatal(a, err)
	}
	if b.Ready() {
		t.Error("ready again")
	}
	b.stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The health of an origin, as operators see it, counts no faults of clients.
func TestHealth_IgnoresClientFaults(t *testing.T) {
	s := newSite(t, "shop", nil)
	origin := originAt("shop", s.URL)
	origin.MaxBody = 10
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{origin}})
	b.call("POST /", asJSON, "", "twenty bytes, or more").code(t, 413)
	if _, failed := b.OriginStats("shop"); failed != 0 {
		t.Errorf("%g of its requests failed", failed)
	}
	s.Close()
	b.call("GET /", asJSON).code(t, 502)
	if _, failed := b.OriginStats("shop"); failed != 1 {
		t.Errorf("%g of its requests failed, want all", failed)
	}
}
