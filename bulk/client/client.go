package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Defaults of Options, and bounds.
const (
	// DefaultPatience is how long one request is retried.
	DefaultPatience = 2 * time.Minute
	// maxAnswer bounds a response that is read whole.
	maxAnswer = 64 << 20
	// stallAfter is how long a connection may make no progress before it counts as broken.
	stallAfter = time.Minute
)

// Options of a Client. The zero value is valid.
type Options struct {
	// Token is sent as Authorization: Bearer.
	Token string
	// HTTP sends the requests; nil: a client of its own without an overall timeout, which would end long streams.
	HTTP *http.Client
	// UserAgent is "anteroom-bulk-client" unless set.
	UserAgent string
	// Patience is how long one request (of an upload: one chunk) is retried while the server cannot be reached or
	// responds 408, 429, 502, 503 or 504. 0: DefaultPatience; negative: no retries.
	Patience time.Duration
	// Compression is how chunks of jobs are sent; empty: as they are. A server of before this option rejects compressed lines.
	Compression Compression
	// OnRetry is called before each pause with its reason and length.
	OnRetry func(err error, pause time.Duration)
}

// Client is a client of one server. It may be used by multiple goroutines and needs no closing.
type Client struct {
	*connection
	groups
	uploads
	jobs
	limits
	schedules
}

// The methods of a Client, by what they concern.
type (
	groups    struct{ *connection }
	uploads   struct{ *connection }
	jobs      struct{ groups }
	limits    struct{ *connection }
	schedules struct{ *connection }
)

// connection sends requests.
type connection struct {
	base  *url.URL
	o     Options
	stall time.Duration // stallAfter

	firstEvent time.Duration
}

// New returns a client of the server at baseURL, such as http://127.0.0.1:8090. It does not connect yet.
func New(baseURL string, o Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("the server's URL %q: use http://host:port or https://host: %w", baseURL, errors.Unwrap(err))
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server's URL %q: use http://host:port or https://host", baseURL)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the server's URL %q: leave out query and fragment", baseURL)
	}
	if strings.ContainsAny(o.Token, "\r\n") {
		return nil, fmt.Errorf("the token contains a line break: trim the content of its file")
	}
	if err := o.Compression.check(); err != nil {
		return nil, err
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     30 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
		}}
	}
	o.UserAgent = cmp.Or(o.UserAgent, "anteroom-bulk-client")
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	c := &connection{base: u, o: o, stall: stallAfter, firstEvent: firstEvent}
	g := groups{c}
	return &Client{c, g, uploads{c}, jobs{g}, limits{c}, schedules{c}}, nil
}

// call is a request. All requests are safe to repeat.
type call struct {
	method string
	path   []string // segments, unescaped
	query  url.Values
	body   []byte
	ndjson bool
	coding Compression
	key    string // Idempotency-Key
	accept string
	// cursors is set if the lines of the response can have cursors.
	cursors bool
	stall   time.Duration // 0: the client's
}

func get(path ...string) call  { return call{method: http.MethodGet, path: path} }
func post(path ...string) call { return call{method: http.MethodPost, path: path} }

// with returns the call with a JSON body.
func (k call) with(v any) (call, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return k, fmt.Errorf("encode the request: %w", err)
	}
	k.body = body
	return k, nil
}

func (c *connection) url(k call) string {
	segments := make([]string, len(k.path))
	for i, s := range k.path {
		segments[i] = url.PathEscape(s)
		if s == "." || s == ".." {
			segments[i] = strings.ReplaceAll(s, ".", "%2E") // otherwise a path segment that servers resolve
		}
	}
	u := strings.TrimSuffix(c.base.String(), "/") + "/" + strings.Join(segments, "/")
	if len(k.query) > 0 {
		u += "?" + k.query.Encode()
	}
	return u
}

// do sends a call, with retries, and decodes the response into out.
func (c *connection) do(ctx context.Context, k call, out any) error {
	return c.retry(ctx, func() error { return c.ask(ctx, k, out) })
}

// fetch sends a call, with retries, and returns the object of the response. body is sent as JSON; nil: none is.
func fetch[T any](ctx context.Context, c *connection, k call, body any) (*T, error) {
	if body != nil {
		var err error
		if k, err = k.with(body); err != nil {
			return nil, err
		}
	}
	object := new(T)
	if err := c.do(ctx, k, object); err != nil {
		return nil, err
	}
	return object, nil
}

// ask sends a call once.
func (c *connection) ask(ctx context.Context, k call, out any) error {
	body, err := c.try(ctx, k)
	if err != nil {
		return err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	switch {
	case err != nil:
		return c.unreachable(err)
	case len(b) > maxAnswer:
		return fmt.Errorf("%s %s: the response is longer than %d MiB", k.method, c.url(k), maxAnswer>>20)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: not the response of a bulk worker: %w", k.method, c.url(k), err)
	}
	return nil
}

// try sends a call once. The caller closes the response's body, which fails when it stalls. A refusal is a *Problem.
func (c *connection) try(ctx context.Context, k call) (*stream, error) {
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	if k.ndjson && c.o.Compression != "" {
		k.coding = c.o.Compression
		body = bytes.NewReader(k.coding.compress(k.body))
	}
	return c.send(ctx, k, body)
}

func (c *connection) send(ctx context.Context, k call, body io.Reader) (*stream, error) {
	ctx, guard := newGuard(ctx, cmp.Or(k.stall, c.stall))
	switch b := body.(type) {
	case nil:
	case *bytes.Reader:
	// Its length is known, and net/http may repeat it on a connection that was just closed.
	default:
		body = &guarded{r: b, guard: guard}
	}
	r, err := http.NewRequestWithContext(ctx, k.method, c.url(k), body)
	if err != nil {
		guard.end()
		return nil, fmt.Errorf("%s %s: %w", k.method, c.url(k), err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if k.ndjson {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	if k.coding != "" {
		r.Header.Set("Content-Encoding", string(k.coding))
	}
	if k.key != "" {
		r.Header.Set("Idempotency-Key", k.key)
	}
	if k.accept != "" {
		r.Header.Set("Accept", k.accept)
	}
	if c.o.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	r.Header.Set("User-Agent", c.o.UserAgent)
	answer, err := c.o.HTTP.Do(r)
	if err != nil {
		defer guard.end()
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the URL is in the error already
		}
		return nil, c.unreachable(guard.explain(err))
	}
	guard.moved()
	s := &stream{ReadCloser: answer.Body, guard: guard, contentType: answer.Header.Get("Content-Type"), status: answer.StatusCode}
	if answer.StatusCode/100 != 2 {
		defer s.Close()
		return nil, readProblem(answer.StatusCode, answer.Header, s)
	}
	return s, nil
}

// newID returns a random id.
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}
