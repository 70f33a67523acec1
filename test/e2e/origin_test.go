package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// origin is a site that records its requests.
type origin struct {
	*httptest.Server
	t testing.TB

	mu     sync.Mutex
	seen   []seen
	answer http.HandlerFunc // nil: a small page
}

// seen is a request as the site received it.
type seen struct {
	method, uri, host, body string
	header                  http.Header
}

// newOrigin starts a site. At the end of the test it checks that no cookie or token of the waiting room reached the site.
func newOrigin(t testing.TB, answer http.HandlerFunc) *origin {
	t.Helper()
	o := &origin{t: t, answer: answer}
	o.Server = httptest.NewServer(o)
	t.Cleanup(func() {
		o.Close()
		for _, r := range o.requests() {
			o.inspect(r)
		}
	})
	return o
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = append(body, " (cut)"...)
	}
	o.mu.Lock()
	o.seen = append(o.seen, seen{r.Method, r.RequestURI, r.Host, string(body), r.Header.Clone()})
	o.mu.Unlock()
	w.Header().Set("X-Origin", "yes")
	if o.answer != nil {
		o.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<!doctype html><title>The site</title><h1>Welcome</h1>")
}

// inspect fails the test if a request has a cookie or token of the waiting room.
func (o *origin) inspect(r seen) {
	for name, values := range r.header {
		if strings.HasPrefix(name, "X-Waiting-Room-") && name != "X-Waiting-Room-Session" {
			o.t.Errorf("%s %s reached the origin with %s: %q", r.method, r.uri, name, values)
		}
		for _, v := range values {
			if name == "Cookie" && (strings.Contains(v, "wr_")) {
				o.t.Errorf("%s %s reached the origin with Cookie: %s", r.method, r.uri, v)
			}
			if name == "Authorization" && strings.HasPrefix(v, "Bearer eyJ") {
				o.t.Errorf("%s %s reached the origin with our token in Authorization", r.method, r.uri)
			}
		}
	}
	if n := len(r.header.Values("X-Waiting-Room-Session")); n > 1 {
		o.t.Errorf("%s %s reached the origin with %d X-Waiting-Room-Session", r.method, r.uri, n)
	}
}

func (o *origin) requests() []seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// last returns the newest request.
func (o *origin) last() seen {
	o.t.Helper()
	all := o.requests()
	if len(all) == 0 {
		o.t.Fatal("the origin was not asked")
	}
	return all[len(all)-1]
}
