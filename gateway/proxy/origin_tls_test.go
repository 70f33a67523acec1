package proxy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, cert: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}}
	der := a.sign(a.cert)
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign makes a new key, signs c for it, and returns both. The first key is the authority's own.
func (a *authority) sign(c *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.key == nil {
		a.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// site returns a certificate for a server of that name.
func (a *authority) site(name string, until time.Time) tls.Certificate {
	return a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

// secured is an origin with TLS that records its handshakes.
type secured struct {
	*recorder
	mu      sync.Mutex
	hellos  []*tls.ClientHelloInfo
	resumed []bool
}

func newSecured(t *testing.T, c *tls.Config) *secured {
	s := &secured{}
	c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hellos = append(s.hellos, h)
		return nil, nil
	}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resumed = append(s.resumed, cs.DidResume)
		return nil
	}
	s.recorder = newRecorder(t, func(x *session) {
		conn := tls.Server(x.Conn, c)
		x.Conn, x.r = conn, bufio.NewReader(conn)
		answering(okAnswer)(x)
	})
	return s
}

func (s *secured) at() string { return strings.Replace(s.url(), "http:", "https:", 1) }

func TestOriginTLS_VerifiesServer(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	for _, tc := range []struct {
		name   string
		server *tls.Config
		Client TLSConfig
		Kind   string
	}{
		{"as configured", &tls.Config{Certificates: []tls.Certificate{ours.site("shop.test", later)}}, TLSConfig{ours.file, "shop.test"}, ""},
		{"another authority", &tls.Config{Certificates: []tls.Certificate{ours.site("shop.test", later)}}, TLSConfig{other.file, "shop.test"}, KindTLS},
		{"the system's authorities", &tls.Config{Certificates: []tls.Certificate{ours.site("shop.test", later)}}, TLSConfig{"", "shop.test"}, KindTLS},
		{"another name", &tls.Config{Certificates: []tls.Certificate{ours.site("elsewhere.test", later)}}, TLSConfig{ours.file, "shop.test"}, KindTLS},
		{"the server's address is no name of it", &tls.Config{Certificates: []tls.Certificate{ours.site("shop.test", later)}}, TLSConfig{ours.file, ""}, KindTLS},
		{"expired", &tls.Config{Certificates: []tls.Certificate{ours.site("shop.test", time.Now().Add(-time.Hour))}}, TLSConfig{ours.file, "shop.test"}, KindTLS},
		{"TLS 1.1", &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10, Certificates: []tls.Certificate{ours.site("shop.test", later)}}, TLSConfig{ours.file, "shop.test"}, KindTLS},
		{"another protocol alone", &tls.Config{NextProtos: []string{"acme-tls/1"}, Certificates: []tls.Certificate{ours.site("shop.test", later)}}, TLSConfig{ours.file, "shop.test"}, KindTLS},
		{"a choice", &tls.Config{NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{ours.site("shop.test", later)}}, TLSConfig{ours.file, "shop.test"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSecured(t, tc.server)
			g := newGate(t, Config{Servers: []string{s.at()}, TLS: tc.Client, ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait}, wire.Limits{}, nil)
			want := "200 ok"
			if tc.Kind != "" {
				want = "502 " + tc.Kind
			}
			if got := g.ask(); got != want {
				t.Errorf("%s, want %s: %v", got, want, g.outcome(0).Err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			h := s.hellos[0]
			if h.ServerName != tc.Client.ServerName || !slices.Equal(h.SupportedProtos, []string{"http/1.1"}) {
				t.Errorf("SNI %q, ALPN %q", h.ServerName, h.SupportedProtos)
			}
		})
	}
}

func TestOriginTLS_ResumesSessions(t *testing.T) {
	ours := newAuthority(t)
	s := newSecured(t, &tls.Config{Certificates: []tls.Certificate{ours.site("shop.test", time.Now().Add(time.Hour))}})
	g := newGate(t, Config{Servers: []string{s.at()}, TLS: TLSConfig{ours.file, "shop.test"}, ConnectTimeout: wiretest.Wait, FirstByteTimeout: wiretest.Wait, IdleTimeout: wiretest.Wait}, wire.Limits{}, nil)
	for range 3 {
		g.ask()
		g.forget()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.resumed, []bool{false, true, true}) {
		t.Errorf("resumed: %v", s.resumed)
	}
}

func TestOrigin_SameFiles(t *testing.T) {
	ours := newAuthority(t)
	for _, tc := range []struct {
		name   string
		change func() error
		same   bool
	}{
		{"untouched", func() error { return nil }, true},
		{"written anew", func() error { b, _ := os.ReadFile(ours.file); return os.WriteFile(ours.file, b, 0o600) }, true},
		{"another", func() error { b, _ := os.ReadFile(newAuthority(t).file); return os.WriteFile(ours.file, b, 0o600) }, false},
		{"gone", func() error { return os.Remove(ours.file) }, false},
	} {
		o, err := New(Config{Servers: []string{"https://" + net.JoinHostPort("192.0.2.1", "443")}, TLS: TLSConfig{CAFile: ours.file}})
		if err != nil {
			t.Fatal(err)
		}
		if err := tc.change(); err != nil {
			t.Fatal(err)
		}
		if o.SameFiles() != tc.same {
			t.Errorf("%s: same %v, want %v", tc.name, !tc.same, tc.same)
		}
	}
}
