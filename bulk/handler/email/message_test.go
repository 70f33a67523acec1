package email

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk"
)

// parsed reads a delivered message as a receiver would.
func parsed(t *testing.T, data string) (header netmail.Header, parts map[string]string) {
	t.Helper()
	m, err := netmail.ReadMessage(strings.NewReader(data))
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	parts = map[string]string{}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(kind, encoding string, r io.Reader) {
		if encoding == "quoted-printable" {
			r = quotedprintable.NewReader(r)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		parts[kind] = strings.TrimSuffix(string(b), "\r\n")
	}
	if kind != "multipart/alternative" {
		read(kind, m.Header.Get("Content-Transfer-Encoding"), m.Body)
		return m.Header, parts
	}
	r := multipart.NewReader(m.Body, params["boundary"])
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return m.Header, parts
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type"))
		read(kind, p.Header.Get("Content-Transfer-Encoding"), p)
	}
}

func TestEmail_SendsMessage(t *testing.T) {
	box := newMailbox(t, nil)
	h := handler(t, Options{SMTP: "smtp://" + box.addr})
	j := job(map[string]any{
		"to": []string{"Bob Ö. <bob@example.org>", "carol@bücher.example"}, "cc": "dave@example.org", "bcc": []string{"eve@example.org", "bob@example.org"},
		"reply_to": "help@example.com", "subject": "Grüße, 你好", "text": "Hi\n.dot\n..two\nÄ=", "html": "<p>Hi Ä</p>",
		"headers": map[string]string{"list-unsubscribe": "<https://example.com/u?a=b>", "X-Campaign": "spring"},
	})
	result, err := h.Handle(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	got := box.got(t)[0]
	if want := []string{"bob@example.org", "carol@xn--bcher-kva.example", "dave@example.org", "eve@example.org"}; !slices.Equal(got.to, want) || got.from != "shop@example.com" || got.utf8 {
		t.Errorf("envelope %+v", got)
	}
	header, parts := parsed(t, got.data)
	var decoder mime.WordDecoder
	for name, want := range map[string]string{
		"From": `"The Shop" <shop@example.com>`, "To": "Bob Ö. <bob@example.org>, <carol@xn--bcher-kva.example>", "Cc": "<dave@example.org>",
		"Reply-To": "<help@example.com>", "Subject": "Grüße, 你好", "List-Unsubscribe": "<https://example.com/u?a=b>", "X-Campaign": "spring",
		"Mime-Version": "1.0", "Message-Id": "<" + messageID("g1/j1", "example.com") + ">",
	} {
		if text, err := decoder.DecodeHeader(header.Get(name)); err != nil || text != want || len(header[name]) != 1 {
			t.Errorf("%s: %q, %v; want %q", name, header[name], err, want)
		}
	}
	if date, err := header.Date(); err != nil || time.Since(date).Abs() > time.Minute {
		t.Errorf("Date: %s, %v", header.Get("Date"), err)
	}
	if header.Get("Bcc") != "" || strings.Contains(got.data, "eve@") {
		t.Error("bcc is in the message")
	}
	if parts["text/plain"] != "Hi\r\n.dot\r\n..two\r\nÄ=" || parts["text/html"] != "<p>Hi Ä</p>" {
		t.Errorf("%q", parts)
	}
	if want := fmt.Sprintf(`{"message_id":"%s","reply":"`, messageID("g1/j1", "example.com")); !strings.HasPrefix(string(result), want) {
		t.Errorf("%s", result)
	}
	for body, kind := range map[string]string{"text": "text/plain", "html": "text/html"} {
		fields := map[string]any{"text": nil, "html": nil}
		fields[body] = "alone"
		if _, err := h.Handle(t.Context(), job(fields)); err != nil {
			t.Fatal(err)
		}
		all := box.got(t)
		if _, parts := parsed(t, all[len(all)-1].data); len(parts) != 1 || parts[kind] != "alone" {
			t.Errorf("%s alone: %q", body, parts)
		}
	}
}

// All runs of a job have the same Message-ID; two jobs have different ones.
func TestMessageID_IsSameForEachRun(t *testing.T) {
	a := messageID("g1/j1", "example.com")
	if a != messageID("g1/j1", "example.com") || a == messageID("g1/j2", "example.com") || len(a) != 32+len("@example.com") {
		t.Error(a)
	}
}

func TestEmail_RefusesBadPayload(t *testing.T) {
	h := handler(t, Options{SMTP: "smtp://127.0.0.1:1"}) // nobody is called
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprintf("a%d@example.org", i)
	}
	for want, payload := range map[string]string{
		`the payload: EOF`:                                    ``,
		`the payload: \ud800 at byte 28 is half`:              `{"to":"a@b.example","text":"\ud800"}`,
		`the payload: more than one JSON value`:               `{"to":"a@b.example","text":"x"} {}`,
		`the payload: json: unknown field "bc"`:               `{"bc":"a@b.example"}`,
		`the payload: subject: must not be a number`:          `{"subject":1}`,
		`the payload: json: cannot unmarshal array into`:      `[]`,
		`to: no recipient; give to, cc or bcc`:                `{"subject":"s","text":"t"}`,
		`to[0]: empty; give an address`:                       `{"to":""}`,
		`to[1]: "nobody" is not an address`:                   `{"to":["a@b.example","nobody"]}`,
		`cc[0]: "a@b.example, c@d.example" is not`:            `{"to":"a@b.example","cc":"a@b.example, c@d.example"}`,
		`bcc[0]: "@b.example" is not an address`:              `{"bcc":["@b.example"]}`,
		`to[0]: has the control character U+000D`:             `{"to":"a@b.example\r\nRCPT TO:<x@y.example>"}`,
		`to[0]: has the control character U+000A`:             `{"to":"=?utf-8?q?a=0ABcc=3A_x=40y?= <a@b.example>"}`,
		`to[0]: "a@b_c.example" is not an address: its`:       `{"to":"a@b_c.example"}`,
		`to[0]: "` + strings.Repeat("a", 65) + `@b.ex" is`:    `{"to":"` + strings.Repeat("a", 65) + `@b.ex"}`,
		`to: 101 recipients with cc and bcc; at most 100`:     `{"to":["` + strings.Join(many, `","`) + `"]}`,
		`reply_to: "x" is not an address`:                     `{"to":"a@b.example","reply_to":"x"}`,
		`subject: has the control character U+000A`:           `{"to":"a@b.example","subject":"a\nBcc: x@y.example"}`,
		`subject: has the control character U+2028`:           `{"to":"a@b.example","subject":"a\u2028b"}`,
		`subject: 2001 bytes; at most 2000`:                   `{"to":"a@b.example","subject":"` + strings.Repeat("x", 2001) + `"}`,
		`subject: more than 800 characters without a blank`:   `{"to":"a@b.example","subject":"` + strings.Repeat("x", 801) + `"}`,
		`to[0]: "\"a b\"@c.example" has a blank before the @`: `{"to":"\"a b\"@c.example"}`,
		`text: empty, and so is html; give one of them`:       `{"to":"a@b.example","subject":"s"}`,
		`headers."Bcc": a job cannot set this header`:         `{"to":"a@b.example","text":"t","headers":{"Bcc":"x@y.example"}}`,
		`headers."From": a job cannot set this header`:        `{"to":"a@b.example","text":"t","headers":{"From":"x@y.example"}}`,
		`headers."X-": a job cannot set this header`:          `{"to":"a@b.example","text":"t","headers":{"X-":"1"}}`,
		`headers."X-A: b\r\nBcc": a job cannot set this`:      `{"to":"a@b.example","text":"t","headers":{"X-A: b\r\nBcc":"1"}}`,
		`headers.X-A: has the control character U+000D`:       `{"to":"a@b.example","text":"t","headers":{"x-a":"b\r\nBcc: c"}}`,
		`headers.X-A: given twice`:                            `{"to":"a@b.example","text":"t","headers":{"x-a":"b","X-A":"c"}}`,
	} {
		_, err := h.Handle(t.Context(), &bulk.Job{Payload: []byte(payload), IdempotencyKey: "k"})
		if outcome(err) != "permanent bad_payload" || !strings.HasPrefix(err.Error(), "bad_payload: "+want) {
			t.Errorf("%.60s\n got %v\nwant %s", payload, err, want)
		}
	}
}

