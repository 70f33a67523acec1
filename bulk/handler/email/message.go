package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	netmail "net/mail"
	"net/textproto"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wneessen/go-mail"
	"golang.org/x/net/idna"

	"github.com/anteroom/anteroom/bulk"
)

// maxRecipients is the most recipients of a message, which all servers must accept (RFC 5321, 4.5.3.1.8).
const maxRecipients = 100

// payload is a job's payload, see docs/handlers.md.
type payload struct {
	To      addresses         `json:"to"`
	Cc      addresses         `json:"cc"`
	Bcc     addresses         `json:"bcc"`
	ReplyTo string            `json:"reply_to"`
	Subject string            `json:"subject"`
	Text    string            `json:"text"`
	HTML    string            `json:"html"`
	Headers map[string]string `json:"headers"`
}

// addresses is one address or a list of them.
type addresses []string

func (a *addresses) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte(`"`)) {
		*a = addresses{""}
		return json.Unmarshal(b, &(*a)[0])
	}
	return json.Unmarshal(b, (*[]string)(a))
}

// letter is a message ready to be sent.
type letter struct {
	id         string // without its angle brackets
	from       string // addresses without names, ASCII except for local parts
	recipients []string
	utf8       bool // an address is not ASCII
	body       []byte
}

// compose returns the job's letter. Its error names the payload's field.
func (h *Handler) compose(job *bulk.Job, now time.Time) (*letter, error) {
	var p payload
	d := json.NewDecoder(bytes.NewReader(job.Payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("the payload: %w", fieldError(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the payload: more than one JSON value")
	}
	if err := bulk.CheckText(job.Payload); err != nil {
		return nil, fmt.Errorf("the payload: %w", err)
	}
	m := mail.NewMsg(mail.WithCharset(mail.CharsetUTF8), mail.WithEncoding(mail.EncodingQP), mail.WithNoDefaultUserAgent())
	l := &letter{from: h.from.Address}
	m.FromMailAddress(h.from)
	for _, field := range []struct {
		name string
		list addresses
		set  func(...*netmail.Address)
	}{{"to", p.To, m.ToMailAddress}, {"cc", p.Cc, m.CcMailAddress}, {"bcc", p.Bcc, m.BccMailAddress}} {
		var parsed []*netmail.Address
		for i, text := range field.list {
			a, err := address(text)
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", field.name, i, err)
			}
			parsed = append(parsed, a)
			if !slices.Contains(l.recipients, a.Address) {
				l.recipients = append(l.recipients, a.Address)
			}
		}
		if len(parsed) > 0 {
			field.set(parsed...)
		}
	}
	switch n := len(l.recipients); {
	case n == 0:
		return nil, errors.New("to: no recipient; give to, cc or bcc an address")
	case n > maxRecipients:
		return nil, fmt.Errorf("to: %d recipients with cc and bcc; at most %d, send several jobs", n, maxRecipients)
	}
	if p.ReplyTo != "" {
		a, err := address(p.ReplyTo)
		if err != nil {
			return nil, fmt.Errorf("reply_to: %w", err)
		}
		m.ReplyToMailAddress(a)
	}
	if err := line(p.Subject); err != nil {
		return nil, fmt.Errorf("subject: %w", err)
	}
	m.Subject(spaced(p.Subject))
	for name, value := range p.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if !allowedHeader(canonical) {
			return nil, fmt.Errorf("headers.%q: a job cannot set this header, only %s", name, allowedHeaders)
		}
		if err := line(value); err != nil {
			return nil, fmt.Errorf("headers.%s: %w", canonical, err)
		}
		if m.GetGenHeader(mail.Header(canonical)) != nil {
			return nil, fmt.Errorf("headers.%s: given twice", canonical)
		}
		m.SetGenHeader(mail.Header(canonical), spaced(value))
	}
	switch {
	case p.Text == "" && p.HTML == "":
		return nil, errors.New("text: empty, and so is html; give one of them")
	case p.HTML == "":
		m.SetBodyString(mail.TypeTextPlain, p.Text)
	case p.Text == "":
		m.SetBodyString(mail.TypeTextHTML, p.HTML)
	default:
		m.SetBodyString(mail.TypeTextPlain, p.Text)
		m.AddAlternativeString(mail.TypeTextHTML, p.HTML)
	}
	l.id = messageID(job.IdempotencyKey, h.domain)
	m.SetMessageIDWithValue(l.id)
	m.SetDateWithValue(now.UTC())
	for _, a := range append([]string{l.from}, l.recipients...) {
		l.utf8 = l.utf8 || !ascii(a)
	}
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("the message: %w", err)
	}
	l.body = b.Bytes()
	return l, nil
}

