package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// reducePage is how many outcomes are read, and committed, at a time. The store returns fewer where they are large.
const reducePage = 500

// outcomes are read from here.
type outcomes interface {
	Outcomes(ctx context.Context, at *store.Reduction, cursor string, limit int) (store.Page, error)
}

// reductions are kept here.
type reductions interface {
	BeginReduce(ctx context.Context, group string) (store.Reduction, error)
	CommitReduce(ctx context.Context, group string, fence int64, cursor string, n int64, state []byte) (ok bool, err error)
	Finish(ctx context.Context, group string, fence int64, result []byte) (g store.Group, ok bool, err error)
}

// reducing takes outcomes into their group's aggregate, a page at a time, while the group runs, and ends the group when all are
// in; a cancelled group only gets its result. Cursor and state are committed together under a fence, so each outcome is taken in once whoever breaks off where.
type reducing struct {
	outcomes outcomes
	store    reductions
	reducers map[string]Reducer
	metrics  *Metrics
	patience time.Duration // for how long a group waits for its reducer
}

// group reduces what is there, until the given time at most. more says that there may be more to do at once. The last outcomes
// of a group that runs are no reason: the store names it again when there are some thousand, and at its end. A group whose
// reducer is missing, or fails, for as long as patience ends without what the reducer would have made.
func (r *reducing) group(ctx context.Context, group string, until time.Time) (more bool, err error) {
	at, more, err := r.reduce(ctx, group, until, nil)
	if (errors.Is(err, errNoReducer) || errors.Is(err, errReducer)) && at.Silent > r.patience {
		_, more, err = r.reduce(ctx, group, until, err)
	}
	return more, err
}

// reduce is group; without is why a reducer of the team's own is left out; nil: it is not.
func (r *reducing) reduce(ctx context.Context, group string, until time.Time, without error) (at store.Reduction, more bool, err error) {
	at, err = r.store.BeginReduce(ctx, group)
	if err != nil {
		return at, false, err
	}
	g := &at.Group
	all := g.Status == store.Aggregating || g.Status == store.Cancelled // no outcome comes any more
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
	// What there was when it began: one that went on until there is nothing would follow a group that runs a few outcomes at a time.
	left := g.Succeeded + g.Failed + g.Dead + g.Cancelled - g.Reduced
	for cursor := at.Cursor; left > 0 || g.Status == store.Cancelled; { // the count of a cancelled one is ahead of its outcomes
		if !time.Now().Before(until) || ctx.Err() != nil {
			return at, true, nil
		}
		want := reducePage
		if g.Status != store.Cancelled {
			want = int(min(reducePage, left))
		}
		page, err := r.outcomes.Outcomes(ctx, &at, cursor, want)
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
			return at, false, err // not ok: another reducer goes on
		}
		r.metrics.reduced.Add(float64(n))
		more = all
		left -= int64(n)
		cursor = page.Next
	}
	if !all {
		return at, false, nil
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

// take takes a page in and gives the state after it. A reducer is a team's own code: its panics are errors.
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
