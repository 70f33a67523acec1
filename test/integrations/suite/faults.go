package suite

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/freeport"
)

// Faults returns the cases in which the gateway or the store is away, and those of two gateways and of TLS.
func Faults() []Row {
	return []Row{
		{"TLS: the cookies have the prefix __Host-", overTLS},
		{"two gateways are one room, and one is enough", twoGateways},
		{"no gateway answers: closed", func(t *testing.T, s *Site) { gatewayAway(t, s, false) }},
		{"no gateway answers: open", func(t *testing.T, s *Site) { gatewayAway(t, s, true) }},
		{"the store is away", storeAway},
	}
}

func overTLS(t *testing.T, s *Site) {
	v := NewVisitor(t, s.start(t, &Setup{Gateways: []*Gateway{s.Gateway}, TLS: true}), "free.test")
	v.tls = true
	v.Admit(s.Proxy)
	reaches(t, v.Do("GET /", Page))
	v.Do("GET /.waiting-room/free/status", JSON)
	for name := range v.cookies {
		if !strings.HasPrefix(name, "__Host-wr_free_") {
			t.Errorf("cookie %s", name)
		}
	}
}

func twoGateways(t *testing.T, s *Site) {
	if s.Proxy.OneCheck {
		return // gateway snippet refuses a second --check; package snippet tests that
	}
	second := StartGateway(t, s.Store, s.Proxy)
	v := NewVisitor(t, s.start(t, &Setup{Gateways: []*Gateway{s.Gateway, second}}), "free.test")
	v.Admit(s.Proxy)
	var session string
	for i := range 12 {
		if i == 6 {
			second.Kill()
		}
		reaches(t, v.Do("GET /", Page))
		if got := s.last(t).Header.Get("X-Waiting-Room-Session"); session != "" && got != session {
			t.Fatalf("request %d has session %s, those before have %s", i, got, session)
		} else {
			session = got
		}
	}
}

func gatewayAway(t *testing.T, s *Site, open bool) {
	if open && s.Proxy.NoOpen {
		return // gateway snippet refuses --open; package snippet tests that
	}
	at := s.start(t, &Setup{Gateways: []*Gateway{s.Gateway}, Open: open, away: freeport.Address(t)})
	v := NewVisitor(t, at, "free.test")
	n := s.Origin.Count()
	a := v.Do("POST /order", JSON, "X-Waiting-Room-Session: forged", "X-Waiting_Room-Session: forged", "X_Waiting-Room-Session: forged", "X_Waiting_Room_Session: forged", "X.Waiting.Room.Session: forged", "", "seat=7")
	switch reached := s.Origin.Count() - n; {
	case !open && (reached != 0 || a.StatusCode < 500):
		t.Errorf("closed: %d requests reached the origin, %s", reached, a)
	case open && (reached != 1 || !a.Reached()):
		t.Errorf("open: %d requests reached the origin, %s", reached, a)
	case open:
		if got := s.last(t); got.Method != "POST" || got.Body != "seat=7" || forged(&got) {
			t.Errorf("open: the origin got %+v", got)
		}
	}
	if a := NewVisitor(t, at, "free.test").Do("GET /.waiting-room/free/status", JSON); a.Field("room") != "free" && a.Field("code") == "" {
		t.Errorf("the visitors' socket does not answer: %s", a)
	}
}

func storeAway(t *testing.T, s *Site) {
	inside := map[string]*Visitor{}
	for _, room := range []string{"keepwait", "keepopen", "keepclosed"} {
		inside[room] = s.visitor(t, room)
		inside[room].Admit(s.Proxy)
	}
	s.Store.Stop()
	defer s.Store.Cont()
	for room, v := range inside {
		reaches(t, v.Do("GET /", Page))
		if room != "keepopen" {
			if a := s.visitor(t, room).Do("GET /", Page); a.Reached() {
				t.Errorf("%s: %s", room, a)
			}
		}
	}
	v := s.visitor(t, "keepopen")
	v.Admit(s.Proxy)
	reaches(t, v.Do("GET /", Page))
}

// certificate writes a certificate for every host of the suite.
func certificate(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: Hosts, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := Dir(t)
	return WriteFile(t, dir, "site.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))),
		WriteFile(t, dir, "site.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}
