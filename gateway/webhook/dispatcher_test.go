package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/outbox"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

// receiver is an endpoint. answer decides the status of its n-th request.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	seen []received
	hold chan struct{} // requests wait for it; nil: they do not
	// arrived gets a value for the first request.
	arrived chan struct{}
}

type received struct {
	id, kind string
	body     []byte
}

func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	r := &receiver{arrived: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		var e struct{ Type string }
		_ = json.Unmarshal(body, &e)
		r.mu.Lock()
		r.seen = append(r.seen, received{q.Header.Get("webhook-id"), e.Type, body})
		n, hold := len(r.seen), r.hold
		r.mu.Unlock()
		if n == 1 {
			r.arrived <- struct{}{}
		}
		if hold != nil {
			select {
			case <-hold:
			case <-q.Context().Done():
			}
		}
		if answer != nil {
			answer(n, w)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) kinds() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		all = append(all, s.kind)
	}
	return all
}

func (r *receiver) ids() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		all = append(all, s.id)
	}
	return all
}

// fleet is a number of gateways over one store, with a clock of its own.
type fleet struct {
	t     *testing.T
	queue *outbox.Queue
	now   time.Time
	room  Room
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, now: time.Now(), room: Room{
		ID: "sale", Up: true, Snapshot: &admission.Snapshot{Known: true, Epoch: "e", Seq: 1, Policy: admission.Policy{Rate: 5000}},
	}}
	client := redistest.Server(t).Client()
	core, err := admission.New(admission.Options{Client: client, Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f.queue = outbox.New(outbox.Options{Run: admission.ScriptsOf(core), Prefix: "wr", Now: func() int64 { return f.now.UnixMicro() }})
	return f
}

func (f *fleet) gateway(name string, endpoints ...Endpoint) *Dispatcher {
	f.t.Helper()
	d := New(Options{
		Queue: f.queue, Gateway: name, Rooms: func() []Room { return []Room{f.room} }, Metrics: NewMetrics(prometheus.NewRegistry()),
		Health: func(context.Context, string) (admission.OriginHealth, error) { return admission.OriginHealth{}, nil },
		Log:    slog.New(slog.DiscardHandler),
	})
	if err := d.SetEndpoints(endpoints); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { d.sends.Wait(); d.current.Load().close() })
	return d
}

