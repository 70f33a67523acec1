package email

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/anteroom/anteroom/internal/freeport"
)

func reply(code int, enhanced smtp.EnhancedCode, text string) *smtp.SMTPError {
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

func TestEmail_MapsRepliesToVerdicts(t *testing.T) {
	box := newMailbox(t, nil)
	h := handler(t, Options{SMTP: "smtp://" + box.addr})
	for _, c := range []struct {
		at   string
		with *smtp.SMTPError
		want string
	}{
		{"session", reply(421, smtp.EnhancedCode{4, 3, 2}, "going down"), "busy busy"},
		{"session", reply(450, smtp.EnhancedCode{4, 7, 1}, "slow down"), "busy busy"},
		{"session", reply(554, smtp.EnhancedCode{5, 7, 1}, "not you"), "fail smtp_554"},
		{"MAIL", reply(421, smtp.EnhancedCode{4, 7, 0}, "too many"), "busy busy"},
		{"MAIL", reply(451, smtp.EnhancedCode{4, 7, 1}, "rate"), "busy busy"},
		{"MAIL", reply(452, smtp.EnhancedCode{4, 3, 1}, "disk"), "busy busy"},
		{"MAIL", reply(530, smtp.EnhancedCode{5, 7, 0}, "sign in"), "fail smtp_530"},
		{"MAIL", reply(550, smtp.EnhancedCode{5, 7, 1}, "not from there"), "permanent smtp_550"},
		{"RCPT", reply(421, smtp.EnhancedCode{4, 3, 2}, "down"), "busy busy"},
		{"RCPT", reply(432, smtp.EnhancedCode{4, 3, 2}, "connections"), "busy busy"},
		{"RCPT", reply(450, smtp.EnhancedCode{4, 2, 0}, "Greylisted, come back"), "fail smtp_450 5m0s"},
		{"RCPT", reply(451, smtp.EnhancedCode{4, 7, 1}, "try again later"), "fail smtp_451 5m0s"},
		{"RCPT", reply(451, smtp.EnhancedCode{4, 3, 0}, "local trouble"), "busy busy"},
		{"RCPT", reply(452, smtp.EnhancedCode{4, 2, 2}, "mailbox full"), "fail smtp_452"},
		{"RCPT", reply(452, smtp.NoEnhancedCode, "too many"), "fail smtp_452"},
		{"RCPT", reply(550, smtp.EnhancedCode{5, 1, 1}, "no such user"), "permanent smtp_550"},
		{"RCPT", reply(553, smtp.NoEnhancedCode, "no"), "permanent smtp_553"},
		{"DATA", reply(421, smtp.NoEnhancedCode, "down"), "busy busy"},
		{"DATA", reply(450, smtp.EnhancedCode{4, 7, 0}, "later"), "fail smtp_450 5m0s"},
		{"DATA", reply(451, smtp.EnhancedCode{4, 3, 0}, "local trouble"), "busy busy"},
		{"DATA", reply(452, smtp.NoEnhancedCode, "disk"), "busy busy"},
		{"DATA", reply(454, smtp.NoEnhancedCode, "throttling"), "busy busy"},
		{"DATA", reply(552, smtp.EnhancedCode{5, 3, 4}, "too big"), "permanent smtp_552"},
		{"DATA", reply(554, smtp.EnhancedCode{5, 7, 1}, "spam"), "permanent smtp_554"},
	} {
		said := c.with
		t.Run(fmt.Sprintf("%s %d %v", c.at, said.Code, said.EnhancedCode), func(t *testing.T) {
			if c.at == "session" { // a connection that is kept would not see it
				h = handler(t, Options{SMTP: "smtp://" + box.addr})
			}
			box.setRefuse(func(command string) error {
				if strings.HasPrefix(command, c.at) {
					return c.with
				}
				return nil
			})
			_, err := h.Handle(t.Context(), job(nil))
			if got := outcome(err); got != c.want {
				t.Errorf("%s, want %s: %v", got, c.want, err)
			}
			if err == nil || !strings.Contains(err.Error(), said.Message) {
				t.Errorf("the error does not say what the server said: %v", err)
			}
			box.setRefuse(nil)
			if _, err := h.Handle(t.Context(), job(nil)); err != nil {
				t.Errorf("the next message, on the same connection where it was kept: %v", err)
			}
		})
	}
}

// A message that was sent does not fail because its result is too long.
func TestEmail_DropsLongResult(t *testing.T) {
	box := newMailbox(t, nil)
	for most, want := range map[int]string{31: "", 63: `{"dropped":"result_too_large","limit":63}`} {
		h := handler(t, Options{SMTP: "smtp://" + box.addr, MaxResult: most})
		if result, err := h.Handle(t.Context(), job(nil)); err != nil || string(result) != want {
			t.Errorf("limit %d: %s, %v, want %s", most, result, err, want)
		}
	}
	if got := box.got(t); len(got) != 2 {
		t.Errorf("%d messages", len(got))
	}
}

// A job has one outcome. If the server refuses one recipient, the message is sent to none, so that a retry cannot reach the others
// twice; a permanent refusal of one recipient decides the outcome.
func TestSend_GroupsRecipients(t *testing.T) {
	box := newMailbox(t, nil)
	h := handler(t, Options{SMTP: "smtp://" + box.addr})
	box.setRefuse(func(command string) error {
		switch command {
		case "RCPT grey@example.org":
			return reply(450, smtp.EnhancedCode{4, 2, 0}, "greylisted")
		case "RCPT gone@example.org":
			return reply(550, smtp.EnhancedCode{5, 1, 1}, "no such user")
		}
		return nil
	})
	for to, want := range map[string]string{
		"good@example.org grey@example.org":                  "fail smtp_450 5m0s",
		"gone@example.org good@example.org grey@example.org": "permanent smtp_550",
		"grey@example.org gone@example.org good@example.org": "permanent smtp_550",
	} {
		_, err := h.Handle(t.Context(), job(map[string]any{"to": strings.Fields(to)}))
		if outcome(err) != want || strings.HasPrefix(want, "permanent") && !strings.Contains(err.Error(), "<gone@example.org>") {
			t.Errorf("%s: %v", to, err)
		}
	}
	if got := box.got(t); len(got) != 0 {
		t.Errorf("somebody got it: %+v", got)
	}
	_, err := h.Handle(t.Context(), job(nil))
	if sessions, _, _ := box.count(); err != nil || sessions != 1 {
		t.Errorf("%v after %d connections", err, sessions)
	}
}

func TestEmail_SendsToUTF8Address(t *testing.T) {
	j := job(map[string]any{"to": "jürgen@example.org"})
	box := newMailbox(t, nil)
	if _, err := handler(t, Options{SMTP: "smtp://" + box.addr}).Handle(t.Context(), j); err != nil || !box.got(t)[0].utf8 || box.got(t)[0].to[0] != "jürgen@example.org" {
		t.Errorf("%v, %+v", err, box.got(t))
	}
	old := newMailbox(t, func(s *smtp.Server) { s.EnableSMTPUTF8 = false })
	h := handler(t, Options{SMTP: "smtp://" + old.addr})
	if _, err := h.Handle(t.Context(), j); outcome(err) != "permanent smtp_553" || len(old.got(t)) != 0 {
		t.Errorf("%v", err)
	}
	_, err := h.Handle(t.Context(), job(nil))
	if sessions, _, _ := old.count(); err != nil || sessions != 1 {
		t.Errorf("%v after %d connections", err, sessions)
	}
}

func TestPool_KeepsAndBoundsConnections(t *testing.T) {
	box := newMailbox(t, nil)
	h := handler(t, Options{SMTP: "smtp://" + box.addr, MaxConns: 3})
	for range 5 {
		if _, err := h.Handle(t.Context(), job(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if sessions, _, _ := box.count(); sessions != 1 {
		t.Errorf("%d connections for five messages, one after the other", sessions)
	}
	inData, proceed := make(chan struct{}, 20), make(chan struct{})
	box.setRefuse(func(command string) error {
		if command == "DATA" {
			inData <- struct{}{}
			<-proceed
		}
		return nil
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := h.Handle(t.Context(), job(nil)); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		<-inData
	}
	close(proceed)
	wg.Wait()
	if sessions, _, most := box.count(); most > 3 || sessions > 3 || len(box.got(t)) != 25 {
		t.Errorf("%d connections at a time, %d in all, %d messages", most, sessions, len(box.got(t)))
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	soon(t, "Close ends the kept connections", func() bool { _, open, _ := box.count(); return open == 0 })
}

func TestPool_ClosesIdleConnections(t *testing.T) {
	box := newMailbox(t, nil)
	h := handler(t, Options{SMTP: "smtp://" + box.addr, Idle: time.Millisecond})
	if _, err := h.Handle(t.Context(), job(nil)); err != nil {
		t.Fatal(err)
	}
	soon(t, "an idle connection ends", func() bool { _, open, _ := box.count(); return open == 0 })
	if _, err := h.Handle(t.Context(), job(nil)); err != nil {
		t.Fatal(err)
	}
}

// A server that closes kept connections, silently or with 421, costs no try.
func TestPool_ReplacesStaleConnection(t *testing.T) {
	box := newMailbox(t, func(s *smtp.Server) { s.ReadTimeout = 20 * time.Millisecond })
	h := handler(t, Options{SMTP: "smtp://" + box.addr})
	for range 2 {
		if _, err := h.Handle(t.Context(), job(nil)); err != nil {
			t.Fatal(err)
		}
		soon(t, "the server closes", func() bool { _, open, _ := box.count(); return open == 0 })
	}
	var refused atomic.Bool
	box.setRefuse(func(command string) error {
		if command == "MAIL" && refused.CompareAndSwap(false, true) {
			return reply(421, smtp.EnhancedCode{4, 4, 2}, "too many messages on this connection")
		}
		return nil
	})
	h = handler(t, Options{SMTP: "smtp://" + box.addr})
	_, first := h.Handle(t.Context(), job(nil))
	if outcome(first) != "busy busy" { // on a new connection it is said of the server
		t.Errorf("%v", first)
	}
	if _, err := h.Handle(t.Context(), job(nil)); err != nil {
		t.Fatal(err)
	}
	refused.Store(false)
	if _, err := h.Handle(t.Context(), job(nil)); err != nil || !refused.Load() {
		t.Errorf("421 on a kept connection: %v", err)
	}
}

func TestServer_UsesTLSAndAuth(t *testing.T) {
	serverTLS, clientTLS := certificate(t)
	starttls := newMailbox(t, func(s *smtp.Server) { s.TLSConfig, s.AllowInsecureAuth = serverTLS, false })
	smtps := newMailbox(t, func(s *smtp.Server) { s.TLSConfig, s.Addr = serverTLS, "smtps" })
	clear := newMailbox(t, nil)
	for _, c := range []struct {
		name, url string
		tls       *tls.Config
		box       *mailbox
		overTLS   bool
		want      string
	}{
		{"STARTTLS", "smtp://ann:s3cr%2Ft%40@" + starttls.addr + "?tls=required", clientTLS, starttls, true, "done"},
		{"STARTTLS where it is offered", "smtp://ann:s3cr%2Ft%40@" + starttls.addr, clientTLS, starttls, true, "done"},
		{"TLS from the start", "smtps://ann:s3cr%2Ft%40@" + smtps.addr, clientTLS, smtps, true, "done"},
		{"loopback, in the clear", "smtp://ann:s3cr%2Ft%40@" + clear.addr, nil, clear, false, "done"},
		{"not offered, but required", "smtp://ann:s3cr%2Ft%40@" + clear.addr + "?tls=required", clientTLS, clear, false, "fail connection"},
		{"a certificate that nobody signed", "smtp://ann:s3cr%2Ft%40@" + starttls.addr, nil, starttls, false, "fail connection"},
		{"smtps, unsigned", "smtps://ann:s3cr%2Ft%40@" + smtps.addr, nil, smtps, false, "fail connection"},
		{"a wrong password", "smtps://ann:s3cret@" + smtps.addr, clientTLS, smtps, false, "fail smtp_535"},
		{"no sign-in offered in the clear", "smtp://ann:s3cr%2Ft%40@" + starttls.addr + "?tls=none", nil, starttls, false, "fail smtp_auth"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.box.signedIn()
			before := len(c.box.got(t))
			_, err := handler(t, Options{SMTP: c.url, TLS: c.tls}).Handle(t.Context(), job(nil))
			if outcome(err) != c.want || err != nil && strings.Contains(err.Error(), "s3cr") {
				t.Fatalf("%v, want %s", err, c.want)
			}
			user, overTLS := c.box.signedIn()
			if err == nil && (user != "ann" || overTLS != c.overTLS || len(c.box.got(t)) != before+1) {
				t.Errorf("user %q, TLS %t", user, overTLS)
			}
			if err != nil && (user != "" || len(c.box.got(t)) != before) {
				t.Error("a message or a password got through")
			}
		})
	}
	smtps.setRefuse(func(command string) error {
		if command == "AUTH" {
			return reply(454, smtp.EnhancedCode{4, 7, 0}, "not now")
		}
		return nil
	})
	if _, err := handler(t, Options{SMTP: "smtps://ann:s3cr%2Ft%40@" + smtps.addr, TLS: clientTLS}).Handle(t.Context(), job(nil)); outcome(err) != "busy busy" {
		t.Errorf("454: %v", err)
	}
}

// The server stops responding at each step in turn: cancelling the context closes the connection.
func TestEmail_CancelsConnection(t *testing.T) {
	for _, at := range []string{"accept", "EHLO", "MAIL", "RCPT", "DATA", "."} {
		t.Run(at, func(t *testing.T) {
			silent, closed := make(chan struct{}), make(chan struct{})
			addr := script(t, at, silent, closed)
			h := handler(t, Options{SMTP: "smtp://" + addr, Timeout: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { _, err := h.Handle(ctx, job(nil)); done <- err }()
			<-silent
			cancel()
			if err := <-done; outcome(err) != "fail cancelled" || !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			<-closed
		})
	}
	silent, closed := make(chan struct{}), make(chan struct{})
	h := handler(t, Options{SMTP: "smtp://" + script(t, ".", silent, closed), Timeout: time.Second, MaxConns: 1}) // a busy machine needs a part of it for the steps before
	done := make(chan error, 1)
	go func() { _, err := h.Handle(t.Context(), job(nil)); done <- err }()
	<-silent
	// Meanwhile another waits for the only connection, as long as it may.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := h.Handle(ctx, job(nil)); outcome(err) != "busy busy" {
		t.Errorf("waiting: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := h.Handle(ctx, job(nil)); outcome(err) != "fail cancelled" {
		t.Errorf("waiting, cancelled: %v", err)
	}
	if err := <-done; outcome(err) != "fail timeout" {
		t.Errorf("%v", err)
	}
	<-closed
}

// script starts a server that accepts every command before at and does not reply to at; closed is signalled when the client has disconnected.
func script(t *testing.T, at string, silent, closed chan struct{}) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		if at != "accept" {
			fmt.Fprint(conn, "220 mail.example\r\n")
		}
		inData := false
		for at != "accept" {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimSpace(line)
			if inData && line != "." {
				continue
			}
			if strings.HasPrefix(line, at) {
				break
			}
			if inData = line == "DATA"; inData {
				fmt.Fprint(conn, "354 go on\r\n")
			} else {
				fmt.Fprint(conn, "250 fine\r\n")
			}
		}
		close(silent)
		for {
			if _, err := r.ReadByte(); err != nil {
				close(closed)
				return
			}
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func TestEmail_RetriesWithoutServer(t *testing.T) {
	if _, err := handler(t, Options{SMTP: "smtp://" + freeport.Address(t)}).Handle(t.Context(), job(nil)); outcome(err) != "fail connection" {
		t.Errorf("%v", err)
	}
}

func TestNew_ErrorNamesSetting(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                            "empty; give the server as smtp://user:pass@host:587 or smtps://user:pass@host:465",
		"mail.example:587":                            `the scheme is "mail.example", not smtp or smtps`,
		"http://mail.example":                         `the scheme is "http", not smtp or smtps`,
		"smtp://":                                     "it has no host",
		"smtp://mail.example:0":                       "the port is not a number of 1 to 65535",
		"smtp://mail.example:99999":                   "the port is not a number of 1 to 65535",
		"smtp://ann:pa/ss@mail.example":               "the host or port cannot be read; percent-encode /, ?, # and @ of the password",
		"smtp://ann:12#34@mail.example":               "unexpected text after host and port; percent-encode /, ? and # of the password",
		"smtp://ann@mail.example":                     "give both user and password, or neither",
		"smtp://ann:secret@mail.example/path":         "unexpected text after host and port; percent-encode /, ? and # of the password",
		"smtp://mail.example?starttls=no":             `unknown parameter "starttls"; use tls=required, optional or none`,
		"smtp://mail.example?tls=maybe":               "tls=maybe; use tls=required, optional or none",
		"smtps://mail.example?tls=none":               "tls=none cannot be combined with smtps, which always uses TLS; use smtp",
		"smtp://ann:secret@mail.example?tls=optional": "tls=optional would send the password unencrypted; remove it",
		"smtp://ann:secret@10.0.0.1?tls=none":         "tls=none would send the password unencrypted; remove it",
	} {
		_, err := New(Options{Name: "letters", SMTP: raw, From: "shop@example.com"})
		if err == nil || err.Error() != "processors.letters.smtp: "+want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s\n got %v\nwant processors.letters.smtp: %s", raw, err, want)
		}
	}
	for _, raw := range []string{"smtp://mail.example", "smtps://ann:secret@mail.example:4465", "smtp://mail.internal:25?tls=none", "smtp://ann:secret@localhost:25", "smtp://ann:secret@[::1]?tls=none"} {
		if _, err := New(Options{SMTP: raw, From: "Shop <shop@example.com>"}); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	_, err := New(Options{SMTP: "smtp://mail.example", From: "shop"})
	if err == nil || !strings.HasPrefix(err.Error(), `processors.email.from: "shop" is not an address`) {
		t.Errorf("%v", err)
	}
}
