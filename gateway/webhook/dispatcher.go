package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/outbox"
	"github.com/anteroom/anteroom/gateway/span"
	"github.com/anteroom/anteroom/internal/tracing"
)

const (
	// mostInFlight is how many deliveries run at once, and mostPerEndpoint how many of one endpoint.
	mostInFlight, mostPerEndpoint = 16, 4

	turnEvery   = time.Second
	callTimeout = 2 * time.Second
	lostTimeout = 5 * time.Second // of the deliveries for which the loop waits
)

// Queue is the part of outbox.Queue that a Dispatcher uses.
type Queue interface {
	Note(ctx context.Context, changes []outbox.Change) ([]bool, error)
	Take(ctx context.Context, gateway string, most int, fields []string) (outbox.Work, error)
	Settle(ctx context.Context, outcomes ...outbox.Outcome) error
}

var _ Queue = (*outbox.Queue)(nil)

// Options of a Dispatcher. All but Tracer are required.
type Options struct {
	Queue   Queue
	Gateway string // names this process among its peers
	// Rooms returns the rooms as they are now, without Health.
	Rooms func() []Room
	// Health returns the health of an origin. Only the gateway that sends calls it.
	Health  func(ctx context.Context, origin string) (admission.OriginHealth, error)
	Tracer  func() *tracing.Tracer // returns the tracer of deliveries; nil: none
	Metrics *Metrics
	Log     *slog.Logger
}

// Dispatcher watches rooms and sends their events.
type Dispatcher struct {
	o       Options
	current atomic.Pointer[sender]

	stores *stores
	watch  *watcher // nil: another gateway sends

	slots    chan struct{}
	mu       sync.Mutex
	inFlight map[string]int // by endpoint
	sends    sync.WaitGroup
}

// New returns a Dispatcher without endpoints. It starts nothing.
func New(o Options) *Dispatcher {
	d := &Dispatcher{o: o, stores: newStores(), slots: make(chan struct{}, mostInFlight), inFlight: map[string]int{}}
	d.current.Store(&sender{})
	return d
}

// SetEndpoints replaces the endpoints. Events that are queued for an endpoint without that name now become dead. Its error names the setting.
func (d *Dispatcher) SetEndpoints(endpoints []Endpoint) error {
	next, err := newSender(endpoints)
	if err != nil {
		return err
	}
	old := d.current.Swap(next)
	old.close()
	for i := range old.endpoints {
		if name := old.endpoints[i].Name; next.endpoint(name) == nil {
			d.o.Metrics.forget(name)
		}
	}
	return nil
}

// Endpoints returns the endpoints.
func (d *Dispatcher) Endpoints() []Endpoint { return d.current.Load().endpoints }

// Run works until ctx ends. It then waits for the deliveries that run; what they have not settled is sent again later.
func (d *Dispatcher) Run(ctx context.Context) error {
	t := time.NewTicker(turnEvery)
	defer t.Stop()
	defer func() { d.current.Load().close() }()
	defer d.sends.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := d.turn(ctx, time.Now()); err != nil && ctx.Err() == nil && !errors.Is(err, admission.ErrStore) {
			d.o.Log.Error("cannot process the events of webhooks; will try again", "error", err)
		}
	}
}

// turn watches once, and starts the deliveries that are due.
func (d *Dispatcher) turn(ctx context.Context, now time.Time) error {
	s := d.current.Load()
	if len(s.endpoints) == 0 {
		return nil
	}
	rooms := d.o.Rooms()
	d.stores.watch(now, rooms, s.endpoints)
	d.sendLost(ctx, s, now)

	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	names := fields(rooms)
	work, err := d.o.Queue.Take(call, d.o.Gateway, cap(d.slots)-len(d.slots), names)
	if err != nil {
		return err
	}
	recorded := make(map[string]string, len(names))
	for i, name := range names[:min(len(names), len(work.States))] {
		recorded[name] = work.States[i]
	}
	d.stores.learn(rooms, recorded)
	d.o.Metrics.show(s.endpoints, &work)
	for _, event := range work.Events {
		d.start(ctx, s, event)
	}

	notes, returned := d.stores.returned(now, s.endpoints)
	if !work.Holder {
		d.watch = nil
	} else {
		if d.watch == nil {
			d.watch = newWatcher()
		}
		d.readHealth(call, rooms)
		for _, c := range d.watch.changes(now, rooms, recorded) {
			notes = append(notes, c.note(recorded[c.field], s.endpoints))
		}
		notes = append(notes, sessionNotes(call, now, rooms, recorded, s.endpoints)...)
	}
	if len(notes) == 0 {
		return nil
	}
	if _, err := d.o.Queue.Note(call, notes); err != nil {
		return err
	}
	d.stores.recorded(returned)
	return nil
}

// readHealth reads the health of each origin once. An origin whose health cannot be read is unknown.
func (d *Dispatcher) readHealth(ctx context.Context, rooms []Room) {
	known := map[string]admission.OriginHealth{}
	for i := range rooms {
		r := &rooms[i]
		h, read := known[r.Origin]
		if !read && r.Origin != "" {
			h, _ = d.o.Health(ctx, r.Origin)
			known[r.Origin] = h
		}
		r.Health = h
	}
}

