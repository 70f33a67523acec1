package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Options are processors.<Name> of the configuration.
type Options struct {
	Name       string            // the job type, for errors that name the setting; "": webhook
	URL        string            // http or https; may be private, since the operator configures it
	Secret     []byte            // signs each request; empty: unsigned
	Timeout    time.Duration     // of one request and response; 0: 10 s
	Headers    map[string]string // sent with each request
	MaxResult  int               // bytes of a response kept as the result; 0: none
	MaxPerHost int               // connections, each with one request at a time; 0: outbound.DefaultMaxPerHost
	TLS        *tls.Config       // additional roots; nil: the system's
}

// Handler is a bulk.Handler that posts jobs.
type Handler struct {
	o      Options
	host   string
	header http.Header
	client *http.Client
}

var _ bulk.Handler = (*Handler)(nil)

// New checks o. Its error names each invalid setting.
func New(o Options) (*Handler, error) {
	o.Name = cmp.Or(o.Name, "webhook")
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	var problems []error
	problem := func(setting, format string, args ...any) {
		problems = append(problems, fmt.Errorf("processors."+o.Name+"."+setting+": "+format, args...))
	}
	h := &Handler{header: http.Header{}}
	if o.URL == "" {
		problem("url", "empty; give the http or https URL that takes the jobs")
	} else if u, err := outbound.ParseURL(o.URL); err != nil {
		problem("url", "%w", err)
	} else {
		h.host = u.Host
	}
	if o.Timeout < 0 {
		problem("timeout", "%s is below 0", o.Timeout)
	}
	if o.MaxResult < 0 {
		problems = append(problems, fmt.Errorf("limits.result: %d is below 0", o.MaxResult))
	}
	for name, value := range o.Headers {
		switch name = textproto.CanonicalMIMEHeaderKey(name); {
		case !httpguts.ValidHeaderFieldName(name):
			problem("headers", "%q is not a header's name", name)
		case reserved(name):
			problem("headers", "%s is set by the worker itself; leave it out", name)
		case !httpguts.ValidHeaderFieldValue(value):
			problem("headers", "the value of %s has characters that a header may not have", name)
		default:
			h.header.Set(name, value)
		}
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(problems...)
	}
	h.o = o
	h.client = outbound.NewClient(outbound.Options{MaxPerHost: o.MaxPerHost, TLS: o.TLS})
	return h, nil
}

// reserved reports whether a header describes the request or the connection.
func reserved(name string) bool {
	switch name {
	case "Idempotency-Key", "Content-Type", "Content-Length", "Content-Encoding", "Host", "Connection", "Keep-Alive",
		"Transfer-Encoding", "Te", "Trailer", "Upgrade", "Expect", "Proxy-Connection":
		return true
	}
	return strings.HasPrefix(name, "X-Bulk-")
}

// Close closes idle connections; running requests go on.
func (h *Handler) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

// Handle posts the job and interprets the response, see docs/handlers.md.
func (h *Handler) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, h.o.Timeout)
	defer cancel()
	header := h.header.Clone()
	header.Set("X-Bulk-Job", visible(job.ID))
	header.Set("X-Bulk-Group", job.Group)
	header.Set("X-Bulk-Tenant", job.Tenant)
	header.Set("X-Bulk-Attempt", strconv.FormatInt(job.Attempt, 10))
	header.Set("X-Bulk-Fence", strconv.FormatInt(job.Fence, 10))
	header.Set("Idempotency-Key", idempotencyKey(job.IdempotencyKey))
	end := tracing.Call(ctx, h.host, header)
	answer, err := outbound.Post(ctx, h.client, outbound.Request{
		URL: h.o.URL, Header: header, Body: job.Payload, Secret: h.o.Secret, MaxAnswer: max(int64(h.o.MaxResult)+1, excerptMax), // one more byte detects a longer one
	})
	if err != nil {
		end(0, err)
		return nil, h.unanswered(ctx, err)
	}
	end(answer.Status, nil)
	return h.read(answer)
}

// visible returns s with percent signs and all bytes except visible ASCII percent-encoded: some servers respond 400
// to headers with others.
func visible(s string) string {
	if !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || c == '%' }) {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// maxKey is the longest Idempotency-Key that receivers commonly store.
const maxKey = 255

// idempotencyKey returns the value of the header: the end of a long key is replaced by a hash of the whole key.
func idempotencyKey(key string) string {
	text := visible(key)
	if len(text) <= maxKey {
		return text
	}
	sum := sha256.Sum256([]byte(key))
	hash := hex.EncodeToString(sum[:])
	return text[:maxKey-1-len(hash)] + "-" + hash
}

// read returns the job's result or error for a response.
func (h *Handler) read(a *outbound.Answer) ([]byte, error) {
	code := "http_" + strconv.Itoa(a.Status)
	err := fmt.Errorf("%s responded with %d %s%s", h.host, a.Status, http.StatusText(a.Status), excerpt(a.Body))
	switch {
	case a.Status >= 200 && a.Status < 300:
		return bulk.Fitting(a.Body, h.o.MaxResult), nil
	case a.Status == http.StatusTooManyRequests && a.RetryAfter >= time.Second:
		return nil, bulk.BusyGroup(a.RetryAfter, err)
	case a.Status == http.StatusTooManyRequests:
		return nil, bulk.Busy(a.RetryAfter, err)
	case a.Status == http.StatusServiceUnavailable:
		return nil, bulk.Down(bulk.Busy(a.RetryAfter, err))
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusProxyAuthRequired || a.Status == http.StatusBadGateway || a.Status == http.StatusGatewayTimeout:
		return nil, bulk.Down(bulk.FailAfter(code, a.RetryAfter, err))
	case a.Status >= 400 && a.Status < 500 && !passing(a.Status):
		return nil, bulk.Permanent(code, err)
	case a.Status >= 300 && a.Status < 400:
		// Often a maintenance page, so the job is retried.
		return nil, bulk.Fail(code, fmt.Errorf("%s responded with %d, a redirect that is not followed; if it is intended, set processors.%s.url to its target",
			h.host, a.Status, h.o.Name))
	}
	return nil, bulk.FailAfter(code, a.RetryAfter, err)
}

// passing reports whether a 4xx probably concerns the receiver or the network rather than the job: a rotated token, a
// firewall rule, a route missing during a deployment, a timeout.
func passing(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooEarly:
		return true
	}
	return false
}

// excerptMax is how many bytes of an error response are shown.
const excerptMax = 200

// excerpt returns the beginning of a response for the job's error.
func excerpt(body []byte) string {
	text := strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(body[:min(len(body), excerptMax)]), "")))
	if text == "" {
		return ""
	}
	return ": " + text
}
