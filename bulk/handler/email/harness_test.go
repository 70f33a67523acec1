package email

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/bulk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mailbox is a real SMTP server that keeps the messages it receives.
type mailbox struct {
	addr   string
	server *smtp.Server

	mu       sync.Mutex
	messages []message
	sessions int
	open     int
	most     int                // sessions at a time
	tls      bool               // of the latest session
	user     string             // who signed in last
	refuse   func(string) error // by command: "MAIL", "RCPT <address>", "DATA", "AUTH", "session"; may be nil
}

// message is an envelope with its message.
type message struct {
	from string
	to   []string
	utf8 bool
	data string
}

type visit struct {
	box  *mailbox
	conn *smtp.Conn
	now  message
}

func (m *mailbox) NewSession(c *smtp.Conn) (smtp.Session, error) {
	if err := m.refused("session"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions++
	m.open++
	m.most = max(m.most, m.open)
	return &visit{box: m, conn: c}, nil
}

func (m *mailbox) refused(command string) error {
	m.mu.Lock()
	f := m.refuse
	m.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(command)
}

func (m *mailbox) setRefuse(f func(string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = f
}

func (m *mailbox) got(t *testing.T) []message {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]message(nil), m.messages...)
}

// count returns the sessions so far, the open ones, and the most at a time.
func (m *mailbox) count() (sessions, open, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions, m.open, m.most
}

// signedIn returns the last user who signed in and whether that was over TLS, and resets both.
func (m *mailbox) signedIn() (user string, overTLS bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	user, overTLS = m.user, m.tls
	m.user, m.tls = "", false
	return user, overTLS
}

func (s *visit) Reset()        { s.now = message{} }
func (s *visit) Logout() error { s.box.mu.Lock(); s.box.open--; s.box.mu.Unlock(); return nil }

func (s *visit) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *visit) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, pass string) error {
		if err := s.box.refused("AUTH"); err != nil {
			return err
		}
		if user != "ann" || pass != "s3cr/t@" {
			return smtp.ErrAuthFailed
		}
		_, isTLS := s.conn.TLSConnectionState()
		s.box.mu.Lock()
		s.box.user, s.box.tls = user, isTLS
		s.box.mu.Unlock()
		return nil
	}), nil
}

func (s *visit) Mail(from string, o *smtp.MailOptions) error {
	_, isTLS := s.conn.TLSConnectionState()
	s.box.mu.Lock()
	s.box.tls = isTLS
	s.box.mu.Unlock()
	if s.now.from != "" { // as strict servers are
		return &smtp.SMTPError{Code: 503, EnhancedCode: smtp.EnhancedCode{5, 5, 1}, Message: "nested MAIL command"}
	}
	s.now = message{from: from, utf8: o != nil && o.UTF8}
	return s.box.refused("MAIL")
}

func (s *visit) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := s.box.refused("RCPT " + to); err != nil {
		return err
	}
	s.now.to = append(s.now.to, to)
	return nil
}

func (s *visit) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.box.refused("DATA"); err != nil {
		return err
	}
	s.now.data = string(b)
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.box.messages = append(s.box.messages, s.now)
	return nil
}

// newMailbox starts one on loopback; change sets it up before.
func newMailbox(t *testing.T, change func(*smtp.Server)) *mailbox {
	t.Helper()
	m := &mailbox{}
	m.server = smtp.NewServer(m)
	m.server.Domain, m.server.AllowInsecureAuth, m.server.EnableSMTPUTF8 = "mail.example", true, true
	m.server.ErrorLog = quiet{}
	if change != nil {
		change(m.server)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = l.Addr().String()
	if m.server.Addr == "smtps" {
		l = tls.NewListener(l, m.server.TLSConfig)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.server.Serve(l) })
	t.Cleanup(func() { _ = m.server.Close(); wg.Wait() })
	return m
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

// certificate returns a certificate for 127.0.0.1, and a client's configuration that trusts it.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: roots}
}

func handler(t *testing.T, o Options) *Handler {
	t.Helper()
	if o.From == "" {
		o.From = "The Shop <shop@example.com>"
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// job has a payload of fields, without those that are nil.
func job(fields map[string]any) *bulk.Job {
	all := map[string]any{"to": "bob@example.org", "subject": "Hello", "text": "Hi Bob"}
	for k, v := range fields {
		all[k] = v
		if v == nil {
			delete(all, k)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return &bulk.Job{ID: "j1", Group: "g1", Tenant: "acme", Type: "email", Payload: b, Attempt: 1, Fence: 1, IdempotencyKey: "g1/j1"}
}

func outcome(err error) string {
	f, ok := errors.AsType[*bulk.Failure](err)
	switch {
	case err == nil:
		return "done"
	case !ok:
		return "not a Failure: " + err.Error()
	}
	if f.After > 0 {
		return fmt.Sprintf("fail %s %s", f.Code, f.After)
	}
	return fmt.Sprintf("%s %s", map[bulk.Kind]string{bulk.KindRetry: "fail", bulk.KindPermanent: "permanent", bulk.KindBusy: "busy", bulk.KindBusyGroup: "busy group"}[f.Kind], f.Code)
}

// soon waits for an effect of another goroutine.
func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}
