package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// tendBound is how many jobs one step of housekeeping touches.
const tendBound = 500

// Tend does one bounded step of housekeeping of a group: it sweeps cancelled jobs and drops data past its retention.
func (s groupStore) Tend(ctx context.Context, group string) (Tended, error) {
	r, err := s.run(ctx, "group_tend", group, tendBound)
	if err != nil {
		return Tended{}, err
	}
	if r.refusal() == "not_found" {
		return Tended{Removed: true}, nil
	}
	s.concluded(r, 6)
	chain := parseChain(r[min(9, len(r)):])
	return Tended{Chained: len(chain.followers)+len(chain.asks) > 0, chain: chain, Again: r.int(0) == 1, Reduce: r.int(1) == 1, Callback: r.int(2) == 1, Removed: r.int(3) == 1, DeadGone: r.int(4), Sealed: r.int(5) == 1, Part: r.int(8) > 0}, nil
}

// BeginReduce takes over the reduction of a group and fences off earlier reducers.
func (s outcomeStore) BeginReduce(ctx context.Context, group string) (Reduction, error) {
	r, err := s.reduce(ctx, "begin", group, 0, "", 0, nil, 0)
	if err != nil {
		return Reduction{}, err
	}
	g, err := parseGroup(list(r.at(4)))
	if err != nil {
		return Reduction{}, err
	}
	last := g.LastAddedAt
	if g.LastOutcomeAt.After(last) {
		last = g.LastOutcomeAt
	}
	return Reduction{Group: g.Group, Fence: r.int(1), Cursor: r.string(2), State: []byte(r.string(3)), Silent: g.ReadAt.Sub(last), short: g.key, widest: g.widest}, nil
}

func (s outcomeStore) reduce(ctx context.Context, verb, group string, fence int64, cursor string, n int64, state []byte, status int) (reply, error) {
	r, err := s.run(ctx, "group_reduce", verb, group, fence, cursor, n, state, status)
	if err != nil {
		return nil, err
	}
	return r, groupRefusal(r.refusal(), group, r)
}

// CommitReduce writes state and cursor together. n is how many outcomes were reduced since the last commit. ok is
// false if another reducer has taken over.
func (s outcomeStore) CommitReduce(ctx context.Context, group string, fence int64, cursor string, n int64, state []byte) (ok bool, err error) {
	r, err := s.reduce(ctx, "commit", group, fence, cursor, n, state, 0)
	return err == nil && r.int(0) == replyReduced, err
}

// Finish ends an AGGREGATING group whose outcomes are all reduced: COMPLETED, or FAILED by its tolerance, with its
// result; a CANCELLED one only gets its result. ok is false if another reducer has taken over or outcomes are left.
func (s outcomeStore) Finish(ctx context.Context, group string, fence int64, result []byte) (g Group, ok bool, err error) {
	if g, err = s.Group(ctx, group); err != nil {
		return g, false, err
	}
	status := Completed
	if g.Tolerance.Exceeded(g.Failed+g.Dead, g.Total) {
		status = Failed
	}
	r, err := s.reduce(ctx, "finish", group, fence, "", 0, result, statusNumber(status))
	if err != nil || r.int(0) != replyReduced {
		return g, false, err
	}
	f, err := parseGroup(list(r.at(4)))
	return f.Group, err == nil, err
}

// thousandths returns a share in thousandths of a percent, 0 for a count.
func (t Tolerance) thousandths() int64 {
	if !t.Share {
		return 0
	}
	return int64(math.Round(t.Percent * 1000))
}

// most returns the count or the share as scripts read it.
func (t Tolerance) most() string {
	if t.Share {
		return strconv.FormatFloat(t.Percent, 'g', -1, 64)
	}
	return strconv.FormatInt(t.Count, 10)
}

// Exceeded reports whether so many failures of so many jobs exceed the tolerance.
func (t Tolerance) Exceeded(failed, total int64) bool {
	if t.Share {
		return float64(failed)*100 > t.Percent*float64(total)
	}
	return failed > t.Count
}

// CallbackDone records a callback of an ended group. With ok it was delivered. Otherwise it is due again after again
// or, with last, given up.
func (s groupStore) CallbackDone(ctx context.Context, group string, ok, last bool, again time.Duration) error {
	result := "again"
	switch {
	case ok:
		result = "done"
	case last:
		result = "failed"
	}
	r, err := s.run(ctx, "group_called", group, result, again.Microseconds())
	if err != nil {
		return err
	}
	return groupRefusal(r.refusal(), group, r)
}

// Lock takes the lock of a group, or of a key that concerns several shards, for d. The lock of a group only saves work: what it
// guards is fenced, so an expired lock does no harm. The work under that of a key is bounded to end before the lock does; a script
// that Redis receives late is not. ok is false if another process has it.
func (s groupStore) Lock(ctx context.Context, group string, d time.Duration) (unlock func(), ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	key, owner := lockKey(s.o.Prefix, s.o.Shard, group), rand.Text()
	ok, err = s.o.Client.SetNX(ctx, key, owner, d).Result()
	switch {
	case redis.HasErrorPrefix(err, "OOM"):
		return func() {}, true, nil // a full store has no room for locks, and housekeeping makes room
	case err != nil:
		return nil, false, fmt.Errorf("%w: lock: %w", ErrStore, err)
	case !ok:
		return nil, false, nil
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
		defer cancel()
		// A lock that cannot be released expires after d.
		_, _ = s.scripts.Run(ctx, "lock_release", []string{key}, s.now(), owner)
	}, true, nil
}
