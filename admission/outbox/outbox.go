package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/redisstore"
)

const (
	// MostPending is how many events an endpoint may have in the queue; further ones are dropped and counted.
	MostPending = 2000
	// MostDead is how many dead events are kept for operators.
	MostDead = 500

	// leaseTime is how long the queue waits for the gateway that sends before another takes over.
	leaseTime = 5 * time.Second
	// hidden is the time after which an event that was taken and not settled is due again. It is longer than a delivery takes.
	hidden = 30 * time.Second
)

// Codes that webhooks_take replies.
const (
	replyHolder = "H"
	replyOther  = "O"
)

// Runner runs scripts on the store, as redisstore.Store.
type Runner interface {
	Run(ctx context.Context, script string, keys []string, args ...any) (redisstore.Reply, error)
}

// Options of a Queue. Run is required.
type Options struct {
	Run    Runner
	Prefix string // of every key
	// Now replaces Redis's clock (µs) in tests.
	Now func() int64
}

// Queue is the queue of events in the store. Its methods are safe for concurrent use; they leave deadlines to the caller.
type Queue struct {
	run    Runner
	prefix string
	now    func() int64 // µs, 0 for Redis's clock
}

// New starts nothing.
func New(o Options) *Queue {
	if o.Now == nil {
		o.Now = func() int64 { return 0 }
	}
	return &Queue{run: o.Run, prefix: o.Prefix, now: o.Now}
}

// Change is a state that was seen, and the event that is queued if it differs from the recorded one.
type Change struct {
	// Field names the state; "" queues the event in any case.
	Field string
	// Expected is the state that must be recorded, or nothing happens; "": any. Initial stands for a state that was never recorded.
	Expected, Initial string
	Value             string // "" removes the field
	ID, Body          string // of the event
	Endpoints         []string
}

// Note records states and queues the events of those that have changed. It reports for each whether it had changed.
func (q *Queue) Note(ctx context.Context, changes []Change) ([]bool, error) {
	args := []any{q.now(), MostPending}
	for _, c := range changes {
		args = append(args, c.Field, c.Expected, c.Initial, c.Value, c.ID, c.Body, len(c.Endpoints))
		for _, e := range c.Endpoints {
			args = append(args, e)
		}
	}
	r, err := q.run.Run(ctx, "webhooks_note", keysOf(q.prefix, "state", "due", "bodies", "counts"), args...)
	if err != nil {
		return nil, err
	}
	if len(r) != len(changes) {
		return nil, fmt.Errorf("webhooks_note replied %d values for %d states", len(r), len(changes))
	}
	moved := make([]bool, len(r))
	for i := range r {
		moved[i] = r.Int(i) == 1
	}
	return moved, nil
}

// Delivery is an event for an endpoint.
type Delivery struct {
	Endpoint, ID, Body string
	Tries              int   // before this one
	Since              int64 // when it was queued, µs of Redis's clock
}

// Work is what Take found.
type Work struct {
	Holder bool     // this gateway sends
	States []string // of the fields that were asked for; "": not recorded
	Counts Counts
	Events []Delivery
}

// Counts has the numbers of each endpoint since the queue began in this store.
type Counts map[string]Count

// Count is the state of one endpoint.
type Count struct{ Pending, Delivered, Dead, Dropped int64 }

// Take asks for the lease on behalf of a gateway. If the gateway holds it, Take returns up to most events that are due; each has to be
// settled, or is due again after half a minute. fields are states to read.
func (q *Queue) Take(ctx context.Context, gateway string, most int, fields []string) (Work, error) {
	args := []any{q.now(), gateway, leaseTime.Microseconds(), most, hidden.Microseconds()}
	for _, f := range fields {
		args = append(args, f)
	}
	r, err := q.run.Run(ctx, "webhooks_take", keysOf(q.prefix, keyNames...), args...)
	if err != nil {
		return Work{}, err
	}
	w := Work{Counts: countsOf(redisstore.List(r.At(2)))}
	switch r.String(0) {
	case replyHolder:
		w.Holder = true
	case replyOther:
	default:
		return Work{}, fmt.Errorf("webhooks_take replied %v", r)
	}
	for _, v := range redisstore.List(r.At(1)) {
		w.States = append(w.States, redisstore.String(v))
	}
	events := redisstore.List(r.At(3))
	for i := 0; i+1 < len(events); i += 2 {
		d, err := parseDelivery(events.String(i), events.String(i+1))
		if err != nil {
			return Work{}, err
		}
		w.Events = append(w.Events, d)
	}
	return w, nil
}