// A header is folded at blanks, and never into a line of blanks alone: some mail readers take such a line for the end of the header.
func TestCompose_FoldsHeadersAtBlanks(t *testing.T) {
	h := handler(t, Options{SMTP: "smtp://127.0.0.1:1"})
	word := strings.Repeat("l", 100)
	for _, text := range []string{word + "  " + word, word + "   " + word, " " + word + "     ", strings.Repeat(" ", 300) + word, strings.Repeat("  x", 100)} {
		l, err := h.compose(job(map[string]any{"subject": text, "headers": map[string]string{"X-A": text}, "to": `"` + text + `" <bob@example.org>`}), time.Unix(1767323045, 0))
		if err != nil {
			t.Fatal(err)
		}
		checkLetter(t.Errorf, l)
		m, err := netmail.ReadMessage(bytes.NewReader(l.body))
		if err != nil || m.Header.Get("Subject") != strings.Join(strings.Fields(text), " ") {
			t.Errorf("%q: %v, %q", text, err, m.Header)
		}
	}
}

// written are the headers that a message may have.
func written(name string) bool {
	return slices.Contains([]string{"From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-Id", "Mime-Version", "Content-Type",
		"Content-Transfer-Encoding"}, name) || allowedHeader(name)
}

// checkLetter checks what every payload must leave true: the message has only the intended headers, each once, and only the intended recipients.
func checkLetter(fatalf func(string, ...any), l *letter) {
	m, err := netmail.ReadMessage(bytes.NewReader(l.body))
	if err != nil {
		fatalf("%v in\n%s", err, l.body)
		return
	}
	for name, values := range m.Header {
		if !written(name) || len(values) != 1 {
			fatalf("header %s: %q in\n%s", name, values, l.body)
		}
	}
	head, _, _ := bytes.Cut(l.body, []byte("\r\n\r\n"))
	if bytes.ContainsAny(bytes.ReplaceAll(head, []byte("\r\n"), nil), "\r\n\x00") {
		fatalf("a bare CR, LF or NUL in the header:\n%q", head)
	}
	for _, row := range strings.Split(string(head), "\r\n") {
		if strings.TrimSpace(row) == "" || len(row) > 998 {
			fatalf("a header line of blanks alone, or of more than 998 bytes:\n%q", head)
		}
	}
	for _, to := range append([]string{l.from}, l.recipients...) {
		if strings.ContainsAny(path(to), "\r\n\x00") || strings.Count(path(to), "@") < 1 {
			fatalf("recipient %q", to)
		}
	}
}

