package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	writeToken = "w-2f7c0d6a1b9e4f3d"
	readToken  = "r-8e1a5b7c3d2f4960"
)

// bench is a console over two rooms in memory.
type bench struct {
	t       *testing.T
	sale    *standIn
	vip     *standIn
	handler http.Handler
	ready   bool
	healthy error
	now     time.Time
}

func newBench(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, sale: newStandIn("sale"), vip: newStandIn("vip"), ready: true, now: time.Unix(1_800_000_000, 0)}
	o := Options{
		Listen: "0.0.0.0:9090",
		Tokens: []Token{{"ops", writeToken, Write}, {"wall", readToken, Read}},
		Rooms: func() []Room {
			return []Room{
				{Line: b.sale, File: b.sale.file, Origin: "shop",
					Wait:      func() (Wait, bool) { return Wait{2 * time.Minute, 100 * time.Second, 150 * time.Second}, true },
					WaitError: func() (float64, bool) { return 0.95, true }},
				{Line: b.vip, File: b.vip.file, Origin: "shop"},
			}
		},
		Audit:       b.sale,
		OriginStats: func(string) (float64, float64) { return 0.0421, 0.005 },
		Registry:    prometheus.NewRegistry(),
		Ready:       func() bool { return b.ready },
		Health:      func() error { return b.healthy },
		Now:         func() time.Time { return b.now },
	}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.handler = c.Handler()
	return b
}

// ask sends a request with the write token; lines of headers replace or
// (empty value) remove what it would have.
func (b *bench) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+writeToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
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
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
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
	if status >= 400 {
		if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("Content-Type %q of a problem", kind)
		}
	}
}

// wantCode asserts a problem's status and code.
func wantCode(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	want(t, w, status)
	p := decode(t, w.Body.Bytes())
	if p["code"] != code || p["status"] != float64(status) || p["title"] == "" || p["type"] == "" || p["detail"] == "" {
		t.Errorf("problem %v, want code %q", p, code)
	}
}

func decode(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}

// at digs into decoded JSON by a dotted path; nil where it ends early.
func at(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		m, isMap := v.(map[string]any)
		if !isMap {
			return nil
		}
		v = m[name]
	}
	return v
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
