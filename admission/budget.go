package admission

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// BudgetUse is the state of an origin's budget as the store last reported it.
type BudgetUse struct {
	Rate, Burst int64 // thousandths
	Spare       int64 // visitors that could be admitted now, beyond what rooms hold leases for
	Granted     int64 // since the store began
	Short       int64 // how often a room wanted more than it got, since the store began
	Queues      int64 // rooms with a queue

	number int64 // the greatest number of the leases of this process
}

// lease holds what this process knows of a room's leases of its origin's budget. ticker.ticking guards it, except the atomic
// fields.
type lease struct {
	identity
	view *view

	// The number of the room's newest lease, what is left of it, what the room needs by the next tick, and what it keeps
	// while nobody waits.
	number, left, want, keep int64
	asked                    int64       // mono of the last call
	due                      int64       // mono at which to ask before the next tick; 0: ask with the next tick
	late                     bool        // due has passed
	tight                    bool        // repay when the lease is spent, not with the next tick
	unreached                atomic.Bool // the last call to the budget failed

	joined   atomic.Int64 // tickets enrolled here since the last tick
	expected atomic.Int64 // thousandths per second; 0: unknown
}

// uses holds the newest BudgetUse of each origin.
type uses struct {
	mu sync.Mutex
	m  map[string]BudgetUse
}

// BudgetUse returns the state of the budget of an origin; false before a room of it was ticked.
func (c *Core) BudgetUse(origin string) (BudgetUse, bool) {
	c.uses.mu.Lock()
	defer c.uses.mu.Unlock()
	u, ok := c.uses.m[origin]
	return u, ok
}

// Expected returns the rate at which the room can count on to admit while it has a queue, in thousandths of a visitor per second:
// its own or, where that is less, its share of the origin's budget beside the other rooms that have queues.
func (r *lease) Expected() int64 {
	s := r.view.Snapshot()
	rate := s.Policy.Rate
	if s.Rate > 0 {
		rate = s.Rate
	}
	rate = min(rate, s.MaxRate(r.c.o.Tick))
	if !s.Policy.Budgeted {
		return rate
	}
	if e := r.expected.Load(); e > 0 {
		return min(rate, e)
	}
	return min(rate, s.Policy.Budget.Rate)
}

// chunk is the least time between two leases that a process asks for, unless a visitor joined a room without a queue.
const chunk = 100 * time.Millisecond

// borrow asks for a lease of the origin's budget and returns it in the form of room_advance; "" where the room has no budget or
// there is nothing to lease. A lost reply costs the units of its lease. A lease that comes too late is void:
// its end is counted from before the call, on the clock of the room's node.
func (r *lease) borrow(ctx context.Context, grant bool) (string, error) {
	p := r.view.schedule.Load().Policy
	if !p.Budgeted {
		return "", nil
	}
	asked := r.c.mono()
	want := r.want
	if grant {
		joined := r.joined.Swap(0)
		came := joined > 0 && want == 0 && r.keep > 0
		if came {
			want = min(joined, r.keep)
		}
		if asked-r.asked < int64(chunk) && !came && r.asked > 0 && !r.late {
			return "", nil
		}
		r.asked, r.due = asked, 0
	}
	before, _ := r.c.BudgetUse(p.Budget.Origin)
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	v, err := r.c.scripts.Run(ctx, "origin_lease", budgetKeys(r.c.o.Prefix, p.Budget.Origin), r.c.now(),
		r.id, p.Budget.Rate, p.Budget.Burst, p.Budget.Weight, want, r.keep, r.number, r.left, oneIf(grant), before.number)
	if err != nil {
		return "", err
	}
	if len(v) != 10 {
		return "", fmt.Errorf("origin_lease replied %v", v)
	}
	number, units, life := asInt(v[0]), asInt(v[1]), asInt(v[2])
	r.tight = asInt(v[3]) == 1
	r.expected.Store(asInt(v[4]))
	if due := asInt(v[9]); due > 0 {
		r.due = r.c.mono() + due*int64(time.Microsecond)
	}
	r.c.uses.mu.Lock()
	r.c.uses.m[p.Budget.Origin] = BudgetUse{
		Rate: p.Budget.Rate, Burst: p.Budget.Burst, Spare: asInt(v[5]), Granted: asInt(v[6]), Short: asInt(v[7]), Queues: asInt(v[8]),
		number: max(number, r.c.uses.m[p.Budget.Origin].number),
	}
	r.c.uses.mu.Unlock()
	a := r.view.anchor.Load()
	if number == 0 || a == nil {
		return "", nil
	}
	till := a.wall + (asked-a.replied)/int64(time.Microsecond) + life
	lease := itoa(number) + " " + itoa(units) + " " + itoa(till)
	if e := r.expected.Load(); e > 0 {
		lease += " " + itoa(e)
	}
	return lease, nil
}

// noteBudget logs when the origin's budget cannot be reached, and when it can again.
func (r *lease) noteBudget(err error) {
	was := r.unreached.Swap(err != nil)
	switch {
	case err != nil && !was:
		r.c.o.Log.Error("cannot reach the origin's budget; the room admits nobody until it can", "room", r.id, "origin", r.view.schedule.Load().Policy.Budget.Origin, "error", err)
	case err == nil && was:
		r.c.o.Log.Info("the origin's budget can be reached again", "room", r.id)
	}
}

// borrowed records how much of the lease room_advance has spent and how much the room wants.
func (r *lease) borrowed(rest []any) {
	r.number, r.left, r.want, r.keep = asInt(rest[3]), asInt(rest[4]), asInt(rest[5]), asInt(rest[6])
}

// repay reports a spent lease immediately where the budget would otherwise not fill up.
func (r *lease) repay(ctx context.Context) error {
	if !r.tight || r.left > 0 {
		return nil
	}
	r.tight = false
	_, err := r.borrow(ctx, false)
	return err
}
