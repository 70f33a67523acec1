package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/lend"
)

// lendTimeout bounds a call of Lend: leases last for some calls, and a shard that is away must not delay the others.
const lendTimeout = 300 * time.Millisecond

// LendNumber returns a number greater than that of every earlier call of Lend. The caller numbers its calls from it on.
func (s rateStore) LendNumber(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	n, err := s.o.Client.HIncrBy(ctx, s.keys[keyState], "lender", 1).Result()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return n * 1e9, nil // more calls than one process makes
}

// Lend changes the leases of this shard and returns them with the shard's needs. superseded reports that another lender has
// called with a greater number, so nothing was changed.
func (s rateStore) Lend(ctx context.Context, number int64, c lend.Call) (r lend.Reply, superseded bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(lendTimeout, s.o.Timeout/4))
	defer cancel()
	args := []any{number, c.Till, lend.After.Microseconds(), *s.limits.Load()}
	for _, name := range slices.Sorted(maps.Keys(c.Shares)) {
		share := c.Shares[name]
		args = append(args, name, share.Rate, share.Burst, share.Concurrency, share.Tokens, share.Whole.Rate, share.Whole.Concurrency)
	}
	got, err := s.run(ctx, "rates_lend", args...)
	if err != nil {
		return r, false, err
	}
	r = lend.Reply{Counted: got.int(0) == 1, Now: got.int(1), Starts: got.int(2), Shares: map[string]lend.Share{}}
	for i := 3; i+10 < len(got); i += 11 {
		r.Shares[got.string(i)] = lend.Share{Rate: got.int(i + 1), Burst: got.int(i + 2), Concurrency: got.int(i + 3), Tokens: got.int(i + 4),
			Running: got.int(i + 5), Need: int(got.int(i + 6)), Whole: lend.Limit{Rate: got.int(i + 7), Burst: got.int(i + 8), Concurrency: got.int(i + 9), Shards: shardBytes(got.string(i + 10))}}
	}
	return r, got.int(0) == 2, nil
}

// shardBytes returns numbers of shards, separated by commas, as lend.Limit has them.
func shardBytes(list string) string {
	var b []byte
	for word := range strings.SplitSeq(list, ",") {
		if n, err := strconv.ParseUint(word, 10, 8); err == nil {
			b = append(b, byte(n))
		}
	}
	return string(b)
}
