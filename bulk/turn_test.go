package bulk

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// pulls is a lane that pulls in a test.
type pulls struct {
	pool *pool
	got  chan int // workers that each turn reserved
}

// begin waits for a turn and reserves workers. It does not end the turn.
func (p *pulls) begin(ctx context.Context, most int) {
	go func() {
		if free, ok := p.pool.wait(ctx, most, nil); ok && free > 0 {
			p.got <- p.pool.hold(most)
		}
	}()
}

func newPulls(p *pool) *pulls { return &pulls{pool: p, got: make(chan int, 1)} }

// reserved returns what the lane has reserved, or 0 if it still waits.
func (p *pulls) reserved() int {
	synctest.Wait()
	select {
	case n := <-p.got:
		return n
	default:
		return 0
	}
}

func TestTurn_LanesPullOneAfterTheOtherForAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newPool(50, 400)
		a, b, c := newPulls(first), newPulls(first.lane()), newPulls(first.lane())
		a.begin(t.Context(), 200)
		if n := a.reserved(); n != 50 {
			t.Fatalf("the first lane reserved %d of 50 workers", n)
		}
		b.begin(t.Context(), 200)
		synctest.Wait()
		c.begin(t.Context(), 200)
		a.pool.drop(10) // the shard had 40 jobs
		for range 40 {
			a.pool.start()
		}
		for range 25 { // a part of them ends during the turn
			a.pool.finish()
		}
		if n, m := b.reserved(), c.reserved(); n+m != 0 {
			t.Errorf("other lanes reserved %d and %d workers during the first lane's turn", n, m)
		}
		for range 15 {
			a.pool.finish()
		}
		a.pool.pulled(true, false)
		a.begin(t.Context(), 200) // at the end of the queue
		if n, m, k := b.reserved(), c.reserved(), a.reserved(); n != 50 || m != 0 || k != 0 {
			t.Errorf("after the first turn the lanes reserved %d, %d and %d workers, want 50 for the second", n, m, k)
		}
		b.pool.drop(50)
		b.pool.pulled(false, false)
		if n, k := c.reserved(), a.reserved(); n != 50 || k != 0 {
			t.Errorf("after the second turn the others reserved %d and %d workers, want 50 for the third", n, k)
		}
		c.pool.drop(50)
		c.pool.pulled(false, false)
		if n := a.reserved(); n != 50 {
			t.Errorf("the first lane reserved %d workers in its second turn", n)
		}
	})
}

func TestTurn_WholePullsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newPool(100, 400)
		a, b, c := newPulls(first), newPulls(first.lane()), newPulls(first.lane())
		for i, p := range []*pulls{a, b} {
			if p.begin(t.Context(), 50); p.reserved() != 50 {
				t.Errorf("lane %d waits, though there are workers for a pull of each", i)
			}
		}
		c.begin(t.Context(), 50)
		if n := c.reserved(); n != 0 {
			t.Errorf("the third lane reserved %d workers of none", n)
		}
		a.pool.drop(20)
		if n := c.reserved(); n != 0 {
			t.Errorf("the third lane reserved %d workers during another turn", n)
		}
		b.pool.drop(50)
		b.pool.pulled(false, false)
		if n := c.reserved(); n != 50 {
			t.Errorf("the third lane reserved %d workers, want 50", n)
		}
	})
}

// A shard that halts during its pull holds up the others only for a moment, and its late end does not end their turns.
func TestTurn_EndsIfTheShardHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newPool(50, 400)
		halted, b, c := newPulls(first), newPulls(first.lane()), newPulls(first.lane())
		halted.begin(t.Context(), 20)
		if n := halted.reserved(); n != 20 {
			t.Fatalf("reserved %d workers, want 20", n)
		}
		b.begin(t.Context(), 40)
		if n := b.reserved(); n != 0 {
			t.Fatalf("reserved %d workers during another turn", n)
		}
		began := time.Now()
		select {
		case n := <-b.got:
			if took := time.Since(began); n != 30 || took > turnFor+time.Millisecond {
				t.Errorf("reserved %d workers after %s, want 30 after %s", n, took, turnFor)
			}
		case <-time.After(time.Second):
			t.Fatal("the shard that halts keeps its turn")
		}
		b.pool.drop(10)
		halted.pool.drop(20)
		halted.pool.pulled(false, false)
		c.begin(t.Context(), 40)
		if n := c.reserved(); n != 0 {
			t.Errorf("the late end of a turn ended the next one: %d workers reserved", n)
		}
		b.pool.pulled(true, false)
		if n := c.reserved(); n != 30 {
			t.Errorf("reserved %d workers, want 30", n)
		}
	})
}

// A lane that stops waiting passes its turn on.
func TestTurn_IsPassedOnByALaneThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newPool(10, 400)
		a, b, c := newPulls(first), newPulls(first.lane()), newPulls(first.lane())
		a.begin(t.Context(), 10)
		_ = a.reserved()
		ctx, cancel := context.WithCancel(t.Context())
		b.begin(ctx, 10)
		synctest.Wait()
		c.begin(t.Context(), 10)
		cancel()
		synctest.Wait()
		a.pool.drop(10)
		a.pool.pulled(false, false)
		if n := c.reserved(); n != 10 || len(first.turn.waiting) != 0 {
			t.Errorf("reserved %d workers, want 10; %d lanes wait", n, len(first.turn.waiting))
		}
	})
}

// Acks wait for the pull of their lane while it waits for its turn.
func TestAcker_LeavesAcksWhileTheLaneAwaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newPool(10, 400)
		a, b := newPulls(first), newPulls(first.lane())
		acks := newAcker(nil, b.pool, newRegistry(), nil, nil, nil, 200)
		acks.leave(true)
		acks.add(&run{}, pendingAck{}.ack)
		a.begin(t.Context(), 10)
		_ = a.reserved()
		b.begin(t.Context(), 10)
		synctest.Wait()
		time.Sleep(10 * leaveFor)
		if d := acks.patience(); d <= 0 {
			t.Errorf("the acker does not wait: %s", d)
		}
		a.pool.drop(10)
		a.pool.pulled(false, false)
		_ = b.reserved()
		if d := acks.patience(); d > 0 {
			t.Errorf("the acker waits for %s in the lane's own turn", d)
		}
	})
}