// Text with line ends and header-like lines in every field adds no header and no recipient.
func TestCompose_PreventsHeaderInjection(t *testing.T) {
	h := handler(t, Options{SMTP: "smtp://127.0.0.1:1"})
	piece := rapid.SampledFrom([]string{"a", "Ä", " ", "\r\n", "\n", "\r", "\x00", "\u2028", "\u0085", ":", "Bcc: x@evil.example", "<x@evil.example>", ",", "\"", "\\", "(", ")",
		"=?utf-8?q?=0D=0ABcc:_x?=", "@", ".", "b@example.org", strings.Repeat("long ", 40), strings.Repeat("l", 100), strings.Repeat("Ä", 100), "  ", strings.Repeat(" ", 100), "\r\n.\r\n", "\t"})
	text := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(t, "pieces"), "") })
	rapid.Check(t, func(t *rapid.T) {
		fields := map[string]any{"subject": text.Draw(t, "subject"), "text": text.Draw(t, "text"), "html": text.Draw(t, "html")}
		if rapid.Bool().Draw(t, "other address") {
			fields["to"] = text.Draw(t, "to")
		}
		if rapid.Bool().Draw(t, "reply") {
			fields["reply_to"] = text.Draw(t, "reply_to")
		}
		if rapid.Bool().Draw(t, "header") {
			fields["headers"] = map[string]string{"X-" + text.Draw(t, "name"): text.Draw(t, "value")}
		}
		l, err := h.compose(job(fields), time.Unix(1767323045, 0))
		if err != nil {
			return
		}
		checkLetter(t.Fatalf, l)
		if len(l.recipients) != 1 {
			t.Fatalf("recipients %q", l.recipients)
		}
	})
}

func FuzzCompose(f *testing.F) {
	for _, seed := range []string{
		`{"to":"a@b.example","subject":"s","text":"t"}`, `{"to":["A <a@b.example>"],"cc":"c@d.example","bcc":[],"html":"<p>","reply_to":"r@s.example"}`,
		`{"to":"\"a\\\"b\"@c.example","text":"t","headers":{"X-A":"b","List-Id":"<l.example>"}}`, `{"to":"a@b.example","subject":"=?utf-8?q?=0A?=","text":"."}`,
		`{"to":"=?utf-8?b?DQo=?= <a@b.example>","text":"t"}`, `{"to":"ä@ü.example","text":"t"}`, `{"to":"a@[127.0.0.1]","text":"t"}`, `{`, `null`, `{"to":null,"text":"t"}`,
	} {
		f.Add([]byte(seed))
	}
	h, err := New(Options{SMTP: "smtp://127.0.0.1:1", From: "shop@example.com"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := h.compose(&bulk.Job{Payload: raw, IdempotencyKey: "k"}, time.Unix(1767323045, 0))
		if err == nil {
			checkLetter(t.Fatalf, l)
		}
	})
}
