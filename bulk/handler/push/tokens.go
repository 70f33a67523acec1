package push

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

// tokens keeps the service account's access token. It requests a new one (RFC 7523: an assertion signed with the
// account's key) for all callers when at most a tenth of its life is left.
type tokens struct {
	config *jwt.Config
	client *http.Client

	turn    chan struct{} // guards the fields below
	current string
	until   time.Time
}

func newTokens(config *jwt.Config, client *http.Client) *tokens {
	return &tokens{config: config, client: client, turn: make(chan struct{}, 1)}
}

// checkKey returns an error for a key that the library cannot sign with.
func checkKey(key []byte) error {
	if block, _ := pem.Decode(key); block != nil {
		key = block.Bytes
	}
	if parsed, err := x509.ParsePKCS8PrivateKey(key); err == nil {
		if _, ok := parsed.(*rsa.PrivateKey); !ok {
			return errors.New("not an RSA key")
		}
		return nil
	}
	if _, err := x509.ParsePKCS1PrivateKey(key); err != nil {
		return errors.New("not a PEM private key")
	}
	return nil
}

// get returns a token, or the job's error. A caller that waits for another's request leaves when ctx ends.
func (t *tokens) get(ctx context.Context) (string, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", noAnswer(ctx, fmt.Errorf("waiting for an access token: %w", ctx.Err()))
	}
	if now := time.Now(); t.current != "" && now.Before(t.until) {
		return t.current, nil
	}
	asked := time.Now()
	bound := &http.Client{Transport: withContext{ctx, t.client.Transport}, CheckRedirect: t.client.CheckRedirect}
	token, err := t.config.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, bound)).Token()
	if err != nil {
		return "", tokenFailure(ctx, err)
	}
	if token.AccessToken == "" {
		return "", bulk.Fail("fcm_credentials", fmt.Errorf("%s responded without an access_token", t.config.TokenURL))
	}
	life := time.Hour
	if !token.Expiry.IsZero() {
		life = token.Expiry.Sub(asked)
	}
	t.current, t.until = token.AccessToken, asked.Add(life-life/10)
	return t.current, nil
}

// drop discards a refused token unless it was replaced already.
func (t *tokens) drop(ctx context.Context, refused string) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
		if t.current == refused {
			t.current = ""
		}
	case <-ctx.Done():
	}
}

func tokenFailure(ctx context.Context, err error) error {
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return noAnswer(ctx, fmt.Errorf("getting an access token: %w", err))
	}
	status := answer.Response.StatusCode
	err = fmt.Errorf("getting an access token: %s responded with %d: %.300s", answer.Response.Request.URL.Host, status, answer.Body)
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return bulk.Busy(outbound.ParseRetryAfter(answer.Response.Header.Get("Retry-After"), time.Now()), err)
	case status >= 400 && status < 500:
		return bulk.Fail("fcm_credentials", err)
	}
	return bulk.Fail("fcm_token_"+strconv.Itoa(status), err)
}

// withContext binds the library's requests to the caller's context.
type withContext struct {
	ctx  context.Context
	next http.RoundTripper
}

func (w withContext) RoundTrip(req *http.Request) (*http.Response, error) {
	return w.next.RoundTrip(req.WithContext(w.ctx))
}
