package email

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// server is the address and settings of the mail server.
type server struct {
	host       string
	port       int
	implicit   bool // implicit TLS
	policy     mail.TLSPolicy
	user, pass string
	tls        *tls.Config // may be nil
}

// parseServer parses processors.<type>.smtp.
func parseServer(raw string) (*server, error) {
	if raw == "" {
		return nil, errors.New("empty; give the server as smtp://user:pass@host:587 or smtps://user:pass@host:465")
	}
	u, err := url.Parse(raw)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL, which contains the password
		}
		if _, ok := errors.AsType[url.InvalidHostError](err); ok || strings.Contains(err.Error(), "port") {
			err = errors.New("the host or port cannot be read; percent-encode /, ?, # and @ of the password")
		}
		return nil, err
	}
	s := &server{host: u.Hostname(), port: 587, implicit: u.Scheme == "smtps", policy: mail.TLSMandatory}
	switch {
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return nil, fmt.Errorf("the scheme is %q, not smtp or smtps", u.Scheme)
	case s.host == "":
		return nil, errors.New("it has no host")
	case u.Path != "" && u.Path != "/" || u.Fragment != "":
		return nil, errors.New("unexpected text after host and port; percent-encode /, ? and # of the password")
	}
	if s.implicit {
		s.port = 465
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, errors.New("the port is not a number of 1 to 65535")
		}
		s.port = int(n)
	}
	if u.User != nil {
		s.user = u.User.Username()
		s.pass, _ = u.User.Password()
		if s.user == "" || s.pass == "" {
			return nil, errors.New("give both user and password, or neither")
		}
	}
	return s, s.setPolicy(u.Query())
}

func (s *server) setPolicy(query url.Values) error {
	for key := range query {
		if key != "tls" {
			return fmt.Errorf("unknown parameter %q; use tls=required, optional or none", key)
		}
	}
	local := s.host == "localhost"
	if ip, err := netip.ParseAddr(s.host); err == nil {
		local = ip.IsLoopback()
	}
	choice := query.Get("tls")
	switch {
	case choice == "" && local:
		s.policy = mail.TLSOpportunistic
	case choice == "", choice == "required":
		s.policy = mail.TLSMandatory
	case s.implicit:
		return fmt.Errorf("tls=%s cannot be combined with smtps, which always uses TLS; use smtp", choice)
	case choice == "optional":
		s.policy = mail.TLSOpportunistic
	case choice == "none":
		s.policy = mail.NoTLS
	default:
		return fmt.Errorf("tls=%s; use tls=required, optional or none", choice)
	}
	if s.user != "" && !local && s.policy != mail.TLSMandatory {
		return fmt.Errorf("tls=%s would send the password unencrypted; remove it", choice)
	}
	return nil
}

// session is one connection to the server, used by one message at a time.
type session struct {
	client *smtp.Client
	conn   net.Conn // below client and TLS
	reused bool
	expire *time.Timer // while idle
}

func (s *session) close() { _ = s.conn.Close() }

// stageError is an error before the connection accepts mail, which no message can cause.
type stageError struct {
	stage string
	err   error
}

func (e *stageError) Error() string { return e.stage + ": " + e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

// dial connects, greets, starts TLS and authenticates. The end of ctx interrupts it.
func (s *server) dial(ctx context.Context) (*session, error) {
	sess := &session{}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.tls != nil {
		config = s.tls.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	}
	config.ServerName = cmp.Or(config.ServerName, s.host)
	policy := s.policy
	if s.implicit {
		policy = mail.NoTLS // STARTTLS is done here
	}
	var stop func() bool
	connect := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		sess.conn = conn
		if s.implicit {
			return tls.Client(conn, config), nil
		}
		return conn, nil
	}
	deadline, _ := ctx.Deadline()
	client, err := mail.NewClient(s.host, mail.WithPort(s.port), mail.WithTimeout(max(time.Until(deadline), time.Millisecond)),
		mail.WithTLSPolicy(policy), mail.WithTLSConfig(config), mail.WithDialContextFunc(
			func(dialing context.Context, network, addr string) (net.Conn, error) {
				conn, err := connect(dialing, network, addr)
				if err == nil {
					stop = context.AfterFunc(ctx, sess.close)
				}
				return conn, err
			}))
	if err != nil {
		return nil, &stageError{"connect", err}
	}
	sess.client, err = client.DialToSMTPClientWithContext(ctx)
	if err == nil {
		err = s.signIn(sess.client)
	}
	if stop != nil && !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if sess.conn != nil {
			sess.close()
		}
		if _, ok := errors.AsType[*stageError](err); !ok {
			err = &stageError{"connect", err}
		}
		return nil, err
	}
	return sess, nil
}

// signIn authenticates with the strongest mechanism offered. Without TLS it is called for loopback hosts only.
func (s *server) signIn(client *smtp.Client) error {
	if s.user == "" {
		return nil
	}
	_, offered := client.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	var auth smtp.Auth
	switch {
	case slices.Contains(mechanisms, "SCRAM-SHA-256"):
		auth = smtp.ScramSHA256Auth(s.user, s.pass)
	case slices.Contains(mechanisms, "PLAIN"):
		auth = smtp.PlainAuth("", s.user, s.pass, s.host, true)
	case slices.Contains(mechanisms, "LOGIN"):
		auth = smtp.LoginAuth(s.user, s.pass, s.host, true)
	case slices.Contains(mechanisms, "CRAM-MD5"):
		auth = smtp.CRAMMD5Auth(s.user, s.pass)
	default:
		return &stageError{"auth", fmt.Errorf("the server offers %q; supported are SCRAM-SHA-256, PLAIN, LOGIN and CRAM-MD5", offered)}
	}
	if err := client.Auth(auth); err != nil {
		return &stageError{"auth", err}
	}
	return nil
}
