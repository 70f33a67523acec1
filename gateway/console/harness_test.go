package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/outbox"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/explain"
	"github.com/anteroom/anteroom/gateway/permit"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

const (
	writeToken = "w-2f7c0d6a1b9e4f3d"
	readToken  = "r-8e1a5b7c3d2f4960"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

// bench is a console over two real rooms with a clock that only the test moves.
type bench struct {
	t         *testing.T
	core      *admission.Core
	sale, vip *admission.Room
	ring      *token.Ring // of permits
	fleet     *admission.Fleet
	recorder  *admission.Recorder
	console   *Console
	handler   http.Handler
	ready     bool
	healthy   error
	clock     clock
	clients   []Client
	prefix    string          // of the keys in the store
	leaving   context.Context // of the client; nil: it stays
}

// clock stands still until it is moved. Requests of a browser may read it meanwhile.
type clock struct{ passed atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(1_800_000_000, c.passed.Load()) }
func (c *clock) move(d time.Duration) { c.passed.Add(int64(d)) }

var filePolicy = admission.Policy{
	Enabled: true, Method: admission.FIFO, Rate: 1_000, Burst: 10_000, Absence: 10 * time.Minute,
	ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: admission.OnErrorWait,
}

func newBench(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	return newBenchOn(t, redistest.Client(t), change...)
}

func newBenchOn(t *testing.T, client redis.UniversalClient, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, ready: true}
	b.prefix = redistest.Prefix(t)
	core, err := admission.New(admission.Options{
		Client: client, Prefix: b.prefix, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
		Now: func() int64 { return b.clock.now().UnixMicro() },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.ring, err = token.NewRing("anteroom", []token.Key{{ID: "k1", Alg: token.HS256, Secret: []byte("0pX2vRk7Q9-mZt4LwYb8NcUe1HsJdAfG"), Active: true}})
	if err != nil {
		t.Fatal(err)
	}
	b.core, b.sale, b.vip = core, core.Room("sale", filePolicy), core.Room("vip", filePolicy)
	b.fleet = admission.NewFleet(core, func() admission.Gateway {
		return admission.Gateway{Version: "v1", Started: b.clock.now().UnixMicro(), Keys: "k", LastError: &admission.LastError{At: b.clock.now().UnixMicro(), Text: "store unavailable room=sale"}, Configuration: admission.Configuration{Generation: 1, Hash: "h", Loaded: b.clock.now().UnixMicro()}, InFlight: map[string]int{"shop": 4}}
	})
	b.recorder = admission.NewRecorder(core, b.fleet, func(_ string, m *admission.Measures) {
		*m = admission.Measures{Known: true, Wait: 60, Low: 30, High: 90, Counts: map[string]int64{"arrived": 40, "refused.full": 2, "proofs.accepted": 3}}
	})
	b.tick(0)
	o := Options{
		Core:   core,
		Listen: "0.0.0.0:9090",
		Tokens: []Token{{Name: "ops", Token: writeToken, Role: Write}, {Name: "wall", Token: readToken, Role: Read}},
		Rooms: func() []Room {
			return []Room{
				{Queue: b.sale, File: filePolicy, Origin: "shop", Levels: []string{"none", "auto", "always", "hardest"}, Clients: b.clientsIn,
					Wait:      func() eta.Estimate { return eta.Estimate{Seconds: 120, Low: 99.6, High: 150.4, Known: true} },
					WaitError: func() (float64, bool) { return 0.95, true },
					Simulate: func(c Change) (now, with eta.Outcome, ok bool) {
						in := eta.Input{Now: b.clock.now().UnixMicro(), Rate: 1, Waiting: 100, Active: 10}
						to := eta.Plan{Rate: 1}
						if c.Rate != nil {
							to.Rate = *c.Rate
						}
						if c.MaxActive != nil {
							to.MaxActive = *c.MaxActive
						}
						if c.Paused != nil {
							to.Paused = *c.Paused
						}
						return eta.Simulate(in, eta.Plan{Rate: 1}, 100), eta.Simulate(in, to, 100), true
					}},
				{Queue: b.vip, File: filePolicy, Origin: "shop",
					Account: func(name string) []admission.ID { return admission.ID([]byte(name + "............")).Places() }},
			}
		},
		Webhooks: func(ctx context.Context, dead int) (Webhooks, error) {
			r, err := b.events().Read(ctx, dead)
			if err != nil {
				return Webhooks{}, err
			}
			w := Webhooks{Sender: r.Holder, List: []Webhook{{Name: "crm", Host: "hooks.example.com", Events: []string{"room.changed"}, Dead: r.Counts["crm"].Dead}}}
			for _, l := range r.Dead {
				w.Dead = append(w.Dead, DeadEvent{Webhook: l.Endpoint, ID: l.ID, QueuedAt: l.Since, At: l.At, Tries: l.Tries, Error: l.Error, Body: []byte(l.Body)})
			}
			return w, nil
		},
		Redeem: func(ctx context.Context, raw, key string, in func(string) bool) (permit.Redemption, error) {
			return permit.Redeem(ctx, b.ring, func(id string) permit.Room {
				if id == "sale" && in(id) {
					return b.sale
				}
				return nil
			}, raw, key)
		},
		OriginStats: func(string) (float64, float64) { return 0.0421, 0.005 },
		Insight:     Insight{Recorder: b.recorder, Fleet: b.fleet, Explain: explained},
		Measures:    Measures{Registry: prometheus.NewRegistry()},
		Ready:       func() bool { return b.ready },
		Health:      func() error { return b.healthy },
		Now:         b.clock.now,
	}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.console, b.handler = c, c.Handler()
	return b
}

// clientsIn has each client that the test has set.
func (b *bench) clientsIn(prefix netip.Prefix, limit int) (list []Client, all int) {
	for _, c := range b.clients {
		if prefix.Contains(c.Address) {
			list = append(list, c)
		}
	}
	return list[:min(len(list), limit)], len(list)
}

// explained is an explanation of any request.
func explained(_ context.Context, q *explain.Request) (*explain.Explanation, error) {
	if q.Method == "BAD" {
		return nil, &explain.Fault{Code: "bad_request", Detail: "no"}
	}
	return &explain.Explanation{Room: "sale", Rule: explain.Rule{Kind: "room", Host: "*", Path: "/"}, Decision: "wait", Why: "queue", Text: q.Method + " " + q.Target, Kind: "api", Readings: []string{"/"}}, nil
}

// record lets seconds pass, in each of which the rooms are ticked and recorded.
func (b *bench) record(seconds int) {
	b.t.Helper()
	for range seconds {
		b.tick(time.Second)
		for _, err := range []error{b.fleet.Report(b.t.Context()), b.recorder.Notice(b.t.Context()), b.recorder.Record(b.t.Context())} {
			if err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// tick moves the clock and runs a tick of both rooms.
func (b *bench) tick(d time.Duration) {
	b.t.Helper()
	b.clock.move(d)
	for _, r := range []*admission.Room{b.sale, b.vip} {
		if err := r.Tick(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// join sends n visitors into the room sale, a microsecond apart, and returns
// those that have to wait. The first ten are the burst.
func (b *bench) join(n int) (waiting []admission.Standing) {
	b.t.Helper()
	for range n {
		b.clock.move(time.Microsecond)
		var id admission.ID
		if _, err := rand.Read(id[:]); err != nil {
			b.t.Fatal(err)
		}
		s, refusal, err := b.sale.Join(b.t.Context(), admission.Arrival{ID: id, Interval: 2 * time.Second})
		if err != nil || refusal != admission.Granted {
			b.t.Fatalf("join: %v %q", err, refusal)
		}
		if s.State == admission.Waiting {
			waiting = append(waiting, s)
		}
	}
	b.tick(250 * time.Millisecond) // the snapshot is built once in so long
	return waiting
}

// ask sends a request with the write token. Lines of headers replace its
// fields, or remove them with an empty value.
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
	if b.leaving != nil {
		r = r.WithContext(b.leaving)
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// want asserts the status and, if given, the whole body, compared as JSON.
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

// at returns a value of decoded JSON by its dotted path, nil if there is none.
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

// events returns the queue of events for webhooks.
func (b *bench) events() *outbox.Queue {
	return outbox.New(outbox.Options{Run: admission.ScriptsOf(b.core), Prefix: "console-" + admission.GatewayOf(b.core), Now: func() int64 { return b.clock.now().UnixMicro() }})
}
