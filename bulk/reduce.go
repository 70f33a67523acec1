package bulk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// reducePage is how many outcomes are read and committed at a time. The store returns fewer large ones.
const reducePage = 500

// reductions reads outcomes and keeps the state of their reductions.
type reductions interface {
	Outcomes(ctx context.Context, at *store.Reduction, cursor string, limit int) (store.Page, error)
	BeginReduce(ctx context.Context, group string) (store.Reduction, error)
	CommitReduce(ctx context.Context, group string, fence int64, cursor string, n int64, state []byte) (ok bool, err error)
	Finish(ctx context.Context, group string, fence int64, result []byte) (g store.Group, ok bool, err error)
}

// splits ends split groups, of which each shard has a part.
type splits interface {
	Join(ctx context.Context, shard int, group string) (store.Joining, error)
	OtherParts(ctx context.Context, group string) (others store.OtherParts, settled bool, err error)
	FinishSplit(ctx context.Context, group string, fence int64, result []byte) (g store.Group, ok bool, err error)
}

var _ splits = (*store.Fleet)(nil)

// reducing adds outcomes to their group's aggregate, a page at a time, while the group runs, and ends the group when
// all are added; a cancelled group only gets its result. Cursor and state are committed together under a fence, so
// each outcome is added once, whichever process fails at whatever point.
type reducing struct {
	store    reductions
	splits   splits
	reducers map[string]Reducer
	metrics  *Metrics
	patience time.Duration // how long a group waits for its reducer
}

// group reduces the existing outcomes, until the given time at most. more reports that more may follow. The last
// outcomes of a running group are left: the store names the group again after some thousand, and at its end. A group
// whose reducer is missing or fails for all of patience ends without the reducer's result.
func (r *reducing) group(ctx context.Context, group string, until time.Time) (more bool, err error) {
	at, more, err := r.reduce(ctx, group, until, nil)
	if (errors.Is(err, errNoReducer) || errors.Is(err, errReducer)) && at.Silent > r.patience {
		_, more, err = r.reduce(ctx, group, until, err)
	}
	return more, err
}

// reduce is group; a non-nil without is the reason for leaving out a registered reducer.
func (r *reducing) reduce(ctx context.Context, group string, until time.Time, without error) (at store.Reduction, more bool, err error) {
	at, err = r.store.BeginReduce(ctx, group)
	if err != nil {
		return at, false, err
	}
	g := &at.Group
	all := g.Status == store.Aggregating || g.Status == store.Cancelled // no further outcomes
	if g.Status.Ended() && !all {
		return at, false, nil
	}
	red, err := newReduction(g.Aggregate, at.State, r.reducers, without)
	if err != nil {
		if errors.Is(err, errNoReducer) {
			return at, false, err
		}
		return at, false, reducerFailed(err)
	}
	// The outcomes at the start: without a bound, a running group would be followed a few outcomes at a time.
	left, cursor := g.Succeeded+g.Failed+g.Dead+g.Cancelled-g.Reduced, at.Cursor
	for (left > 0 || g.Status == store.Cancelled) && !strings.HasPrefix(cursor, "+") { // a cancelled group's counts are ahead of its outcomes
		if !time.Now().Before(until) || ctx.Err() != nil {
			return at, true, nil
		}
		want := reducePage
		if g.Status != store.Cancelled {
			want = int(min(reducePage, left))
		}
		page, err := r.store.Outcomes(ctx, &at, cursor, want)
		if err != nil {
			return at, false, err
		}
		n := len(page.Outcomes)
		if n == 0 {
			break
		}
		state, err := take(red, page.Outcomes)
		if err != nil {
			return at, false, reducerFailed(err)
		}
		ok, err := r.store.CommitReduce(ctx, group, at.Fence, page.Next, int64(n), state)
		if err != nil || !ok {
			return at, false, err // not ok: another process reduces the group
		}
		r.metrics.reduced.Add(float64(n))
		more = all
		left -= int64(n)
		cursor = page.Next
	}
	if !all {
		return at, false, nil
	}
	if g.Split > 1 {
		more, err = r.others(ctx, &at, red, cursor, until)
		return at, more, err
	}
	result, err := conclude(red, group)
	if err != nil {
		return at, false, reducerFailed(err)
	}
	ended, ok, err := r.store.Finish(ctx, group, at.Fence, result)
	if err == nil && ok && g.Status == store.Aggregating {
		r.metrics.Concluded(ended.Status, 1)
	}
	return at, more || ok, err
}

// others reduces the outcomes of the other parts of a split group, after those of the first one, and ends the group.
func (r *reducing) others(ctx context.Context, at *store.Reduction, red *reduction, cursor string, until time.Time) (more bool, err error) {
	group := at.Group.ID
	parts, settled, err := r.splits.OtherParts(ctx, group)
	if err != nil || !settled {
		return false, err // the store names the group again
	}
	for ahead := readAhead(ctx, parts, cursor); ; {
		if !time.Now().Before(until) || ctx.Err() != nil {
			return true, nil
		}
		page, err := ahead()
		if err != nil {
			return false, err
		}
		if len(page.Outcomes) > 0 {
			ahead = readAhead(ctx, parts, page.Next)
		} else {
			break
		}
		state, err := take(red, page.Outcomes)
		if err != nil {
			return false, reducerFailed(err)
		}
		ok, err := r.store.CommitReduce(ctx, group, at.Fence, page.Next, 0, state) // the record counts the outcomes of the first part
		if err != nil || !ok {
			return false, err
		}
		r.metrics.reduced.Add(float64(len(page.Outcomes)))
	}
	result, err := conclude(red, group)
	if err != nil {
		return false, reducerFailed(err)
	}
	ended, ok, err := r.splits.FinishSplit(ctx, group, at.Fence, result)
	if err == nil && ok && ended.Status != store.Cancelled {
		r.metrics.Concluded(ended.Status, 1)
	}
	return ok, err
}

// readAhead reads a page of the other parts while the one before is reduced and committed, which is a call to another shard. The
// result waits for it.
func readAhead(ctx context.Context, parts store.OtherParts, cursor string) (wait func() (store.Page, error)) {
	var page store.Page
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		page, err = parts.Outcomes(ctx, cursor, reducePage)
	}()
	return func() (store.Page, error) { <-read; return page, err }
}

// take adds a page and returns the state. A reducer is users' code: its panics are errors.
func take(r *reduction, page []store.Outcome) (state []byte, err error) {
	defer recovered(&err)
	for i := range page {
		if err := r.add(&page[i]); err != nil {
			return nil, err
		}
	}
	return r.marshal()
}

func conclude(r *reduction, group string) (result []byte, err error) {
	defer recovered(&err)
	return r.result(group)
}

func recovered(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("it panicked: %v", cause)
	}
}
