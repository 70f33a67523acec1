package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
	"github.com/anteroom/anteroom/internal/freeport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func job() *bulk.Job {
	return &bulk.Job{
		ID: "j1", Group: "g1", Tenant: "acme", Type: "webhook", Payload: []byte(`{"n": 1}`), Cost: 1, Attempt: 2, Fence: 77, IdempotencyKey: "key-1",
	}
}

func handler(t *testing.T, o Options) *Handler {
	t.Helper()
	if o.MaxResult == 0 {
		o.MaxResult = 64 << 10
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func server(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

// outcome describes an error in a row: kind, code, how long to wait.
func outcome(err error) string {
	f, ok := errors.AsType[*bulk.Failure](err)
	switch {
	case err == nil:
		return "done"
	case !ok:
		return "not a Failure: " + err.Error()
	}
	kind := map[bulk.Kind]string{bulk.KindRetry: "fail", bulk.KindPermanent: "permanent", bulk.KindBusy: "busy", bulk.KindBusyGroup: "busy group"}[f.Kind]
	if f.Down {
		kind = "down, " + kind
	}
	if f.After > 0 {
		return fmt.Sprintf("%s %s %s", kind, f.Code, f.After)
	}
	return kind + " " + f.Code
}

func TestWebhook_SendsDocumentedRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, `{"ok":true}`)
	})
	secret := []byte("0123456789abcdef0123456789abcdef")
	h := handler(t, Options{URL: s.URL + "/hook?key=1", Secret: secret, Headers: map[string]string{"authorization": "Bearer x", "X-Team": "a"}})
	result, err := h.Handle(t.Context(), job())
	if err != nil || string(result) != `{"ok":true}` {
		t.Fatalf("%s, %v", result, err)
	}
	if got.Method != "POST" || got.RequestURI != "/hook?key=1" || string(body) != `{"n": 1}` {
		t.Errorf("%s %s %s", got.Method, got.RequestURI, body)
	}
	for name, want := range map[string]string{
		"X-Bulk-Job": "j1", "X-Bulk-Group": "g1", "X-Bulk-Tenant": "acme", "X-Bulk-Attempt": "2", "X-Bulk-Fence": "77",
		"Idempotency-Key": "key-1", "Content-Type": "application/json", "Authorization": "Bearer x", "X-Team": "a",
	} {
		if values := got.Header.Values(name); len(values) != 1 || values[0] != want {
			t.Errorf("%s: %q, want %q", name, values, want)
		}
	}
	if err := outbound.Verify(secret, got.Header.Get(outbound.SignatureHeader), time.Now(), body); err != nil {
		t.Error(err)
	}
	h = handler(t, Options{URL: s.URL})
	if _, err := h.Handle(t.Context(), job()); err != nil || got.Header.Values(outbound.SignatureHeader) != nil {
		t.Errorf("without a secret: %v, %v", err, got.Header)
	}
}