// turn advances the clock, lets the gateways take their turns, and waits for their deliveries.
func (f *fleet) turn(after time.Duration, gateways ...*Dispatcher) {
	f.t.Helper()
	f.now = f.now.Add(after)
	f.room.Now = f.now.UnixMicro()
	for _, d := range gateways {
		if err := d.turn(f.t.Context(), f.now); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, d := range gateways {
		d.sends.Wait()
	}
}

func (f *fleet) counts(name string) outbox.Count {
	f.t.Helper()
	r, err := f.queue.Read(f.t.Context(), 10)
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Counts[name]
}

func to(name string, r *receiver, events ...string) Endpoint {
	return Endpoint{Name: name, URL: r.URL, Secrets: []Secret{Secret(strings.Repeat("a", 24))}, Events: events, AllowPrivate: true}
}

// One event of a room is sent once by a fleet, to the endpoints that want it.
func TestDispatcher_FleetSendsEventOnce(t *testing.T) {
	f := newFleet(t)
	all, some := newReceiver(t, nil), newReceiver(t, nil)
	hooks := []Endpoint{to("all", all), to("some", some, RoomChanged)}
	a, b := f.gateway("a", hooks...), f.gateway("b", hooks...)
	f.turn(0, a, b)
	f.room.Snapshot.Waiting = 7
	for range 4 {
		f.turn(time.Second, a, b)
	}
	f.room.Snapshot.Policy.Paused = true
	for range 4 {
		f.turn(time.Second, b, a)
	}
	if got := all.kinds(); !slices.Equal(got, []string{QueueStarted, RoomChanged}) {
		t.Errorf("%v", got)
	}
	if got := some.kinds(); !slices.Equal(got, []string{RoomChanged}) {
		t.Errorf("%v", got)
	}
	if got, want := f.counts("all"), (outbox.Count{Delivered: 2}); got != want {
		t.Errorf("%+v", got)
	}
}

// A gateway that dies after the endpoint got an event, before it could record that, repeats the event with the same id from another gateway; an
// event that the endpoint did not get is not lost.
func TestDispatcher_DeathRepeatsAndLosesNothing(t *testing.T) {
	f := newFleet(t)
	r := newReceiver(t, nil)
	r.hold = make(chan struct{})
	a, b := f.gateway("a", to("hook", r)), f.gateway("b", to("hook", r))
	f.turn(0, a)
	f.room.Snapshot.Waiting = 7
	f.turn(time.Second, a)
	f.now = f.now.Add(time.Second)
	dying, kill := context.WithCancel(t.Context())
	if err := a.turn(dying, f.now); err != nil {
		t.Fatal(err)
	}
	<-r.arrived // the endpoint has it
	kill()
	a.sends.Wait()
	close(r.hold)
	f.turn(time.Second, b) // the lease of a is still there
	f.turn(29*time.Second, b)
	f.turn(time.Second, b)
	ids := r.ids()
	if got := r.kinds(); !slices.Equal(got, []string{QueueStarted, QueueStarted}) || ids[0] != ids[1] {
		t.Fatalf("%v %v", got, ids)
	}
	if got, want := f.counts("hook"), (outbox.Count{Delivered: 1}); got != want {
		t.Errorf("%+v", got)
	}
}

// Failed deliveries are tried again with growing pauses for a day, and are then shown to operators.
func TestDispatcher_RetriesForADay(t *testing.T) {
	f := newFleet(t)
	up := false
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if !up {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	a := f.gateway("a", to("hook", r, QueueStarted))
	f.turn(0, a)
	f.room.Snapshot.Waiting = 7
	f.turn(time.Second, a)
	begin := f.now
	var tries []time.Duration
	for f.counts("hook").Pending > 0 {
		before := len(r.kinds())
		f.turn(time.Second, a)
		if len(r.kinds()) > before {
			tries = append(tries, f.now.Sub(begin))
			if len(tries) > 3 {
				break
			}
		}
	}
	for i, least := range []time.Duration{0, 5 * time.Second, 15 * time.Second, 35 * time.Second} {
		if most := time.Duration(float64(least)*1.2) + 10*time.Second; tries[i] < least || tries[i] > most {
			t.Errorf("try %d after %s, want %s to %s", i, tries[i], least, most)
		}
	}
	if r.ids()[0] != r.ids()[3] {
		t.Error("a repeated event has another id")
	}
	if got := testutil.ToFloat64(a.o.Metrics.deliveries.WithLabelValues("hook", "retry")); got != 4 {
		t.Errorf("%v retries are counted", got)
	}
	up = true
	f.turn(2*time.Hour, a)
	if got, want := f.counts("hook"), (outbox.Count{Delivered: 1}); got != want {
		t.Errorf("%+v", got)
	}
}

// An event becomes dead when its time is over, when the endpoint is gone, and when the webhook was removed.
func TestDispatcher_DeadEventsAreShown(t *testing.T) {
	f := newFleet(t)
	status := http.StatusTeapot
	r := newReceiver(t, func(n int, w http.ResponseWriter) { w.WriteHeader(status) })
	a := f.gateway("a", to("hook", r))
	queued := func(id string, since time.Time) {
		t.Helper()
		now := f.now
		f.now = since
		_, err := f.queue.Note(t.Context(), []outbox.Change{{ID: id, Body: `{"type":"x"}`, Endpoints: []string{"hook"}}})
		f.now = now
		if err != nil {
			t.Fatal(err)
		}
	}
	queued("late", f.now.Add(-GiveUp))
	f.turn(0, a)
	status = http.StatusGone
	queued("gone", f.now)
	f.turn(time.Second, a)
	queued("removed", f.now)
	if err := a.SetEndpoints([]Endpoint{to("other", r)}); err != nil {
		t.Fatal(err)
	}
	f.turn(time.Second, a)
	report, err := f.queue.Read(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, l := range report.Dead {
		got = append(got, l.ID+": "+l.Error)
	}
	want := []string{"removed: no webhook of this name is configured", "gone: the response was 410 Gone", "late: the response was 418 I'm a teapot"}
	if !slices.Equal(got, want) || report.Counts["hook"] != (outbox.Count{Dead: 3}) {
		t.Errorf("%q %+v", got, report.Counts)
	}
}

// Addresses that are not public are refused unless the operator allows them, whatever their name resolves to.
func TestDispatcher_GuardsPrivateAddresses(t *testing.T) {
	f := newFleet(t)
	r := newReceiver(t, nil)
	private := to("hook", r)
	private.AllowPrivate = false
	if err := f.gateway("a").SetEndpoints([]Endpoint{private}); err == nil || !strings.Contains(err.Error(), "webhooks.hook.url: host \"127.0.0.1\" is at 127.0.0.1, a loopback address; set allow_private: true") {
		t.Errorf("%v", err)
	}
	private.URL = strings.Replace(r.URL, "127.0.0.1", "localhost", 1)
	if _, _, err := SendTest(t.Context(), private); err == nil || !strings.Contains(err.Error(), "a loopback address; set allow_private: true") {
		t.Errorf("%v", err)
	}
	if got := r.kinds(); len(got) > 0 {
		t.Errorf("sent %v", got)
	}
	private.AllowPrivate = true
	if _, a, err := SendTest(t.Context(), private); err != nil || a.Status != 200 || !slices.Equal(r.kinds(), []string{Test}) {
		t.Errorf("%v %v", err, r.kinds())
	}
}

// flaky is a queue whose store can be away.
type flaky struct {
	*outbox.Queue
	away bool
}

func (q *flaky) Take(ctx context.Context, gateway string, most int, fields []string) (outbox.Work, error) {
	if q.away {
		return outbox.Work{}, admission.ErrStore
	}
	return q.Queue.Take(ctx, gateway, most, fields)
}

// While the store is away every gateway reports it, with the same id; its return is reported once, with what could not be sent before.
func TestDispatcher_ReportsLostStores(t *testing.T) {
	f := newFleet(t)
	down := false
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	hook := to("hook", r, StoreLost, StoreBack)
	a, b := f.gateway("a", hook), f.gateway("b", hook)
	qa, qb := &flaky{Queue: f.queue}, &flaky{Queue: f.queue}
	a.o.Queue, b.o.Queue = qa, qb
	away := func(is bool) { qa.away, qb.away, f.room.Up = is, is, !is }
	turns := func(n int) {
		t.Helper()
		for range n {
			f.now = f.now.Add(time.Second)
			for _, d := range []*Dispatcher{a, b} {
				if err := d.turn(t.Context(), f.now); err != nil && !errors.Is(err, admission.ErrStore) {
					t.Fatal(err)
				}
				d.sends.Wait()
			}
		}
	}
	turns(2)
	away(true)
	turns(2)
	away(false) // too short
	turns(3)
	if got := r.kinds(); len(got) > 0 {
		t.Fatalf("%v", got)
	}
	away(true)
	turns(6)
	away(false)
	turns(5)
	ids := r.ids()
	if got := r.kinds(); !slices.Equal(got, []string{StoreLost, StoreLost, StoreBack}) || ids[0] != ids[1] {
		t.Fatalf("%v %v", got, ids)
	}

	down = true
	away(true)
	turns(4)
	n := len(r.kinds())
	down = false
	away(false)
	turns(5)
	again := r.ids()
	if got := r.kinds()[n:]; !slices.Equal(got, []string{StoreLost, StoreBack}) && !slices.Equal(got, []string{StoreBack, StoreLost}) {
		t.Errorf("%v", got)
	}
	if slices.Contains(again[3:], ids[0]) {
		t.Error("two outages have one id")
	}
}
