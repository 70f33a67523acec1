package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/internal/sleep"
)

const (
	// leastPause and Options.Interval bound the time between two looks at an empty table.
	leastPause = 20 * time.Millisecond
	// requestBound and batchBound end a batch that hangs; the database releases its locks after idleBound at the latest.
	requestBound = 30 * time.Second
	batchBound   = 60 * time.Second
	// stopGrace is how long the requests of the current batch may go on after the end of Run's context.
	stopGrace = 5 * time.Second
	// concurrent is how many groups of a batch are sent to at once.
	concurrent = 4
	// fullEvery is how long a row that was committed late can be overlooked while a tenant waits.
	fullEvery = 5 * time.Second
	// maxExcluded bounds the tenants that a query leaves out.
	maxExcluded = 1000
	// longestPause is the longest wait after a failure, unless the server asks for a longer one.
	longestPause = 30 * time.Second
)

// Options of a Relay. Database and Client are required.
type Options struct {
	Database *Database
	// Client should not retry (a negative Patience): the relay does, without locks in the database meanwhile.
	Client   *client.Client
	Batch    int           // most rows that are locked and sent at once, up to client.MaxBatch; 500
	Interval time.Duration // longest pause between two looks at an empty table; 1 s
	// Once ends Run when the table has no more rows that can be sent. Patience is how long it retries after a failure.
	Once     bool
	Patience time.Duration
	Metrics  *Metrics     // nil: none
	Log      *slog.Logger // nil: discarded
}

// Relay moves rows from the outbox into groups. Several relays may work on one table.
type Relay struct {
	o Options

	mu     sync.Mutex // of groups, while a batch is sent
	groups groups

	waits    map[string]*wait // of tenants that were refused
	excluded map[string]bool  // tenants left out until the end of the pass, so that their rows keep their order
	after    int64            // the last id of the pass
	moved    int              // rows of the pass that were sent or set aside
	freed    int              // rows of the pass for which another group has to be found
	full     time.Time        // when a pass last began at the first row
	asides   int              // rows that were set aside since the start
}

// wait is the back-off of a tenant.
type wait struct {
	until time.Time
	next  *backoff.ExponentialBackOff
	cause error
}

// New returns a relay.
func New(o Options) *Relay {
	if o.Batch == 0 {
		o.Batch = 500
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
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

// left returns what a run with Once could not move.
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

// rewind begins a new pass over the table. Tenants whose wait is over take part in it. While others wait, most passes begin behind
// their rows, which may be many.
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

// step relays one batch. end reports that the pass has reached the end of the table.
func (r *Relay) step(stopped context.Context) (end bool, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stopped), batchBound)
	defer cancel()
	requests, cancelRequests := context.WithTimeout(ctx, requestBound)
	defer cancelRequests()
	defer context.AfterFunc(stopped, func() { time.AfterFunc(stopGrace, cancelRequests) })()

	b, sealing, err := r.batch(ctx, requests)
	if err == nil {
		err = r.seal(ctx, requests, sealing)
	}
	r.o.Metrics.batch(time.Since(began), b, len(r.waits))
	if err != nil {
		r.o.Metrics.failed(err)
		return false, err
	}
	return !b.more, nil
}

// batch is what one batch has done.
type batch struct {
	read   int
	more   bool          // the table may have more rows
	oldest time.Duration // age of the first row
	rows   []*row        // with a verdict
}

