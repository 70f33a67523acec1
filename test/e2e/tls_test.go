package e2e

import (
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
	"strings"
	"syscall"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, a.pem, _ = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign makes a new key, signs c for it, and returns the certificate and the key, parsed and as PEM. An authority without a certificate
// signs with the new key itself.
func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, string, string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return signed, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// issue returns a certificate for servers and clients and its key, as PEM.
func (a *authority) issue(name string) (cert, key string) {
	_, _, cert, key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return cert, key
}

func (a *authority) client(name string) tls.Certificate {
	a.t.Helper()
	cert, key := a.issue(name)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// secured is a gateway with TLS, and the certificates for connecting to it.
type secured struct {
	*gateway
	ca                  *authority
	cert, key, clientCA string // files
	roots               *x509.CertPool
}

func startSecured(t *testing.T, clientCA string, more string) *secured {
	t.Helper()
	site := newOrigin(t, nil)
	dir := tempDir(t)
	s := &secured{ca: newAuthority(t, "site authority"), cert: dir + "/cert.pem", key: dir + "/key.pem", roots: x509.NewCertPool()}
	s.roots.AddCert(s.ca.cert)
	s.renew("first.test")
	tlsPart := fmt.Sprintf("tls: {cert_file: %s, key_file: %s}\n", s.cert, s.key)
	if clientCA != "" {
		s.clientCA = dir + "/clients.pem"
		write(t, s.clientCA, clientCA)
		tlsPart = fmt.Sprintf("tls: {cert_file: %s, key_file: %s, client_ca_file: %s}\n", s.cert, s.key, s.clientCA)
	}
	s.gateway = start(t, setup{origin: site.URL, rooms: []string{room(admission(500, 500))}, more: tlsPart + more})
	return s
}

// renew writes another certificate with its key.
func (s *secured) renew(name string) {
	cert, key := s.ca.issue(name)
	write(s.ca.t, s.key, key)
	write(s.ca.t, s.cert, cert)
}

// handshake connects; c needs only the fields that matter to the test.
func (s *secured) handshake(c *tls.Config) (*tls.Conn, error) {
	if c.RootCAs == nil {
		c.RootCAs = s.roots
	}
	if c.ServerName == "" {
		c.InsecureSkipVerify = true // the test does not check the name
	}
	raw, err := net.DialTimeout("tcp", s.addr, patience)
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { _ = raw.Close() })
	if err := raw.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	conn := tls.Client(raw, c)
	if err := conn.Handshake(); err != nil {
		return nil, err
	}
	// In TLS 1.3 the server reports a refused client certificate at the first read.
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return nil, err
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err == nil && !strings.HasPrefix(string(b[:n]), "HTTP/1.1 200 OK\r\n") {
		err = fmt.Errorf("answer %q", b[:n])
	}
	return conn, err
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "", "limits: {header_timeout: 5s}\n")
	never, half := dialWire(t, s.gateway), dialWire(t, s.gateway)
	half.send("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	for _, row := range []struct {
		name   string
		config *tls.Config
		want   string // of the error
	}{
		{"TLS 1.3", &tls.Config{ServerName: "first.test", MinVersion: tls.VersionTLS13}, ""},
		{"TLS 1.2", &tls.Config{ServerName: "first.test", MaxVersion: tls.VersionTLS12}, ""},
		{"TLS 1.1", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "protocol version not supported"},
		{"any name is served", &tls.Config{}, ""},
		{"h2 or http/1.1", &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, ""},
		{"h2 alone", &tls.Config{NextProtos: []string{"h2"}}, "no application protocol"},
	} {
		c, err := s.handshake(row.config)
		if row.want != "" {
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v, want %q", row.name, err, row.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if p := c.ConnectionState().NegotiatedProtocol; len(row.config.NextProtos) > 0 && p != "http/1.1" {
			t.Errorf("%s: %q was agreed on", row.name, p)
		}
	}

	browser := newBrowser(t, s.gateway)
	browser.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, ServerName: "first.test"}, DisableKeepAlives: true}
	resp, err := browser.http.Get("https://" + s.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if line := strings.Join(resp.Header.Values("Set-Cookie"), "\n"); !strings.Contains(line, "__Host-wr_sale_pass=") || !strings.Contains(line, "; Secure") {
		t.Errorf("cookies on TLS: %s", line)
	}

	w := dialWire(t, s.gateway)
	if code, body := w.get("/"); code != http.StatusBadRequest || body != "This port speaks HTTPS.\r\n" {
		t.Errorf("plain HTTP: %d %q", code, body)
	}
	w.closed()
	never.closed() // never begins its handshake
	half.closed()  // never ends it
}

