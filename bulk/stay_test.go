package bulk

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// busyLanes returns lanes that share workers, in turns, after a pull that left jobs. Their jobs take run.
func busyLanes(n, workers int, run time.Duration) []*pulls {
	first := newPool(workers, 4000)
	first.ahead.mean = run
	all := []*pulls{newPulls(first)}
	for len(all) < n {
		all = append(all, newPulls(first.lane()))
	}
	for _, p := range all {
		p.pool.pulled(true, false)
	}
	return all
}

// pull takes a turn for all free workers, and ends it after d. It fails the test if the lane has to wait.
func (p *pulls) pull(t *testing.T, d time.Duration, more, full bool) {
	t.Helper()
	p.begin(t.Context(), 200)
	n := p.reserved()
	if n == 0 {
		t.Fatal("the lane waits")
	}
	time.Sleep(d)
	p.end(n, more, full)
}

// end ends a turn for which n workers were reserved. Its jobs have ended.
func (p *pulls) end(n int, more, full bool) {
	p.pool.drop(n)
	p.pool.pulled(more, full)
}

// Every shard with jobs is visited within stayRound, all for the same time, and a visit is many pulls long.
func TestStay_LanesShareARound(t *testing.T) {
	const pullFor = time.Millisecond
	for _, lanes := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*stayRound)
				defer cancel()
				var mu sync.Mutex
				var visits []int // lane of each pull
				last, longest := make([]time.Time, lanes), make([]time.Duration, lanes)
				var wg sync.WaitGroup
				for i, p := range busyLanes(lanes, 50, 100*time.Microsecond) {
					last[i] = time.Now()
					wg.Go(func() {
						for {
							if _, ok := p.pool.wait(ctx, 200, nil); !ok {
								return
							}
							n := p.pool.hold(200)
							mu.Lock()
							visits = append(visits, i)
							longest[i] = max(longest[i], time.Since(last[i]))
							mu.Unlock()
							time.Sleep(pullFor)
							last[i] = time.Now()
							p.end(n, true, true)
						}
					})
				}
				wg.Wait()
				pulls, changes := make([]int, lanes), 0
				for k, i := range visits {
					if pulls[i]++; k > 0 && visits[k-1] != i {
						changes++
					}
				}
				least, most := slices.Min(pulls), slices.Max(pulls)
				if got := slices.Max(longest); got > stayRound+time.Duration(2*lanes)*pullFor {
					t.Errorf("a shard waited for %s, want at most about %s", got, stayRound)
				}
				if most-least > 2*int(stayFor(lanes)/pullFor) {
					t.Errorf("pulls of the lanes: %v, want as many of each but for one stay", pulls)
				}
				if visit := len(visits) / (changes + 1); visit < int(stayFor(lanes)/pullFor)*3/4 {
					t.Errorf("a visit has %d pulls, want about %d", visit, stayFor(lanes)/pullFor)
				}
			})
		})
	}
}

// Jobs that arrive in an idle shard wait for one pull, not for the end of a stay, however many shards have jobs.
func TestStay_IdleLanePullsBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := busyLanes(3, 50, 100*time.Microsecond)
		a, b, idle := all[0], all[1], all[2]
		idle.pool.pulled(false, false)
		a.pull(t, time.Millisecond, true, true)
		b.begin(t.Context(), 200)
		a.begin(t.Context(), 200)
		if n, m := a.reserved(), b.reserved(); n != 50 || m != 0 {
			t.Fatalf("reserved %d workers for the lane that stays and %d for the other, want 50 and 0", n, m)
		}
		idle.begin(t.Context(), 200)
		synctest.Wait()
		a.end(50, true, true)
		a.begin(t.Context(), 200)
		if n, m, k := idle.reserved(), a.reserved(), b.reserved(); n != 50 || m != 0 || k != 0 {
			t.Fatalf("reserved %d workers for the idle lane, %d and %d for those with jobs, want 50 for the first", n, m, k)
		}
		idle.end(50, true, true) // it has many jobs now
		idle.begin(t.Context(), 200)
		synctest.Wait()
		if n, m, k := a.reserved(), b.reserved(), idle.reserved(); n != 50 || m != 0 || k != 0 {
			t.Errorf("then %d workers for the lane that stays, %d and %d for the others, want 50 for the first", n, m, k)
		}
	})
}