// sendLost sends that stores were lost, without the store.
func (d *Dispatcher) sendLost(ctx context.Context, s *sender, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	for _, o := range d.stores.due(now) {
		var left []string
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, name := range o.left {
			e := s.endpoint(name)
			if e == nil {
				continue
			}
			all.Go(func() {
				event := outbox.Delivery{Endpoint: name, ID: o.lost.id(), Body: o.lost.body(), Tries: o.tries}
				ctx, try := d.traced(ctx, &event)
				a, err := s.deliver(ctx, e, event.ID, event.Body)
				failed, gone := failure(a, err)
				if failed != nil && !gone {
					d.o.Log.Warn("cannot deliver an event; will retry", "webhook", name, "event", StoreLost, "room", o.room, "error", failed)
					mu.Lock()
					left = append(left, name)
					mu.Unlock()
				}
				try.End(d.count(name, failed, gone), failed)
			})
		}
		all.Wait()
		o.left, o.next = left, now.Add(min(pauseAfter(o.tries, nil), time.Minute))
		o.tries++
	}
}

// traced begins the span of a try, and returns the context of its request.
func (d *Dispatcher) traced(ctx context.Context, event *outbox.Delivery) (context.Context, *span.Delivery) {
	if d.o.Tracer == nil {
		return ctx, nil
	}
	tracer := d.o.Tracer()
	if tracer == nil {
		return ctx, nil
	}
	kind, room := about(event.Body)
	return span.Deliver(ctx, tracer, &span.Event{Trace: traceOf(event.ID), ID: event.ID, Type: kind, Room: room, Webhook: event.Endpoint, Attempt: event.Tries + 1})
}

// count counts a delivery, and returns its outcome.
func (d *Dispatcher) count(name string, failed error, last bool) (outcome string) {
	outcome = "delivered"
	switch {
	case failed != nil && last:
		outcome = "dead"
	case failed != nil:
		outcome = "retry"
	}
	d.o.Metrics.deliveries.WithLabelValues(name, outcome).Inc()
	return outcome
}

// start delivers an event in the background; turn takes no more than there are slots.
func (d *Dispatcher) start(ctx context.Context, s *sender, event outbox.Delivery) {
	d.mu.Lock()
	busy := d.inFlight[event.Endpoint] >= mostPerEndpoint
	if !busy {
		d.inFlight[event.Endpoint]++
	}
	d.mu.Unlock()
	if !busy {
		d.slots <- struct{}{}
	}
	d.sends.Go(func() {
		outcome := outbox.Outcome{Endpoint: event.Endpoint, ID: event.ID, Verdict: outbox.Later, Delay: turnEvery}
		if !busy {
			defer func() {
				<-d.slots
				d.mu.Lock()
				defer d.mu.Unlock()
				d.inFlight[event.Endpoint]--
			}()
			var tried bool
			if outcome, tried = d.send(ctx, s, &event); !tried {
				return // the shutdown interrupted it: it is due again in a while
			}
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		if err := d.o.Queue.Settle(call, outcome); err != nil {
			d.o.Log.Warn("cannot record a delivery; the event will be sent again with the same id", "webhook", event.Endpoint, "id", event.ID, "error", err)
		}
	})
}

// send delivers an event, and reports whether it could be tried.
func (d *Dispatcher) send(ctx context.Context, s *sender, event *outbox.Delivery) (outbox.Outcome, bool) {
	outcome := outbox.Outcome{Endpoint: event.Endpoint, ID: event.ID, Verdict: outbox.Done}
	e := s.endpoint(event.Endpoint)
	if e == nil {
		outcome.Verdict, outcome.Error = outbox.Dead, "no webhook of this name is configured"
		return outcome, true
	}
	traced, try := d.traced(ctx, event)
	a, err := s.deliver(traced, e, event.ID, event.Body)
	if ctx.Err() != nil && err != nil {
		try.End("interrupted", err)
		return outcome, false
	}
	failed, last := failure(a, err)
	if failed == nil {
		try.End(d.count(e.Name, nil, false), nil)
		return outcome, true
	}
	pause := pauseAfter(event.Tries, a)
	last = last || time.Since(time.UnixMicro(event.Since))+pause > GiveUp
	try.End(d.count(e.Name, failed, last), failed)
	if last { // the URL is not logged: it may contain a secret
		outcome.Verdict, outcome.Error = outbox.Dead, failed.Error()
		d.o.Log.Error("cannot deliver an event; giving up. GET /admin/v1/webhooks shows it", "webhook", e.Name, "id", event.ID, "tries", event.Tries+1, "error", failed)
		return outcome, true
	}
	outcome.Verdict, outcome.Delay = outbox.Retry, pause
	d.o.Log.Warn("cannot deliver an event; will retry", "webhook", e.Name, "id", event.ID, "again", pause.Round(time.Second).String(), "error", failed)
	return outcome, true
}

// SendTest sends the event webhook.test to an endpoint, once.
func SendTest(ctx context.Context, e Endpoint) (id string, a *Answer, err error) {
	s, err := newSender([]Endpoint{e})
	if err != nil {
		return "", nil, err
	}
	defer s.close()
	now := time.Now()
	test := event{kind: Test, at: now, data: map[string]any{"webhook": e.Name}, marks: []string{stamp(now)}}
	a, err = s.deliver(ctx, &s.endpoints[0], test.id(), test.body())
	if err != nil {
		return test.id(), nil, err
	}
	failed, _ := failure(a, nil)
	return test.id(), a, failed
}
