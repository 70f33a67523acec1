package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const now = 1_780_000_000

var rules = &token.AccountRules{Claim: "sub"}

type key struct {
	id      string
	private *ecdsa.PrivateKey
}

func newKey(t testing.TB, id string) key {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key{id, k}
}

func (k key) jwk(t testing.TB) string {
	t.Helper()
	p, err := k.private.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":%q,"x":%q,"y":%q}`, k.id, b64(p[1:33]), b64(p[33:]))
}

func (k key) sign(t testing.TB, account string, exp int64) []byte {
	t.Helper()
	tok := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"sub": account, "exp": exp})
	tok.Header["kid"] = k.id
	raw, err := tok.SignedString(k.private)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(raw)
}

// endpoint stands in for a site's server, without a socket, so that tests can use synctest.
type endpoint struct {
	answer atomic.Pointer[func() (int, string)]
	asked  atomic.Int64
}

func (e *endpoint) RoundTrip(*http.Request) (*http.Response, error) {
	e.asked.Add(1)
	code, body := (*e.answer.Load())()
	if code == 0 {
		return nil, errors.New("refused")
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}, nil
}

func (e *endpoint) serve(f func() (int, string)) { e.answer.Store(&f) }

func (e *endpoint) set(keys ...string) {
	e.serve(func() (int, string) { return 200, `{"keys":[` + strings.Join(keys, ",") + `]}` })
}

func run(t *testing.T, e *endpoint) *Keys {
	t.Helper()
	k := New("https://shop.example/jwks", slog.New(slog.DiscardHandler), nil)
	k.client.Transport = e
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

func (k *Keys) is(t *testing.T, raw []byte, want string) {
	t.Helper()
	if account, err := k.Account(t.Context(), raw, rules, now); err != nil || account != want {
		t.Fatalf("%q, %v; want %q", account, err, want)
	}
}

func TestKeys_UnknownKeysDoNotFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newKey(t, "1"), newKey(t, "2")
		e := &endpoint{}
		e.set(one.jwk(t))
		k := run(t, e)
		ann := one.sign(t, "ann", now+60)
		k.is(t, ann, "ann") // it waits for the first fetch
		e.set(one.jwk(t), two.jwk(t))
		<-time.After(apart)
		k.is(t, two.sign(t, "bob", now+60), "bob") // the new key, with the very request that shows it
		if n := e.asked.Load(); n != 2 {
			t.Fatalf("%d fetches, want 2", n)
		}
		began := time.Now()
		for i := range 50 { // a flood of unknown keys
			if _, err := k.Account(t.Context(), newFlood(one, i).sign(t, "eve", now+60), rules, now); !errors.Is(err, token.ErrKey) {
				t.Fatal(err)
			}
		}
		if n := e.asked.Load(); n != 2 || time.Since(began) > 0 {
			t.Errorf("%d fetches, want 2; the flood waited %s", n, time.Since(began))
		}
		<-time.After(refresh)
		synctest.Wait()
		if n := e.asked.Load(); n != 3 {
			t.Errorf("%d fetches after the regular one, want 3", n)
		}
		e.set(two.jwk(t))
		<-time.After(refresh)
		synctest.Wait()
		if _, err := k.Account(t.Context(), ann, rules, now); !errors.Is(err, token.ErrKey) { // though it was remembered
			t.Errorf("a key that was taken back: %v", err)
		}
	})
}

func newFlood(k key, i int) key { return key{fmt.Sprint("flood", i), k.private} }

func TestKeys_StayValidWhileFetchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newKey(t, "1")
		e := &endpoint{}
		large := strings.Repeat(" ", sizeLimit+1)
		for _, broken := range []func() (int, string){
			func() (int, string) { return 0, "" },
			func() (int, string) { return 500, "" },
			func() (int, string) { return 200, "<html>" },
			func() (int, string) { return 200, `{"keys":[]}` },
			func() (int, string) { return 200, large },
		} {
			e.serve(broken)
			k := run(t, e)
			synctest.Wait()
			if _, err := k.Account(t.Context(), one.sign(t, "ann", now+60), rules, now); !errors.Is(err, ErrNoKeys) {
				t.Fatalf("before the first fetch: %v", err)
			}
			e.set(one.jwk(t))
			<-time.After(retry)
			synctest.Wait()
			raw := one.sign(t, "ann", now+60)
			k.is(t, raw, "ann")
			e.serve(broken)
			<-time.After(2 * refresh)
			synctest.Wait()
			k.is(t, raw, "ann")
			k.is(t, one.sign(t, "bob", now+60), "bob")
		}
	})
}