// A new certificate is loaded when its files change or at SIGHUP. While certificate and key do not match, the old one is used. Sessions
// continue.
func TestTLS_CertificateIsReloaded(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "", "")
	shown := func() string {
		c, err := s.handshake(&tls.Config{})
		if err != nil {
			return err.Error()
		}
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	tickets := &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "first.test", InsecureSkipVerify: true}
	kept, err := s.handshake(tickets)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.handshake(tickets); err != nil || !c.ConnectionState().DidResume {
		t.Errorf("a session ticket is not taken: %v", err)
	}
	s.renew("second.test")
	until(t, "the changed certificate is shown", func() bool { return shown() == "second.test" })
	if c, err := s.handshake(tickets); err != nil || !c.ConnectionState().DidResume {
		t.Errorf("a session ticket from before the reload is not taken: %v", err)
	}
	if _, err := io.WriteString(kept, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if n, err := kept.Read(make([]byte, 4096)); n == 0 {
		t.Errorf("a connection from before: %v", err)
	}

	_, wrong := s.ca.issue("third.test")
	write(t, s.key, wrong)
	until(t, "it says that they are not a pair", func() bool { return strings.Contains(s.text(), "are not a pair") })
	if got := shown(); got != "second.test" {
		t.Errorf("with a key that does not fit: %s", got)
	}
	write(t, s.cert, "no certificate")
	s.signal(syscall.SIGHUP)
	until(t, "it says so again", func() bool { return strings.Count(s.text(), "the old one stays in force") >= 2 })
	if got := shown(); got != "second.test" {
		t.Errorf("with a file that is none: %s", got)
	}
	s.renew("third.test")
	s.signal(syscall.SIGHUP)
	until(t, "the mended one is shown", func() bool { return shown() == "third.test" })
}

// With client_ca_file no client connects without a certificate of that authority, even by resuming a session from before the authority
// was replaced.
func TestTLS_ClientCertificates(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	s := startSecured(t, ours.pem, "")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		try := func(who *tls.Config) (*tls.Conn, error) {
			who.MaxVersion, who.MinVersion = version, version
			return s.handshake(who)
		}
		member := ours.client("member")
		if _, err := try(&tls.Config{}); err == nil {
			t.Errorf("%x: without a certificate", version)
		}
		if _, err := try(&tls.Config{Certificates: []tls.Certificate{others.client("stranger")}}); err == nil {
			t.Errorf("%x: with a stranger's", version)
		}
		resuming := &tls.Config{Certificates: []tls.Certificate{member}, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "first.test"}
		if _, err := try(resuming); err != nil {
			t.Fatalf("%x: a member: %v", version, err)
		}
		if c, err := try(resuming); err != nil || !c.ConnectionState().DidResume {
			t.Errorf("%x: a member's session: %v", version, err)
		}
		write(t, s.clientCA, others.pem)
		until(t, "the other authority counts", func() bool {
			_, err := try(&tls.Config{Certificates: []tls.Certificate{others.client("stranger")}})
			return err == nil
		})
		if c, err := try(resuming); err == nil {
			t.Errorf("%x: a session of the former authority goes on (resumed: %v)", version, c.ConnectionState().DidResume)
		}
		write(t, s.clientCA, ours.pem)
		until(t, "the first authority counts again", func() bool {
			_, err := try(&tls.Config{Certificates: []tls.Certificate{member}})
			return err == nil
		})
	}
}
