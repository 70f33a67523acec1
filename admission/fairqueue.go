package admission

import (
	"context"
	"errors"
	"fmt"
)

// FairQueue shares units (requests of an origin's budget, slots, bytes) between flows by start-time fair queuing, in the
// store: the fair library of the bulk engine's scripts, standing alone. For two flows that have work throughout, what they
// were granted by weight differs by at most one visit of each: |n_i/w_i − n_j/w_j| ≤ batch/w_i + batch/w_j. Who comes back
// from idleness starts level with the others.
type FairQueue struct {
	c    *Core
	keys []string
}

// FairFlow is what has a share. Weight is in thousandths, 1 to 1,600,000 (a level's 16 times 100).
type FairFlow struct {
	ID            string
	Units, Weight int64
}

// FairShare is one visit of a pull: what a flow was granted.
type FairShare struct {
	Flow  string
	Units int64
}

// MaxShare bounds the units of one Pull, and MaxFlows the flows of one Put or Add.
const (
	MaxShare = 10_000
	MaxFlows = 1000
)

// ErrFlow is wrapped by errors about a flow, or a pull, that is out of range.
var ErrFlow = errors.New("fair queue")

// FairQueue gives the fair queue of that name; tag names its unit of atomicity, as "origin:shop".
func (c *Core) FairQueue(tag, name string) *FairQueue {
	return &FairQueue{c: c, keys: fairKeys(c.o.Prefix, tag, name)}
}

// fairKeys builds the keys of a fair queue, in the order in which its scripts take them.
func fairKeys(prefix, tag, name string) []string {
	keys := []string{"active", "idle", "backlog", "weights", "clock"}
	for i, k := range keys {
		keys[i] = prefix + ":{" + tag + "}:fair:" + name + ":" + k
	}
	return keys
}

// Put says what work the flows have now, and their weights. A flow without any leaves the queue.
func (q *FairQueue) Put(ctx context.Context, flows ...FairFlow) error {
	return q.put(ctx, "set", flows)
}

// Add adds to the work of flows (or takes from it, down to none) and sets their weights.
func (q *FairQueue) Add(ctx context.Context, flows ...FairFlow) error {
	return q.put(ctx, "add", flows)
}

func (q *FairQueue) put(ctx context.Context, how string, flows []FairFlow) error {
	if len(flows) > MaxFlows {
		return fmt.Errorf("%w: %d flows in one call; at most %d", ErrFlow, len(flows), MaxFlows)
	}
	args := make([]any, 0, 2+3*len(flows))
	args = append(args, q.c.now(), how)
	for _, f := range flows {
		if f.ID == "" || f.Weight < 1 || f.Weight > 1_600_000 {
			return fmt.Errorf("%w: flow %q has weight %d/1000; give it a name and a weight of 1 to 1,600,000", ErrFlow, f.ID, f.Weight)
		}
		args = append(args, f.ID, f.Units, f.Weight)
	}
	_, err := q.run(ctx, "fair_put", args)
	return err
}

// Pull grants up to want units (at most MaxShare) of the work there is, up to batch of them to a flow before the next one's
// turn, in the order of the visits. What it grants leaves the work of its flow.
func (q *FairQueue) Pull(ctx context.Context, want, batch int64) ([]FairShare, error) {
	if want < 1 || want > MaxShare || batch < 1 {
		return nil, fmt.Errorf("%w: a pull of %d units in batches of %d; ask for 1 to %d, in batches of at least 1", ErrFlow, want, batch, MaxShare)
	}
	res, err := q.run(ctx, "fair_pull", []any{q.c.now(), want, batch})
	if err != nil {
		return nil, err
	}
	v, ok := res.([]any)
	if !ok || len(v)%2 != 0 {
		return nil, fmt.Errorf("fair_pull answered %v", res)
	}
	shares := make([]FairShare, 0, len(v)/2)
	for i := 0; i < len(v); i += 2 {
		flow, _ := v[i].(string)
		shares = append(shares, FairShare{flow, asInt(v[i+1])})
	}
	return shares, nil
}

func (q *FairQueue) run(ctx context.Context, script string, args []any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, q.c.o.Timeout)
	defer cancel()
	res, err := q.c.runner.Run(ctx, q.c.scripts.Script(script), q.keys, args...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return res, nil
}