func TestWebhook_MapsStatusToVerdict(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string
		want       string
	}{
		{200, "", "done"}, {201, "", "done"}, {202, "30", "done"}, {204, "", "done"}, {299, "", "done"},
		{301, "", "fail http_301"}, {302, "", "fail http_302"}, {303, "", "fail http_303"}, {304, "", "fail http_304"}, {307, "", "fail http_307"}, {308, "", "fail http_308"},
		{400, "", "permanent http_400"}, {402, "", "permanent http_402"}, {409, "5", "permanent http_409"},
		{401, "", "down, fail http_401"}, {403, "", "fail http_403"}, {404, "5", "fail http_404 5s"}, {407, "", "down, fail http_407"}, {408, "", "fail http_408"}, {425, "1", "fail http_425 1s"},
		{410, "", "permanent http_410"}, {422, "", "permanent http_422"}, {499, "", "permanent http_499"},
		{429, "", "busy busy"}, {429, "0", "busy busy"}, {429, "1", "busy group busy 1s"}, {429, "7", "busy group busy 7s"}, {429, "100000", "busy group busy 1h0m0s"}, {429, "nonsense", "busy busy"},
		{503, "", "down, busy busy"}, {503, "120", "down, busy busy 2m0s"},
		{500, "", "fail http_500"}, {501, "", "fail http_501"}, {502, "9", "down, fail http_502 9s"}, {504, "", "down, fail http_504"}, {599, "", "fail http_599"},
	} {
		t.Run(fmt.Sprint(c.status, c.retryAfter), func(t *testing.T) {
			s := server(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				if c.status/100 == 3 {
					w.Header().Set("Location", "https://elsewhere.example/")
				}
				w.WriteHeader(c.status)
				if c.status != 204 && c.status != 304 {
					fmt.Fprint(w, "why\x00\nnot")
				}
			})
			result, err := handler(t, Options{URL: s.URL}).Handle(t.Context(), job())
			if got := outcome(err); got != c.want {
				t.Fatalf("%s, want %s", got, c.want)
			}
			switch {
			case err == nil && c.status != 204 && string(result) != "why\x00\nnot", err != nil && result != nil:
				t.Errorf("result %q", result)
			case c.status >= 400 && !strings.HasSuffix(err.Error(), ": why  not"):
				t.Errorf("the error does not show the answer: %v", err)
			case c.status/100 == 3 && !strings.Contains(err.Error(), "processors.webhook.url"):
				t.Errorf("the error does not name the setting: %v", err)
			}
		})
	}
}

// A result that is too large is dropped, and the job succeeds all the same.
func TestWebhook_BoundsResult(t *testing.T) {
	size := 0
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", size)) })
	h := handler(t, Options{URL: s.URL, MaxResult: 100})
	for n, want := range map[int]string{
		99: strings.Repeat("x", 99), 100: strings.Repeat("x", 100),
		101: `{"dropped":"result_too_large","limit":100}`, 1 << 20: `{"dropped":"result_too_large","limit":100}`,
	} {
		size = n
		if got, err := h.Handle(t.Context(), job()); err != nil || string(got) != want {
			t.Errorf("%d bytes: %.80s, %v", n, got, err)
		}
	}
	// Where not even the note would fit there is no result, as a longer one would count as a failure.
	for _, limit := range []int{0, 40} {
		h.o.MaxResult = limit
		if got, err := h.Handle(t.Context(), job()); err != nil || got != nil {
			t.Errorf("limit %d: %q, %v", limit, got, err)
		}
	}
	size, h.o.MaxResult = 0, 0
	if got, err := h.Handle(t.Context(), job()); err != nil || len(got) != 0 {
		t.Errorf("an empty answer: %q, %v", got, err)
	}
}

func TestWebhook_ReportsMissingResponse(t *testing.T) {
	if _, err := handler(t, Options{URL: "http://" + freeport.Address(t) + "/?key=secret"}).Handle(t.Context(), job()); outcome(err) != "down, fail connection" || strings.Contains(err.Error(), "secret") {
		t.Errorf("refused: %v", err)
	}
	cut := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if _, err := handler(t, Options{URL: cut.URL}).Handle(t.Context(), job()); outcome(err) != "down, fail connection" {
		t.Errorf("cut off: %v", err)
	}
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	defer untrusted.Close()
	untrusted.Config.ErrorLog = nil
	if _, err := handler(t, Options{URL: untrusted.URL}).Handle(t.Context(), job()); outcome(err) != "down, fail connection" {
		t.Errorf("a certificate that nobody signed: %v", err)
	}
}

// The end of the job's context and the timeout close the connection of the request; the server notices.
func TestWebhook_CancelsRequest(t *testing.T) {
	started, left := make(chan struct{}), make(chan struct{})
	s := server(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		started <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	h := handler(t, Options{URL: s.URL, Timeout: time.Second}) // a busy machine needs a part of it to send the request
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := h.Handle(t.Context(), job()); outcome(err) != "down, fail timeout" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("time-out: %v", err)
		}
	})
	<-started
	<-left
	wg.Wait()

	h = handler(t, Options{URL: s.URL, Timeout: time.Minute})
	ctx, cancel := context.WithCancelCause(t.Context())
	lost := errors.New("the lease was lost")
	wg.Go(func() {
		if _, err := h.Handle(ctx, job()); outcome(err) != "fail cancelled" || !errors.Is(err, lost) {
			t.Errorf("cancelled: %v", err)
		}
	})
	<-started
	cancel(lost)
	<-left
	wg.Wait()
}