// batch moves the next rows of the table. It returns the rows that ask for a seal.
func (r *Relay) batch(ctx, requests context.Context) (done batch, sealing []*row, err error) {
	b := r.o.Database
	tx, err := b.begin(ctx)
	if err != nil {
		return done, nil, b.explain(err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit this does nothing
	rows, more, now, err := tx.read(ctx, r.after, slices.Sorted(maps.Keys(r.excluded)), r.o.Batch)
	if err != nil {
		return done, nil, b.explain(err)
	}
	if done.read, done.more = len(rows), more; len(rows) == 0 {
		return done, nil, nil
	}
	if at := rows[0].created; !at.IsZero() {
		done.oldest = now.Sub(at)
	}
	last := rows[len(rows)-1].id
	ready, fresh, sealing, failure := r.sort(requests, rows, now)
	if failure != nil {
		ready, fresh = nil, false
	}
	if fresh {
		if err := tx.mark(ctx, slices.DeleteFunc(slices.Clone(ready), func(w *row) bool { return !w.marked })); err != nil {
			return done, nil, err
		}
	}
	if err := tx.apply(ctx, rows); err != nil { // the asides
		return done, nil, err
	}
	r.note(&done, rows)
	if fresh {
		if err := tx.Commit(); err != nil {
			return done, nil, err
		}
		if tx, err = b.begin(ctx); err != nil {
			return done, nil, err
		}
		defer func() { _ = tx.Rollback() }() // after a commit this does nothing
		if ready, err = tx.lock(ctx, ready); err != nil {
			return done, nil, err
		}
	}
	if failure == nil {
		failure = r.sendAll(requests, ready)
	}
	if err := tx.apply(ctx, ready); err != nil {
		return done, nil, err
	}
	if err := tx.Commit(); err != nil {
		return done, nil, err
	}
	r.note(&done, ready)
	r.after = last
	return done, sealing, failure
}

// note counts the rows with a verdict.
func (r *Relay) note(done *batch, rows []*row) {
	var first *row
	n := 0
	for _, w := range rows {
		if w.verdict == kept {
			continue
		}
		if w.verdict == aside {
			if n++; first == nil {
				first = w
			}
		}
		if w.verdict == unsent {
			r.freed++
		} else {
			r.moved++
		}
		if w.verdict == accepted || w.verdict == repeated {
			delete(r.waits, w.tenant)
		}
		done.rows = append(done.rows, w)
	}
	r.asides += n
	if first != nil {
		r.o.Log.Error("rows are kept aside; correct them, then set their error to NULL", "rows", n, "first_id", first.id, "error", first.reason)
	}
}

// sort finds a group for each row that was not sent yet. ready are the rows to send, fresh reports whether one of them has a mark to be written. A failure
// concerns the server as a whole; rows before it are ready all the same.
func (r *Relay) sort(ctx context.Context, rows []*row, now time.Time) (ready []*row, fresh bool, sealing []*row, failure error) {
	for _, w := range rows {
		if w.seal {
			if sealing = append(sealing, w); !w.group.Valid {
				w.verdict, w.reason = aside, "seal is set and group_id is NULL: name the group to seal"
				sealing = sealing[:len(sealing)-1]
			}
			continue
		}
		if r.excluded[w.tenant] {
			continue // it was refused within this batch
		}
		if _, wrong := w.job(""); wrong != "" {
			w.verdict, w.reason = aside, wrong
			continue
		}
		if w.tried {
			if !strings.HasSuffix(w.sentTo.String, again) { // its relay may be alive, and finds its mark changed
				w.sentTo.String += again
				w.marked, fresh = true, true
			}
			ready = append(ready, w)
			continue
		}
		to, err := r.choose(ctx, w, now)
		if err == nil {
			w.sentTo.String, w.sentTo.Valid = to.mark(), true
			w.marked = true
			ready, fresh = append(ready, w), true
			continue
		}
		if failure := r.refused(w, err); failure != nil {
			return ready, fresh, sealing, failure
		}
	}
	return ready, fresh, sealing, nil
}

// sendAll sends rows to their groups, several at a time. It sets verdicts.
func (r *Relay) sendAll(ctx context.Context, rows []*row) error {
	var all errgroup.Group
	all.SetLimit(concurrent)
	var refused []*tenantError
	for to, part := range by(rows, (*row).target) {
		r.mu.Lock()
		groupType := r.groups.open[to.group].kind
		r.mu.Unlock()
		all.Go(func() error {
			err := r.send(ctx, to, groupType, part)
			if e, ok := errors.AsType[*tenantError](err); ok {
				r.mu.Lock()
				defer r.mu.Unlock()
				refused = append(refused, e)
				return nil
			}
			return err
		})
	}
	err := all.Wait()
	for _, e := range refused {
		r.postpone(e)
	}
	return err
}

// seal seals the groups of rows that ask for it, once no other row of a group is left, and deletes these rows.
func (r *Relay) seal(ctx, requests context.Context, rows []*row) error {
	for _, w := range rows {
		if err := r.sealOne(ctx, requests, w); err != nil {
			return err
		}
	}
	return nil
}

func (r *Relay) sealOne(ctx, requests context.Context, w *row) error {
	tx, err := r.o.Database.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit this does nothing
	id := w.group.String
	if busy, err := tx.has(ctx, id); err != nil || busy {
		return err
	}
	_, err = r.ensure(requests, id, w) // a group without jobs is created
	if err == nil {
		_, err = r.o.Client.Seal(requests, id)
	}
	_, closed := errors.AsType[*closedError](err)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "not_found" { // deleted: the next pass creates it again
		delete(r.groups.open, id)
		r.freed++
		return nil
	}
	if err == nil || closed {
		r.groups.close(id)
		w.verdict = accepted
	} else if failure := r.refused(w, err); failure != nil {
		return failure
	}
	if err := tx.apply(ctx, []*row{w}); err != nil {
		return err
	}
	r.note(new(batch), []*row{w})
	return tx.Commit()
}

// refused sets aside a row whose group cannot be created, or postpones its tenant. It returns errors that concern the server as a
// whole.
func (r *Relay) refused(w *row, err error) error {
	_, closed := errors.AsType[*closedError](err)
	_, foreign := errors.AsType[*foreignError](err)
	p, refused := errors.AsType[*client.Problem](err)
	switch {
	case closed, foreign, refused && (p.Status == http.StatusUnprocessableEntity || p.Status == http.StatusBadRequest):
		w.verdict, w.reason = aside, err.Error()
	case refused && (ofTenant(p) || p.Status == http.StatusConflict): // as chunk_open, another upload to the group
		r.postpone(&tenantError{w.tenant, p})
	default:
		return err
	}
	return nil
}

// ofTenant reports whether a refusal concerns the tenant and may pass: its quota, or a token that is not for it.
func ofTenant(p *client.Problem) bool {
	return p.Status == http.StatusTooManyRequests && p.Code != "too_many_attempts" || p.Status == http.StatusForbidden
}
