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
	Header    http.Header // additional headers; may be nil
	Body      []byte
	Secret    []byte // signs the body unless empty
	MaxAnswer int64  // most bytes to read of the response's body
}

// Answer is a response, whatever its status.
type Answer struct {
	Status     int
	RetryAfter time.Duration // 0: unspecified
	Body       []byte        // at most MaxAnswer bytes
	TooLarge   bool          // the body is longer
}

// Post sends r and reads the response; ctx bounds both. An error means that there is no complete response; it
// contains the host but not the URL, which may contain a secret.
//
// If r.Header has an Idempotency-Key, net/http repeats a request whose connection the server just closed.
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

// Do sends req and reads at most maxAnswer bytes of the response's body. Its errors are as those of Post.
func Do(client *http.Client, req *http.Request, maxAnswer int64) (*Answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, Cause(req.URL, err)
	}
	return Read(resp, maxAnswer)
}

// Read reads and closes the body of a response.
func Read(resp *http.Response, maxAnswer int64) (*Answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, Cause(resp.Request.URL, fmt.Errorf("the response, status %d, broke off: %w", resp.StatusCode, err))
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

// Cause removes the URL, which may contain a secret, from an error of net/http and adds the host.
func Cause(u *url.URL, err error) error {
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return fmt.Errorf("calling %s: %w", u.Host, err)
}

// IsTimeout reports whether err is a timeout of the context or the network.
func IsTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
