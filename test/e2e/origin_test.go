package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/test/recorder"
)

// origin is a site that records its requests.
type origin struct {
	*httptest.Server
	recorder.Recorder
	t      testing.TB
	answer http.HandlerFunc // nil: a small page
}

// newOrigin starts a site. At the end of the test it checks that no cookie or token of the waiting room reached the site.
func newOrigin(t testing.TB, answer http.HandlerFunc) *origin {
	t.Helper()
	o := &origin{t: t, answer: answer}
	o.Server = httptest.NewServer(o)
	t.Cleanup(func() {
		o.Close()
		for _, r := range o.Requests() {
			o.inspect(r)
		}
	})
	return o
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.Record(w, r)
	if o.answer != nil {
		o.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<!doctype html><title>The site</title><h1>Welcome</h1>")
}

// inspect fails the test if a request has a cookie or token of the waiting room.
func (o *origin) inspect(r recorder.Request) {
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Waiting-Room-") && name != "X-Waiting-Room-Session" {
			o.t.Errorf("%s %s reached the origin with %s: %q", r.Method, r.URI, name, values)
		}
		for _, v := range values {
			if name == "Cookie" && (strings.Contains(v, "wr_")) {
				o.t.Errorf("%s %s reached the origin with Cookie: %s", r.Method, r.URI, v)
			}
			if name == "Authorization" && strings.HasPrefix(v, "Bearer eyJ") {
				o.t.Errorf("%s %s reached the origin with our token in Authorization", r.Method, r.URI)
			}
		}
	}
	if n := len(r.Header.Values("X-Waiting-Room-Session")); n > 1 {
		o.t.Errorf("%s %s reached the origin with %d X-Waiting-Room-Session", r.Method, r.URI, n)
	}
}

// last returns the newest request.
func (o *origin) last() recorder.Request {
	o.t.Helper()
	return o.Last(o.t)
}