// messageID returns the same id for each run of a job, so that receivers can recognize repetitions, without revealing
// the key.
func messageID(idempotencyKey, domain string) string {
	sum := sha256.Sum256([]byte("message-id\n" + idempotencyKey))
	return hex.EncodeToString(sum[:16]) + "@" + domain
}

// fieldError adds the field to an error of encoding/json.
func fieldError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%s: must not be a %s", wrong.Field, wrong.Value)
	}
	return err
}

const allowedHeaders = "X-…, List-…, Auto-Submitted, Comments, Feedback-Id, Importance, In-Reply-To, Keywords, Organization, Precedence, Priority and References"

// allowedHeader reports whether a job may set a header: not those that identify or route the message or describe its
// parts.
func allowedHeader(canonical string) bool {
	for _, c := range []byte(canonical) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	if rest, ok := strings.CutPrefix(canonical, "X-"); ok && rest != "" {
		return len(canonical) <= 64
	}
	if rest, ok := strings.CutPrefix(canonical, "List-"); ok && rest != "" {
		return len(canonical) <= 64
	}
	switch canonical {
	case "Auto-Submitted", "Comments", "Feedback-Id", "Importance", "In-Reply-To", "Keywords", "Organization", "Precedence",
		"Priority", "References":
		return true
	}
	return false
}

// line returns an error for text that is too long, not valid UTF-8, or has a control character, which could end a header's line.
func line(s string) error {
	if len(s) > 2000 {
		return fmt.Errorf("%d bytes; at most 2000", len(s))
	}
	if !utf8.ValidString(s) {
		return errors.New("not UTF-8")
	}
	run := 0
	for _, r := range s {
		if run++; r == ' ' {
			run = 0
		}
		if run > 800 {
			return errors.New("more than 800 characters without a blank; a header could not be folded into lines")
		}
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return fmt.Errorf("has the control character %U; a header is one line of text", r)
		}
	}
	return nil
}

// spaced replaces a run of blanks by one: folded within, a header would have lines of blanks only, which some readers
// take for its end.
func spaced(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ")
}

// address parses an address, with or without a name, and converts its domain to ASCII.
func address(text string) (*netmail.Address, error) {
	if text == "" {
		return nil, errors.New("empty; give an address as name@example.com")
	}
	if err := line(text); err != nil {
		return nil, err
	}
	a, err := netmail.ParseAddress(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address: %w", text, err)
	}
	if err := line(a.Name); err != nil { // an encoded word can contain control characters
		return nil, err
	}
	a.Name = spaced(a.Name)
	at := strings.LastIndexByte(a.Address, '@')
	local, domain := a.Address[:at], a.Address[at+1:]
	if strings.Contains(local, " ") {
		return nil, fmt.Errorf("%q has a blank before the @", text)
	}
	if domain, err = idna.Lookup.ToASCII(domain); err != nil {
		return nil, fmt.Errorf("%q is not an address: its domain: %w", text, err)
	}
	a.Address = local + "@" + domain
	if len(local) > 64 || len(a.Address) > 254 {
		return nil, fmt.Errorf("%q is too long for an address", text)
	}
	return a, line(a.Address)
}

func domainOf(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// result returns the job's result.
func result(l *letter, reply string) ([]byte, error) {
	return json.Marshal(struct {
		MessageID string `json:"message_id"`
		Reply     string `json:"reply"`
	}{l.id, strings.ToValidUTF8(reply[:min(len(reply), 500)], "")})
}
