package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// headers of a request; values are sent unchanged.
type headers map[string]string

// asBrowser is the header with which a browser requests a page.
var asBrowser = headers{
	"Accept":         "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
	"Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none",
	"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
}

// client is a visitor with its own address, with or without cookies.
type client struct {
	t    testing.TB
	http *http.Client
	ip   string // for X-Forwarded-For, as a trusted proxy sends it; empty: none
	host string // for Host; empty: the address

	gateways []*gateway // with the secrets that they must not log
	lenient  bool       // the responses come from an origin, or are for operators
}

var transport = &http.Transport{
	MaxIdleConnsPerHost: 64, DisableCompression: true,
	DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
}

// newClient returns an API client, which keeps no cookies.
func newClient(t testing.TB, gateways ...*gateway) *client {
	return &client{t: t, gateways: gateways, http: &http.Client{
		Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// newBrowser returns a client that keeps cookies.
func newBrowser(t testing.TB, gateways ...*gateway) *client {
	c := newClient(t, gateways...)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.http.Jar = jar
	return c
}

// cookie returns the value of a cookie of the browser, empty without one.
func (c *client) cookie(g *gateway, name string) string {
	for _, ck := range c.http.Jar.Cookies(&url.URL{Scheme: "http", Host: g.addr, Path: "/"}) {
		if ck.Name == name {
			return ck.Value
		}
	}
	return ""
}

// answer is a whole response.
type answer struct {
	t      testing.TB
	asked  string
	code   int
	header http.Header
	body   string
}

// ask sends a request to the visitors' socket of a gateway and fails the test if no response arrives.
func (c *client) ask(g *gateway, method, target, body string, h ...headers) answer {
	c.t.Helper()
	a, err := c.try(g, method, target, body, h...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, target, err)
	}
	return a
}

// lax returns a client for a site that does not mark its responses as its own.
func (c *client) lax() *client {
	l := *c
	l.lenient = true
	return &l
}

func (c *client) get(g *gateway, target string, h ...headers) answer {
	c.t.Helper()
	return c.ask(g, http.MethodGet, target, "", h...)
}

// try is like ask, but returns an error, for tests in which a gateway may die.
func (c *client) try(g *gateway, method, target, body string, h ...headers) (answer, error) {
	return c.tryAt(g.addr, method, target, body, h...)
}

func (c *client) tryAt(addr, method, target, body string, h ...headers) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr, reader)
	if err != nil {
		return answer{}, err
	}
	path, query, _ := strings.Cut(target, "?")
	r.URL.RawQuery = query
	r.URL.Path = path
	if strings.Contains(path, "%") || strings.HasPrefix(path, "//") {
		r.URL.Path = ""
		r.URL.Opaque = "//" + addr + path
		r.URL.RawQuery = query
	}
	if c.ip != "" {
		r.Header.Set("X-Forwarded-For", c.ip)
	}
	r.Host = c.host
	for _, set := range h {
		for name, value := range set {
			if name == "Host" {
				r.Host = value
				continue
			}
			r.Header.Set(name, value)
		}
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{t: c.t, asked: method + " " + target, code: resp.StatusCode, header: resp.Header, body: string(text)}
	if !c.lenient {
		c.inspect(a)
	}
	return a, nil
}

// inside matches internal details, which no response to a visitor may contain.
var inside = regexp.MustCompile(`dial (tcp|unix)|redis\.sock|goroutine \d|\.go:\d|deadline exceeded|connection refused|i/o timeout|unexpected EOF|NOSCRIPT |user_script|runtime error`)

// inspect checks the rules for every response of the gateway itself, and records its secrets.
func (c *client) inspect(a answer) {
	c.t.Helper()
	for _, line := range a.header.Values("Set-Cookie") {
		pair, _, _ := strings.Cut(line, ";")
		if name, value, _ := strings.Cut(pair, "="); strings.Contains(name, "wr_") {
			c.secret(value)
		}
	}
	c.secret(a.header.Get("X-Waiting-Room-Pass"))
	if a.header.Get("X-Origin") != "" {
		return
	}
	if found := inside.FindString(a.body); found != "" {
		c.t.Errorf("%s: the answer tells of the inside (%q): %s", a.asked, found, a.body)
	}
	published := strings.HasSuffix(a.asked, "/jwks.json") || strings.HasSuffix(a.asked, "/revoked") // the same for every client
	if a.code != http.StatusSwitchingProtocols && !published && a.header.Get("Cache-Control") != "no-store" {
		c.t.Errorf("%s: %d with Cache-Control %q, want no-store", a.asked, a.code, a.header.Get("Cache-Control"))
	}
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		var s status
		if json.Unmarshal([]byte(a.body), &s) == nil {
			c.secret(s.Token)
			c.secret(s.Pass)
		}
	}
}

