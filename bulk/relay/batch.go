package relay

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bulk/client"
)

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
	rows   []*row        // rows with a verdict
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
		r.o.Log.Error("set rows aside; correct them, then set their error to NULL", "rows", n, "first_id", first.id, "error", first.reason)
	}
}

// sort finds a group for each row that was not sent yet. ready has the rows to send, and fresh reports whether a mark must be
// written to one of them first. sealing has the rows that ask for a seal. After a failure, which concerns the whole server, no
// later row is sorted.
func (r *Relay) sort(ctx context.Context, rows []*row, now time.Time) (ready []*row, fresh bool, sealing []*row, failure error) {
	for _, w := range rows {
		if w.seal {
			if sealing = append(sealing, w); !w.group.Valid {
				w.verdict, w.reason = aside, "seal is set and group_id is NULL: set group_id to the group to seal"
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
			if !strings.HasSuffix(w.sentTo.String, again) { // the relay that wrote the mark may still run: it leaves changed rows alone
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
	case refused && (ofTenant(p) || p.Status == http.StatusConflict): // such as chunk_open: another upload to the group
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
