package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/internal/freeport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T, o Options) *http.Client {
	t.Helper()
	c := NewClient(o)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestPost_SendsBodyAndHeaders(t *testing.T) {
	var got *http.Request
	var body []byte
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "12345678")
	})
	secret := []byte("a secret")
	a, err := Post(t.Context(), client(t, Options{}), Request{
		URL: s.URL + "/in?x=1", Header: http.Header{"X-Bulk-Job": {"j1"}}, Body: []byte(`{"a":1}`), Secret: secret, MaxAnswer: 8,
	})
	if err != nil || a.Status != 202 || string(a.Body) != "12345678" || a.TooLarge || a.RetryAfter != 7*time.Second {
		t.Fatalf("%+v, %v", a, err)
	}
	if got.Method != "POST" || got.RequestURI != "/in?x=1" || string(body) != `{"a":1}` || got.ContentLength != 7 ||
		got.Header.Get("Content-Type") != "application/json" || got.Header.Get("X-Bulk-Job") != "j1" || got.Header.Get("Accept-Encoding") != "" {
		t.Errorf("the server saw %s %s %v %s", got.Method, got.RequestURI, got.Header, body)
	}
	if err := Verify(secret, got.Header.Get(SignatureHeader), time.Now(), body); err != nil {
		t.Error(err)
	}
	a, err = Post(t.Context(), client(t, Options{}), Request{URL: s.URL, MaxAnswer: 7})
	if err != nil || string(a.Body) != "1234567" || !a.TooLarge || got.Header.Get(SignatureHeader) != "" {
		t.Errorf("%+v, %v", a, err)
	}
}

// A response that never ends is read up to the bound only.
func TestPost_BoundsResponse(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		chunk := bytes.Repeat([]byte("x"), 1<<16)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	a, err := Post(t.Context(), client(t, Options{}), Request{URL: s.URL, MaxAnswer: 100_000})
	if err != nil || len(a.Body) != 100_000 || !a.TooLarge {
		t.Fatalf("%v", err)
	}
}

func TestPost_RedirectsStayOnHost(t *testing.T) {
	var elsewhere atomic.Int64
	other := server(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	var seen []string
	var s *httptest.Server
	s = server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.URL.Path+" "+string(body)+" "+r.Header.Get("X-Bulk-Job"))
		switch r.URL.Path {
		case "/307":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/308":
			http.Redirect(w, r, s.URL+"/end", http.StatusPermanentRedirect)
		case "/301", "/302", "/303":
			var status int
			fmt.Sscan(r.URL.Path[1:], &status)
			http.Redirect(w, r, "/end", status)
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/name":
			http.Redirect(w, r, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
		case "/credentials":
			http.Redirect(w, r, strings.Replace(s.URL, "http://", "http://a:b@", 1), http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		}
	})
	for path, want := range map[string]struct {
		status int
		seen   []string
	}{
		"/307":         {200, []string{"POST /307 {} j", "POST /end {} j"}},
		"/308":         {200, []string{"POST /308 {} j", "POST /end {} j"}},
		"/301":         {301, []string{"POST /301 {} j"}},
		"/302":         {302, []string{"POST /302 {} j"}},
		"/303":         {303, []string{"POST /303 {} j"}},
		"/away":        {307, []string{"POST /away {} j"}},
		"/name":        {307, []string{"POST /name {} j"}},
		"/credentials": {307, []string{"POST /credentials {} j"}},
		"/loop":        {307, []string{"POST /loop {} j", "POST /loop {} j", "POST /loop {} j", "POST /loop {} j"}},
	} {
		seen = nil
		a, err := Post(t.Context(), client(t, Options{}), Request{
			URL: s.URL + path, Body: []byte("{}"), Header: http.Header{"X-Bulk-Job": {"j"}}, MaxAnswer: 100,
		})
		if err != nil || a.Status != want.status || fmt.Sprint(seen) != fmt.Sprint(want.seen) {
			t.Errorf("%s: %+v, %v; the server saw %q", path, a, err, seen)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed to another host")
	}
}

// Many concurrent requests open no more connections to a host than the limit, and the connections are reused.
func TestClient_LimitsConnectionsPerHost(t *testing.T) {
	const limit, requests = 3, 30
	var open, opened, most atomic.Int64
	arrived, proceed := make(chan struct{}, requests), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-proceed
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.Start()
	defer s.Close()
	c := client(t, Options{MaxPerHost: limit})
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			if _, err := Post(t.Context(), c, Request{URL: s.URL, MaxAnswer: 10}); err != nil {
				t.Error(err)
			}
		})
	}
	for range limit {
		<-arrived
	}
	select {
	case <-arrived:
		t.Error("more requests at a time than connections")
	default:
	}
	close(proceed)
	wg.Wait()
	if most.Load() > limit || opened.Load() > limit {
		t.Errorf("%d connections at a time, %d in all; %d may be", most.Load(), opened.Load(), limit)
	}
}

func TestClient_IgnoresProxyEnvironment(t *testing.T) {
	var proxied atomic.Int64
	proxy := server(t, func(http.ResponseWriter, *http.Request) { proxied.Add(1) })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	c := client(t, Options{})
	if transport := c.Transport.(*http.Transport); transport.Proxy != nil {
		t.Error("the transport has a proxy function")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	// net/http itself never proxies loopback, so ask for a name that does not exist: a proxy would be asked for it.
	if _, err := Post(ctx, c, Request{URL: "http://nowhere.invalid/", MaxAnswer: 10}); err == nil || proxied.Load() != 0 {
		t.Errorf("%v; %d requests at the proxy", err, proxied.Load())
	}
}

// The text of an error has the host and no other part of the URL; cancelling the context ends a request.
func TestPost_ErrorNamesOnlyHost(t *testing.T) {
	dead := freeport.Address(t)
	asked, left := make(chan struct{}, 100), make(chan struct{}, 100)
	slow := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "five_")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		asked <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	c := client(t, Options{})
	_, err := Post(t.Context(), c, Request{URL: "http://" + dead + "/hook?key=secret", MaxAnswer: 10})
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), dead) || IsTimeout(err) {
		t.Errorf("connection refused: %v", err)
	}
	if _, err = Post(t.Context(), c, Request{URL: slow.URL + "/cut?key=secret", MaxAnswer: 10}); err == nil || strings.Contains(err.Error(), "secret") || IsTimeout(err) {
		t.Errorf("an answer that breaks off: %v", err)
	}
	for wait := 20 * time.Millisecond; len(asked) == 0; wait *= 2 { // a busy machine may take longer to send a request
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		if _, err = Post(ctx, c, Request{URL: slow.URL, MaxAnswer: 10}); !errors.Is(err, context.DeadlineExceeded) || !IsTimeout(err) {
			t.Errorf("a slow answer: %v", err)
		}
		cancel()
	}
	<-left
}

// Requests beyond the streams of one HTTP/2 connection wait for a free stream, and all of them end.
func TestClient_QueuesForHTTP2Streams(t *testing.T) {
	const requests = 400
	var protocols sync.Map
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocols.Store(r.Proto, true) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c := client(t, Options{HTTP2: true, MaxPerHost: 1, TLS: &tls.Config{RootCAs: roots}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			if _, err := Post(ctx, c, Request{URL: s.URL, Body: []byte("{}"), MaxAnswer: 10}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, ok := protocols.Load("HTTP/2.0"); !ok {
		t.Error("HTTP/2 was not spoken")
	}
	if _, err := Post(ctx, client(t, Options{}), Request{URL: s.URL, MaxAnswer: 10}); err == nil {
		t.Error("a certificate that nobody signed is taken")
	}
}
