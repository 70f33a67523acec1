package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/remote"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/redistest"
)

const (
	adminToken = "a-2f7c0d6a1b9e4f3d"
	acmeToken  = "c-8e1a5b7c3d2f4960"
	mailToken  = "w-0b9d4e7a2c6f8135"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

// bench is the API over a real store. Jobs run only when a test calls run.
type bench struct {
	t       *testing.T
	store   *store.Store
	server  *Server
	broker  *remote.Broker
	handler http.Handler
	ready   bool
	healthy error
}

func newBench(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	return newBenchOn(t, redistest.Client(t), store.Defaults(), change...)
}

func newBenchOn(t *testing.T, client redis.UniversalClient, set store.Settings, change ...func(*Options)) *bench {
	t.Helper()
	return newBenchWith(t, store.Options{Client: client, Settings: set}, change...)
}

func newBenchWith(t *testing.T, so store.Options, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, ready: true}
	so.Prefix, so.Timeout, so.Log = cmp.Or(so.Prefix, redistest.Prefix(t)), 10*time.Second, slog.New(slog.DiscardHandler)
	s, err := store.New(so)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := bulk.New(bulk.Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	if b.broker, err = remote.New(remote.Options{Store: s, Engine: engine}); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Store: s, Token: adminToken, Tokens: []Token{{Name: "acme", Tenants: []string{"acme"}, Token: acmeToken}}, RequireToken: true,
		WorkerTokens: []WorkerToken{{Name: "post office", Types: []string{"mail"}, Token: mailToken}}, Work: b.broker,
		Ready: func() bool { return b.ready }, Health: func() error { return b.healthy },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			ophttp.Write(w, 200, "text/plain; charset=utf-8", []byte("up 1\n"))
		}),
		Dashboard: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>") }),
	}
	for _, f := range change {
		f(&o)
	}
	server, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.store, b.server, b.handler = s, server, server.Handler()
	return b
}

// ask sends a request with the operators' token. Lines of headers replace the usual ones or, with an empty value, remove them.
func (b *bench) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.send(method, path, strings.NewReader(body), headers...)
}

func (b *bench) send(method, path string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, path, body)
	setHeaders(r, headers)
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

func setHeaders(r *http.Request, headers []string) {
	r.Header.Set("Authorization", "Bearer "+adminToken)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case name == "Host":
			r.Host = value
		case name == "Peer":
			r.RemoteAddr = value
		case value == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
	}
}

// create creates a group and returns its id.
func (b *bench) create(body string) string {
	b.t.Helper()
	w := b.ask("POST", "/v1/groups", body)
	want(b.t, w, 201)
	id, _ := decoded(b.t, w)["id"].(string)
	return id
}

// group reads a group over the API.
func (b *bench) group(id string) map[string]any {
	b.t.Helper()
	w := b.ask("GET", "/v1/groups/"+id, "")
	want(b.t, w, 200)
	return decoded(b.t, w)
}

// run pulls jobs and ends each with the ack that decide returns, until none is left. It returns their number.
func (b *bench) run(decide func(store.Leased) store.Ack) (n int) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		p, err := b.store.Pull(b.t.Context(), 50)
		if err != nil {
			b.t.Fatal(err)
		}
		acks := make([]store.Ack, len(p.Jobs))
		for i, j := range p.Jobs {
			acks[i] = decide(j)
			acks[i].Key, acks[i].Fence = j.Key, j.Fence
		}
		if len(acks) > 0 {
			if _, err := b.store.Ack(b.t.Context(), acks); err != nil {
				b.t.Fatal(err)
			}
		}
		if n += len(acks); len(acks) == 0 && p.Next == 0 && !p.More {
			return n
		}
		if len(acks) == 0 {
			if time.Now().After(deadline) {
				b.t.Fatal("jobs are left over")
			}
			if err := b.store.Wait(b.t.Context(), min(p.Next, 50*time.Millisecond)); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

func done(store.Leased) store.Ack {
	return store.Ack{Verdict: store.Done, Result: []byte(`{"ok":true}`)}
}

func buried(store.Leased) store.Ack {
	return store.Ack{Verdict: store.Buried, Code: "unknown_type", Error: "no handler"}
}

// finish reduces and ends a group whose jobs have all run.
func (b *bench) finish(group string) {
	b.t.Helper()
	r, err := b.store.BeginReduce(b.t.Context(), group)
	if err != nil {
		b.t.Fatal(err)
	}
	for cursor := r.Cursor; ; {
		page, err := b.store.Results(b.t.Context(), group, cursor, 1000)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(page.Outcomes) == 0 {
			break
		}
		cursor = page.Next
		if ok, err := b.store.CommitReduce(b.t.Context(), group, r.Fence, cursor, int64(len(page.Outcomes)), []byte("{}")); err != nil || !ok {
			b.t.Fatal(ok, err)
		}
	}
	if g, ok, err := b.store.Finish(b.t.Context(), group, r.Fence, []byte(`{"succeeded":1}`)); err != nil || !ok {
		b.t.Fatalf("%+v %v %v", g, ok, err)
	}
}

// lines makes a submission of n jobs with ids.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"j%d\",\"payload\":{\"n\":%d}}\n", i, i)
	}
	return b.String()
}

// want asserts status and, where given, the whole body, compared as JSON.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, body ...string) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if len(body) > 0 {
		if got, wanted := compact(t, w.Body.String()), compact(t, body[0]); got != wanted {
			t.Errorf("answer\n  %s\nwant\n  %s", got, wanted)
		}
	}
	if kind := w.Header().Get("Content-Type"); status >= 400 && kind != "application/problem+json" {
		t.Errorf("Content-Type %q of a problem", kind)
	}
}

// wantCode asserts a problem's status and code, and that its text has those words.
func wantCode(t *testing.T, w *httptest.ResponseRecorder, status int, code string, words ...string) {
	t.Helper()
	want(t, w, status)
	p := decoded(t, w)
	if p["code"] != code || p["status"] != float64(status) || p["title"] == "" || p["type"] == "" || p["detail"] == "" {
		t.Errorf("problem %v, want code %q", p, code)
	}
	for _, word := range words {
		if !strings.Contains(w.Body.String(), word) {
			t.Errorf("problem %s does not name %q", w.Body, word)
		}
	}
}

func decoded(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return v
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return string(ophttp.Marshal(v))
}

// pick returns some fields of an object as JSON, in the order of their names.
func pick(v map[string]any, names ...string) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name + "=" + string(ophttp.Marshal(v[name]))
	}
	return strings.Join(parts, " ")
}