// One connection serves one job after another, also after a failed job.
func TestWebhook_KeepsConnection(t *testing.T) {
	var mu sync.Mutex
	peers := map[string]bool{}
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		peers[r.RemoteAddr] = true
		status := []int{200, 404, 500, 429}[len(r.Header.Get("X-Bulk-Job"))-1]
		mu.Unlock()
		w.WriteHeader(status)
		fmt.Fprint(w, "text")
	})
	h := handler(t, Options{URL: s.URL})
	for _, id := range []string{"1", "22", "333", "4444", "1"} {
		j := job()
		j.ID = id
		_, _ = h.Handle(t.Context(), j)
	}
	if len(peers) != 1 {
		t.Errorf("%d connections for five jobs, one after the other", len(peers))
	}
}

func TestNew_ErrorNamesSetting(t *testing.T) {
	for want, o := range map[string]Options{
		"processors.webhook.url: empty; give the http or https URL that takes the jobs":                                  {},
		"processors.hooks.url: the scheme is \"ftp\", not http or https":                                                 {Name: "hooks", URL: "ftp://x.example"},
		"processors.webhook.url: the host is preceded by credentials; send them in a header":                             {URL: "http://a:secret@x.example"},
		"processors.webhook.timeout: -1s is below 0":                                                                     {URL: "http://x.example", Timeout: -time.Second},
		"limits.result: -1 is below 0":                                                                                   {URL: "http://x.example", MaxResult: -1},
		"processors.webhook.headers: X-Bulk-Job is set by the worker itself; leave it out":                               {URL: "http://x.example", Headers: map[string]string{"x-bulk-job": "1"}},
		"processors.webhook.headers: Idempotency-Key is set by the worker itself; leave it out":                          {URL: "http://x.example", Headers: map[string]string{"Idempotency-Key": "1"}},
		"processors.webhook.headers: \"a b\" is not a header's name":                                                     {URL: "http://x.example", Headers: map[string]string{"a b": "1"}},
		"processors.webhook.headers: the value of X-A has characters that a header may not have":                         {URL: "http://x.example", Headers: map[string]string{"X-A": "1\r\nX-B: 2"}},
		"processors.w.timeout: -1ns is below 0\nprocessors.w.url: empty; give the http or https URL that takes the jobs": {Name: "w", Timeout: -1},
	} {
		if _, err := New(o); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if h, err := New(Options{URL: "http://10.0.0.1:8080/"}); err != nil {
		t.Errorf("the operator's own private URL: %v", err)
	} else {
		_ = h.Close()
	}
}

// TestHeaders_AreVisibleASCII: ids in other scripts were sent as they are, to which some servers respond with 400, and keys of up to
// 269 bytes, where others store 255.
func TestHeaders_AreVisibleASCII(t *testing.T) {
	var got http.Header
	s := server(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	h := handler(t, Options{URL: s.URL})
	long := strings.Repeat("é", 60) // 360 bytes when encoded
	keys := map[string]bool{}
	for _, row := range []struct{ id, job, key string }{
		{"j-1_a", "j-1_a", "g1/j-1_a"},
		{"ü%1", "%C3%BC%251", "g1/%C3%BC%251"},
		{"%C3%BC%251", "%25C3%25BC%25251", "g1/%25C3%25BC%25251"},
		{long + "1", strings.Repeat("%C3%A9", 60) + "1", ""},
		{long + "2", strings.Repeat("%C3%A9", 60) + "2", ""},
	} {
		j := job()
		j.ID, j.IdempotencyKey = row.id, "g1/"+row.id
		if _, err := h.Handle(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		key := got.Get("Idempotency-Key")
		if got.Get("X-Bulk-Job") != row.job || row.key != "" && key != row.key || len(key) > 255 || keys[key] {
			t.Errorf("id %s: X-Bulk-Job %s, Idempotency-Key %s (%d bytes)", row.id, got.Get("X-Bulk-Job"), key, len(key))
		}
		keys[key] = true
	}
}