func TestKeys_SlowEndpointDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newKey(t, "1")
		e := &endpoint{}
		hold := make(chan struct{})
		e.serve(func() (int, string) { <-hold; return 200, `{"keys":[` + one.jwk(t) + `]}` })
		k := run(t, e)
		began := time.Now()
		if _, err := k.Account(t.Context(), one.sign(t, "ann", now+60), rules, now); !errors.Is(err, ErrNoKeys) {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != patience {
			t.Errorf("waited %s, want %s", waited, patience)
		}
		close(hold)
		synctest.Wait()
		k.is(t, one.sign(t, "ann", now+60), "ann")
	})
}

// A remembered token is forgotten when it expires, when its key is removed and when the rules change.
func TestKeys_RememberTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newKey(t, "1")
		e := &endpoint{}
		e.set(one.jwk(t))
		k := run(t, e)
		raw := one.sign(t, "ann", now+60)
		for range 3 {
			k.is(t, raw, "ann")
		}
		if account, ok := k.Known(raw, rules, now); !ok || account != "ann" {
			t.Error("a good token is not remembered")
		}
		if _, err := k.Account(t.Context(), raw, rules, now+60+token.AccountLeeway); !errors.Is(err, token.ErrExpired) {
			t.Errorf("past its end: %v", err)
		}
		other := &token.AccountRules{Claim: "sub", Issuer: "https://other.example"}
		if _, err := k.Account(t.Context(), raw, other, now); !errors.Is(err, token.ErrClaims) {
			t.Errorf("by other rules: %v", err)
		}
		k.is(t, raw, "ann")
		bad := append([]byte(nil), raw...)
		if at := len(bad) - 10; bad[at] == 'A' {
			bad[at] = 'B'
		} else {
			bad[at] = 'A'
		}
		if _, err := k.Account(t.Context(), bad, rules, now); !errors.Is(err, token.ErrSignature) {
			t.Errorf("another signature: %v", err)
		}
	})
}

// An unusable key of a set is skipped and logged once. A set without a usable key is an error, and the cached keys stay valid.
func TestKeys_SkipUnusableKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newKey(t, "1"), newKey(t, "2")
		const bad = `{"kty":"RSA","kid":"bad","n":"AQAB","e":"AQAB"}`
		e := &endpoint{}
		e.set(bad, one.jwk(t))
		var log bytes.Buffer
		k := New("https://shop.example/jwks", slog.New(slog.NewTextHandler(&log, nil)), nil)
		k.client.Transport = e
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.Run(ctx) }()
		synctest.Wait()
		k.is(t, one.sign(t, "ann", now+60), "ann")
		<-time.After(2 * refresh)
		synctest.Wait()
		e.set(bad)
		<-time.After(2 * refresh)
		synctest.Wait()
		k.is(t, one.sign(t, "bob", now+60), "bob")
		e.set(bad, two.jwk(t))
		<-time.After(2 * refresh)
		synctest.Wait()
		k.is(t, two.sign(t, "eve", now+60), "eve")
		cancel()
		<-done
		if n := strings.Count(log.String(), "cannot be used"); n != 1 || !strings.Contains(log.String(), `\"bad\"`) {
			t.Errorf("%d lines, want 1 that names the key:\n%s", n, log.String())
		}
	})
}

// A real server, redirects included.
func TestKeys_Fetch(t *testing.T) {
	one := newKey(t, "1")
	hops := 3
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := len(r.URL.Path); n <= hops {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
			return
		}
		fmt.Fprintf(w, `{"keys":[%s]}`, one.jwk(t))
	}))
	defer s.Close()
	k := New(s.URL+"/", slog.New(slog.DiscardHandler), nil)
	if keys, err := k.fetch(t.Context()); err != nil || keys == nil {
		t.Errorf("%v", err)
	}
	hops = 4
	if _, err := k.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "more than three redirects") {
		t.Errorf("%v", err)
	}
}

func BenchmarkRemembered(b *testing.B) {
	one := newKey(b, "1")
	k := New("http://127.0.0.1", slog.New(slog.DiscardHandler), nil)
	keys, err := token.ParseAccountKeys([]byte(`{"keys":[` + one.jwk(b) + `]}`))
	if err != nil {
		b.Fatal(err)
	}
	k.current.Store(keys)
	raw := one.sign(b, "ann", now+60)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Account(b.Context(), raw, rules, now); err != nil {
			b.Fatal(err)
		}
	}
}