func (c *client) secret(s string) {
	for _, g := range c.gateways {
		g.secret(s)
	}
}

// want fails the test if the status differs.
func (a answer) want(code int) answer {
	a.t.Helper()
	if a.code != code {
		a.t.Fatalf("%s: %d, want %d\n%v\n%s", a.asked, a.code, code, a.header, tail(a.body))
	}
	return a
}

// status is the status object.
type status struct {
	Room         string          `json:"room"`
	State        string          `json:"state"`
	Position     *int64          `json:"position"`
	Ahead        *int64          `json:"ahead"`
	Waiting      *int64          `json:"waiting"`
	ETA          json.RawMessage `json:"eta"`
	RefreshAfter *float64        `json:"refresh_after"`
	JoinedAt     string          `json:"joined_at"`
	Message      *string         `json:"message"`
	Paused       *bool           `json:"paused"`
	Reason       string          `json:"reason"`
	AdmittedAt   string          `json:"admitted_at"`
	ExpiresAt    string          `json:"expires_at"`
	Pass         string          `json:"pass"`
	Token        string          `json:"token"`
	OpensAt      string          `json:"opens_at"`
	ClosesAt     string          `json:"closes_at"`
}

// String returns the response as a failing test prints it.
func (s status) String() string {
	n := func(p *int64) string {
		if p == nil {
			return "?"
		}
		return strconv.FormatInt(*p, 10)
	}
	return fmt.Sprintf("{%s %s of %s, reason %q, admitted_at %q, pass %t, token %t}", s.State, n(s.Position), n(s.Waiting), s.Reason, s.AdmittedAt, s.Pass != "", s.Token != "")
}

// status reads the status object and checks the members that all status objects have.
func (a answer) status() status {
	a.t.Helper()
	s, err := a.parse()
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

var stamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)

func (a answer) parse() (status, error) {
	var s status
	if got := a.header.Get("Content-Type"); got != "application/json" {
		return s, fmt.Errorf("%s: %d with Content-Type %q, want application/json\n%s", a.asked, a.code, got, tail(a.body))
	}
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		return s, fmt.Errorf("%s: %w\n%s", a.asked, err, a.body)
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.Contains(a.body, ":null") {
		bad("a field is null")
	}
	if s.Message == nil || s.Paused == nil {
		bad("message and paused are always there")
	}
	if !strings.Contains(" waiting admitted active expired lapsed ended prequeue rejected ", " "+s.State+" ") {
		bad("unknown state %q", s.State)
	}
	for name, value := range map[string]string{"joined_at": s.JoinedAt, "admitted_at": s.AdmittedAt, "expires_at": s.ExpiresAt} {
		if value != "" && !stamp.MatchString(value) {
			bad("%s %q is not RFC 3339 UTC with microseconds", name, value)
		}
	}
	if s.Position != nil && (*s.Position < 1 || s.Ahead == nil || *s.Ahead != *s.Position-1 || s.Waiting == nil || *s.Waiting < *s.Position) {
		bad("position, ahead and waiting do not agree")
	}
	if s.Position == nil && s.Ahead != nil {
		bad("ahead without position")
	}
	if len(s.ETA) > 0 {
		var eta struct{ Seconds, Low, High *float64 }
		if json.Unmarshal(s.ETA, &eta) != nil || eta.Seconds == nil || eta.Low == nil || eta.High == nil ||
			*eta.Low > *eta.Seconds || *eta.Seconds > *eta.High || *eta.Low < 0 {
			bad("eta %s", s.ETA)
		}
	}
	if s.Pass != "" && (s.AdmittedAt == "" || s.ExpiresAt == "") {
		bad("a pass without admitted_at and expires_at")
	}
	if s.State == "waiting" && (s.RefreshAfter == nil || *s.RefreshAfter < 1 || *s.RefreshAfter > 70 || s.JoinedAt == "") {
		bad("waiting without a sensible refresh_after or joined_at")
	}
	if len(errs) > 0 {
		return s, fmt.Errorf("%s: %w\n%s", a.asked, errors.Join(errs...), a.body)
	}
	return s, nil
}

