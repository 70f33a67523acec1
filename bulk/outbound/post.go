package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Request is a POST of JSON.
type Request struct {
	URL       string
	Header    http.Header // further headers; may be nil
	Body      []byte
	Secret    []byte // signs the body where it is not empty
	MaxAnswer int64  // bytes of the answer's body that are read
}

// Answer is what came back, whatever its status.
type Answer struct {
	Status     int
	RetryAfter time.Duration // 0: the server did not say
	Body       []byte        // at most MaxAnswer bytes
	TooLarge   bool          // there was more
}

// Post sends r and reads the answer; ctx bounds all of it. An error means that there is no whole answer; it names the host
// but not the URL, which may hold a secret.
//
// A request that met a kept connection just as the server closed it is sent again by net/http where r.Header has an
// Idempotency-Key.
func Post(ctx context.Context, client *http.Client, r Request) (*Answer, error) {
	u, err := ParseURL(r.URL)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	req.Header.Set("Content-Type", "application/json")
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "anteroom-bulkworker")
	}
	if len(r.Secret) > 0 {
		req.Header.Set(SignatureHeader, Sign(r.Secret, time.Now(), r.Body))
	}
	return Do(client, req, r.MaxAnswer)
}

// Do sends req and reads at most maxAnswer bytes of the answer's body. Errors are as Post's.
func Do(client *http.Client, req *http.Request, maxAnswer int64) (*Answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, Cause(req.URL, err)
	}
	return Read(resp, maxAnswer)
}

// Read takes an answer whose body is still to be read, and closes it.
func Read(resp *http.Response, maxAnswer int64) (*Answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, Cause(resp.Request.URL, fmt.Errorf("the answer, status %d, broke off: %w", resp.StatusCode, err))
	}
	a := &Answer{
		Status:     resp.StatusCode,
		RetryAfter: ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now()),
		Body:       body,
	}
	if int64(len(body)) > maxAnswer {
		a.Body, a.TooLarge = body[:maxAnswer], true
	}
	return a, nil
}

// Cause strips the URL from an error of net/http, as its path and query may hold a secret, and says which host was called.
func Cause(u *url.URL, err error) error {
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return fmt.Errorf("calling %s: %w", u.Host, err)
}

// IsTimeout says whether err is a time-out, of the context or the network.
func IsTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
