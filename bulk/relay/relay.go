package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/internal/sleep"
)

const (
	// leastPause and Options.Interval bound the time between two reads of an empty table.
	leastPause = 20 * time.Millisecond
	// requestBound and batchBound end a batch that hangs. The database releases its locks after idleBound at the latest.
	requestBound = 30 * time.Second
	batchBound   = 60 * time.Second
	// stopGrace is how long the requests of the current batch may go on after the end of Run's context.
	stopGrace = 5 * time.Second
	// concurrent is how many groups of a batch are sent to at once.
	concurrent = 4
	// fullEvery is how long a pass may miss rows that were committed late, while a tenant waits.
	fullEvery = 5 * time.Second
	// maxExcluded bounds the tenants that a query leaves out.
	maxExcluded = 1000
	// longestPause is the longest wait after a failure, unless the server asks for a longer one.
	longestPause = 30 * time.Second
)

// Options of a Relay. Database and Client are required.
type Options struct {
	Database *Database
	// Client should not retry (a negative Patience): the relay retries, and holds no locks in the database meanwhile.
	Client   *client.Client
	Batch    int           // most rows that are locked and sent at once, up to client.MaxBatch; 500
	Interval time.Duration // longest pause between two reads of an empty table; 1 s
	// Once ends Run when the table has no more rows that can be sent. Patience is how long it retries after a failure.
	Once     bool
	Patience time.Duration
	Metrics  *Metrics     // nil: none
	Log      *slog.Logger // nil: discarded

	// day returns the day in the ids of new groups at a time of the database. Tests that compare ids set it: midnight may pass meanwhile.
	day func(now time.Time) time.Time
}

// Relay moves rows from the outbox into groups. Several relays may work on one table.
type Relay struct {
	o Options

	mu     sync.Mutex // of groups, while a batch is sent
	groups groups

	waits    map[string]*wait // tenants that were refused
	excluded map[string]bool  // tenants left out until the end of the pass, so that their rows keep their order
	after    int64            // the last id of the pass
	moved    int              // rows of the pass that were sent or set aside
	freed    int              // rows of the pass for which another group has to be found
	full     time.Time        // when a pass last began at the first row
	asides   int              // rows set aside since the start
}

// wait is the back-off of a tenant.
type wait struct {
	until time.Time
	next  *backoff.ExponentialBackOff
	cause error
}

// New returns a relay.
func New(o Options) *Relay {
	o.Batch = cmp.Or(o.Batch, 500)
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.day == nil {
		o.day = func(now time.Time) time.Time { return now }
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return &Relay{o: o, groups: newGroups(), waits: map[string]*wait{}, excluded: map[string]bool{}}
}

// Left is the error of a Relay with Once that leaves rows in the table or has set rows aside.
type Left struct {
	Aside   int     // rows that were set aside
	Waiting []error // of tenants whose rows wait
}

func (e *Left) Error() string {
	return errors.Join(append([]error{fmt.Errorf("%d rows were set aside with an error, rows of %d tenants wait", e.Aside, len(e.Waiting))}, e.Waiting...)...).Error()
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 250*time.Millisecond, longestPause
	return b
}

// Run relays rows until ctx ends, or with Once until none is left.
func (r *Relay) Run(ctx context.Context) error {
	failing, pause, begun := time.Time{}, leastPause, false
	next := newBackOff()
	for ctx.Err() == nil {
		end, err := r.step(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil:
			if _, unsuitable := errors.AsType[*Unsuitable](err); unsuitable && !begun {
				return err
			}
			if failing.IsZero() {
				failing = time.Now()
			}
			after := delay(next, err)
			if r.o.Once && time.Since(failing)+after > r.o.Patience {
				return err
			}
			r.o.Log.Warn("cannot relay rows; trying again", "error", err, "pause", after.Round(time.Millisecond).String())
			sleep.For(ctx, after)
			r.full = time.Time{}
			r.rewind()
			continue
		case !end && r.untilDue() > leastPause:
		case !end:
			r.rewind() // for a tenant whose wait is over
		case r.moved > 0:
			pause = leastPause
			r.rewind()
		case r.o.Once && r.freed == 0:
			return r.left()
		default:
			sleep.For(ctx, min(pause, r.untilDue()))
			pause = min(2*pause, r.o.Interval)
			r.rewind()
		}
		failing, begun = time.Time{}, true
		next.Reset()
	}
	return nil
}

// left returns the rows that a run with Once could not move, as a *Left.
func (r *Relay) left() error {
	if r.asides == 0 && len(r.waits) == 0 {
		return nil
	}
	l := &Left{Aside: r.asides}
	for _, tenant := range slices.Sorted(maps.Keys(r.waits)) {
		l.Waiting = append(l.Waiting, r.waits[tenant].cause)
	}
	return l
}

// delay returns the pause after a failure: what the server asks for, or the next of b.
func delay(b *backoff.ExponentialBackOff, err error) time.Duration {
	after := b.NextBackOff()
	if p, ok := errors.AsType[*client.Problem](err); ok {
		after = max(after, p.RetryAfter)
	}
	return after
}

// rewind begins a new pass over the table, with the tenants whose wait is over. While tenants wait, most passes begin after the
// last row that was read, because the rows of these tenants may be many.
func (r *Relay) rewind() {
	r.moved, r.freed = 0, 0
	due := false
	clear(r.excluded)
	for tenant, w := range r.waits {
		switch {
		case !time.Now().Before(w.until):
			due = true
		case len(r.excluded) < maxExcluded:
			r.excluded[tenant] = true
		}
	}
	if due || r.o.Once || len(r.excluded) == 0 || time.Since(r.full) > fullEvery {
		r.after, r.full = 0, time.Now()
	}
	r.groups.forget()
}

// untilDue returns the time until the first tenant's wait is over.
func (r *Relay) untilDue() time.Duration {
	least := time.Duration(1<<63 - 1)
	for _, w := range r.waits {
		least = min(least, max(leastPause, time.Until(w.until)))
	}
	return least
}

// postpone makes a tenant wait after a refusal.
func (r *Relay) postpone(e *tenantError) {
	w := r.waits[e.tenant]
	if w == nil {
		w = &wait{next: newBackOff()}
		r.waits[e.tenant] = w
	}
	after := delay(w.next, e)
	w.until, w.cause = time.Now().Add(after), e
	r.excluded[e.tenant] = true
	r.o.Log.Warn("rows of a tenant wait", "tenant", e.tenant, "error", e.cause, "pause", after.Round(time.Millisecond).String())
}