// problem checks that the answer is problem+json with a status and a code.
func (a answer) problem(status int, code string) answer {
	a.t.Helper()
	a.want(status)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		a.t.Errorf("%s: Content-Type %q, want application/problem+json", a.asked, got)
	}
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		a.t.Fatalf("%s: %v\n%s", a.asked, err, a.body)
	}
	if p.Status != status || p.Title == "" || p.Type == "" || p.Code == "" || code != "" && p.Code != code {
		a.t.Errorf("%s: problem %+v, want status %d and code %q", a.asked, p, status, code)
	}
	return a
}

// setCookie returns the attributes of a cookie that the response sets.
func (a answer) setCookie(name string) (http.Cookie, string) {
	a.t.Helper()
	for _, line := range a.header.Values("Set-Cookie") {
		ck, err := http.ParseSetCookie(line)
		if err == nil && ck.Name == name {
			return *ck, line
		}
	}
	a.t.Fatalf("%s: no cookie %s in %q", a.asked, name, a.header.Values("Set-Cookie"))
	return http.Cookie{}, ""
}

// has checks header fields; a value that ends with * is a prefix.
func (a answer) has(h headers) answer {
	a.t.Helper()
	for name, want := range h {
		got := a.header.Get(name)
		beginning, open := strings.CutSuffix(want, "*")
		if got != want && !(open && strings.HasPrefix(got, beginning) && got != "") {
			a.t.Errorf("%s: %d with %s %q, want %q", a.asked, a.code, name, got, want)
		}
	}
	return a
}

// waits checks the headers and body of a response to a visitor who has to wait.
func (a answer) waits(state string) answer {
	a.t.Helper()
	a.has(headers{"Cache-Control": "no-store", "X-Waiting-Room": state, "Retry-After": "*"})
	if vary := a.header.Get("Vary"); !strings.Contains(vary, "Cookie") {
		a.t.Errorf("%s: Vary %q, want Cookie in it", a.asked, vary)
	}
	var seconds int
	if _, err := fmt.Sscanf(a.header.Get("Retry-After"), "%d", &seconds); err != nil || seconds < 1 || seconds > 120 {
		a.t.Errorf("%s: Retry-After %q, want a few seconds", a.asked, a.header.Get("Retry-After"))
	}
	return a
}

// claims are the claims of a token.
type claims struct {
	Iss  string `json:"iss"`
	Aud  any    `json:"aud"`
	Jti  string `json:"jti"`
	Iat  int64  `json:"iat"`
	Exp  int64  `json:"exp"`
	Ord  int64  `json:"ord"`
	Seen int64  `json:"seen"`
	Ep   any    `json:"ep"`
	Fn   any    `json:"fn"`
	Sid  string `json:"sid"`
}

func decode(t testing.TB, token string) (header map[string]any, c claims) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no JWT", token)
	}
	for i, into := range []any{&header, &c} {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Fatalf("part %d of %q: %v", i, token, err)
		}
	}
	return header, c
}

// join takes a ticket.
func (c *client) join(g *gateway, h ...headers) status {
	c.t.Helper()
	return c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "", h...).want(http.StatusCreated).status()
}

// poll requests the status of a ticket.
func (c *client) poll(g *gateway, token string) status {
	c.t.Helper()
	return c.get(g, "/.waiting-room/sale/status", headers{"X-Waiting-Room-Token": token}).want(http.StatusOK).status()
}

// raw sends bytes to the visitors' socket and reads until the connection is closed or the deadline has passed.
func raw(t testing.TB, addr, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil && len(text) == 0 {
		t.Fatal(err)
	}
	return string(text)
}

func itoa(n int) string { return strconv.Itoa(n) }