// What ends a stay lets the lane pull that has waited.
func TestStay_Ends(t *testing.T) {
	none := func(*pulls) {}
	for name, c := range map[string]struct {
		run      time.Duration // mean run time of jobs
		more     bool
		full     bool
		then     func(*pulls)
		stays    bool
		untilEnd time.Duration
	}{
		"not, with short jobs":                {time.Millisecond, true, true, none, true, stayFor(2)},
		"its time is over":                    {time.Millisecond, true, true, func(*pulls) { time.Sleep(stayFor(2)) }, false, 0},
		"fewer jobs than it asked for":        {time.Millisecond, true, false, none, false, 0},
		"the shard has no more jobs":          {time.Millisecond, false, true, none, false, 0},
		"jobs take long":                      {2 * stayMost, true, true, none, false, 0},
		"the process may not pull from there": {time.Millisecond, true, true, func(p *pulls) { p.pool.endStay() }, false, 0},
		"its acks fill the window":            {time.Millisecond, true, true, func(p *pulls) { p.pool.unacked = 4050 }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := busyLanes(2, 50, c.run)
				a, b := all[0], all[1]
				a.pull(t, time.Millisecond, c.more, c.full)
				c.then(a)
				began := time.Now()
				b.begin(t.Context(), 200)
				if n := b.reserved(); (n == 0) != c.stays {
					t.Fatalf("the other lane reserved %d workers", n)
				}
				if !c.stays {
					return
				}
				<-b.got // the lane that stays does not come back
				if took := time.Since(began); took > c.untilEnd+2*time.Millisecond {
					t.Errorf("the other lane waited for %s, want %s", took, c.untilEnd)
				}
			})
		})
	}
}

// A shard that halts during its stay holds up the others no longer than in a single turn.
func TestStay_EndsIfTheShardHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := busyLanes(2, 50, 100*time.Microsecond)
		halted, b := all[0], all[1]
		halted.pull(t, time.Millisecond, true, true)
		halted.begin(t.Context(), 20)
		if n := halted.reserved(); n != 20 {
			t.Fatalf("reserved %d workers, want 20", n)
		}
		began := time.Now()
		b.begin(t.Context(), 200)
		synctest.Wait()
		if n := <-b.got; n != 30 || time.Since(began) > turnFor+time.Millisecond {
			t.Errorf("reserved %d workers after %s, want 30 after %s", n, time.Since(began), turnFor)
		}
		b.end(30, true, true)
		b.begin(t.Context(), 200)
		if n := b.reserved(); n != 30 {
			t.Errorf("reserved %d workers, want 30: the shard has lost its turn", n)
		}
	})
}

// With enough workers for a whole pull of both, another lane pulls during a stay.
func TestStay_WholePullsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := busyLanes(2, 450, 100*time.Microsecond)
		a, b := all[0], all[1]
		a.begin(t.Context(), 200)
		if n := a.reserved(); n != 200 {
			t.Fatalf("reserved %d workers, want 200", n)
		}
		a.end(200, true, true)
		b.begin(t.Context(), 200)
		if n := b.reserved(); n != 200 {
			t.Errorf("the other lane reserved %d of 450 free workers, want 200", n)
		}
	})
}

// Acks that are left to the fetcher do not wait for the end of another lane's stay.
func TestStay_AcksAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := busyLanes(2, 50, 100*time.Microsecond)
		a, b := all[0], all[1]
		acks := newAcker(nil, b.pool, newRegistry(), nil, nil, nil, 200)
		acks.leave(true)
		acks.add(&run{}, pendingAck{}.ack)
		a.pull(t, time.Millisecond, true, true)
		ctx, cancel := context.WithCancel(t.Context())
		b.begin(ctx, 200)
		a.begin(t.Context(), 20)
		if n, m := a.reserved(), b.reserved(); n != 20 || m != 0 {
			t.Fatalf("reserved %d and %d workers, want 20 and 0", n, m)
		}
		time.Sleep(leaveFor)
		if d := acks.patience(); d > 0 {
			t.Errorf("acks wait for %s while another lane stays", d)
		}
		cancel()
		synctest.Wait()
		a.end(20, true, true)
	})
}

// A process that may not pull from a shard for now does not keep the turn for it.
func TestLanes_EndStayOfShardThatIsNotPreferred(t *testing.T) {
	busy := busyLanes(2, 50, 100*time.Microsecond)
	all := lanes{{pool: busy[0].pool}, {pool: busy[1].pool}}
	all[0].preference.busy.Store(true)
	all[1].preference.secondary.Store(true)
	all[1].pool.pulled(true, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all.turn(ctx, all[1]); all[1].pool.turn.stay.of != nil {
		t.Error("the lane that waits for the preferred shards still stays")
	}
}