func parseDelivery(member, entry string) (Delivery, error) {
	endpoint, id, ok := strings.Cut(member, " ")
	parts := strings.SplitN(entry, "|", 3)
	if ok && len(parts) == 3 {
		tries, errTries := strconv.Atoi(parts[0])
		since, errSince := strconv.ParseInt(parts[1], 10, 64)
		if errTries == nil && errSince == nil {
			return Delivery{Endpoint: endpoint, ID: id, Body: parts[2], Tries: tries, Since: since}, nil
		}
	}
	return Delivery{}, fmt.Errorf("webhooks_take replied the event %q with %q", member, entry)
}

func countsOf(list redisstore.Reply) Counts {
	counts := Counts{}
	for i := 0; i+1 < len(list); i += 2 {
		what, endpoint, _ := strings.Cut(list.String(i), " ")
		c := counts[endpoint]
		switch n := list.Int(i + 1); what {
		case "pending":
			c.Pending = n
		case "delivered":
			c.Delivered = n
		case "dead":
			c.Dead = n
		case "dropped":
			c.Dropped = n
		}
		counts[endpoint] = c
	}
	return counts
}

// Verdict is what happens to an event after a delivery.
type Verdict string

// The verdicts.
const (
	Done  Verdict = "done"
	Retry Verdict = "retry" // after Delay
	Later Verdict = "later" // after Delay; the event was not sent, so no try is counted
	Dead  Verdict = "dead"
)

// Outcome is the end of a delivery.
type Outcome struct {
	Endpoint, ID string
	Verdict      Verdict
	Delay        time.Duration
	Error        string // of Dead
}

// Settle records outcomes.
func (q *Queue) Settle(ctx context.Context, outcomes ...Outcome) error {
	args := []any{q.now(), MostDead}
	for _, o := range outcomes {
		args = append(args, o.Endpoint, o.ID, string(o.Verdict), o.Delay.Microseconds(), o.Error)
	}
	_, err := q.run.Run(ctx, "webhooks_settle", keysOf(q.prefix, "due", "bodies", "dead", "counts"), args...)
	return err
}

// Letter is a dead event.
type Letter struct {
	Endpoint, ID string
	Since, At    int64 // when it was queued and given up, µs of Redis's clock
	Tries        int
	Error        string // of the last try
	Body         string
}

// parseLetter reads what webhooks_settle wrote.
func parseLetter(text string) (l Letter, err error) {
	line, rest, _ := strings.Cut(text, "\n")
	var length int
	if _, err = fmt.Sscanf(line, "%s %s %d %d %d %d", &l.Endpoint, &l.ID, &l.Since, &l.At, &l.Tries, &length); err == nil && (length < 0 || length > len(rest)) {
		err = errors.New("it is cut")
	}
	if err != nil {
		return Letter{}, fmt.Errorf("webhooks_read replied the dead event %q: %w", text, err)
	}
	l.Error, l.Body = rest[:length], rest[length:]
	return l, nil
}

// Report is the state of the queue for operators.
type Report struct {
	Holder string // the gateway that sends; "": none
	Counts Counts
	Dead   []Letter // newest first
}

// Read returns the state of the queue with up to most dead events.
func (q *Queue) Read(ctx context.Context, most int) (Report, error) {
	r, err := q.run.Run(ctx, "webhooks_read", keysOf(q.prefix, "lease", "dead", "counts"), q.now(), most)
	if err != nil {
		return Report{}, err
	}
	report := Report{Holder: r.String(0), Counts: countsOf(redisstore.List(r.At(1)))}
	for _, text := range redisstore.List(r.At(2)) {
		l, err := parseLetter(redisstore.String(text))
		if err != nil {
			return Report{}, err
		}
		report.Dead = append(report.Dead, l)
	}
	return report, nil
}
