package store

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/lend"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// lending is a fleet with a lender under a clock of its own.
type lending struct {
	*Fleet
	t       *testing.T
	c       *clock
	lender  *lend.Lender
	earlier bool // it is of an earlier version, and lends no limits of groups
	number  int64
	away    map[int]bool // shards that the lender does not reach
	idle    map[int]bool // shards without workers
	starts  []int64      // µs
	by      map[int]int  // starts by shard
	cost    int64        // of jobs
}

func newLending(t *testing.T, shards int, change func(*Settings)) *lending {
	t.Helper()
	c := &clock{us: 1_700_000_000_000_000}
	set := Defaults()
	change(&set)
	f, err := NewFleet(Options{Shards: shards, Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: set, Now: c.now, Log: slog.New(slog.DiscardHandler)}, redistest.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &lending{Fleet: f, t: t, c: c, away: map[int]bool{}, by: map[int]int{}}
}

// work adds a group with jobs to a shard.
func (l *lending) work(shard, jobs int) {
	l.t.Helper()
	spec := GroupSpec{Tenant: "acme", Type: "t"}
	for p, n := l.placing.last.Load(), 0; spec.ID == "" || p.homes(spec.ID, p.clock())[0] != shard; n++ {
		spec.ID = fmt.Sprintf("g%d-%d", l.c.us, n)
	}
	if _, _, err := l.CreateGroup(l.t.Context(), spec); err != nil {
		l.t.Fatal(err)
	}
	for from := 0; from < jobs; from += MaxAdd {
		list := make([]Job, min(MaxAdd, jobs-from))
		for i := range list {
			list[i] = Job{ID: fmt.Sprintf("j%d", from+i), Cost: l.cost, Payload: []byte("1")}
		}
		if _, err := l.AddJobs(l.t.Context(), spec.ID, Chunk{}, list); err != nil {
			l.t.Fatal(err)
		}
	}
}

// step is 50 ms: the shards start what they may, in any order, and the lender calls them every 200 ms.
func (l *lending) step(n int) {
	l.t.Helper()
	for range n {
		l.c.us += 50_000
		for _, i := range rand.Perm(len(l.shards)) {
			s := l.shards[i]
			if l.idle[i] {
				continue
			}
			jobs := pull(l.t, s, 100).Jobs
			for range jobs {
				l.starts, l.by[i] = append(l.starts, l.c.us), l.by[i]+1
			}
			if len(jobs) > 0 {
				ack(l.t, s, Done, jobs...)
			}
		}
		l.call()
	}
}

func (l *lending) begin() {
	l.t.Helper()
	number, err := l.shards[0].LendNumber(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	l.number, l.lender = number, lend.New(len(l.shards), time.Duration(l.c.us)*time.Microsecond)
}

// within checks that no interval has more starts than rate and burst allow.
func (l *lending) within(rate, burst float64) {
	l.t.Helper()
	for from := range l.starts {
		for to := from; to < len(l.starts); to++ {
			most := rate*float64(l.starts[to]-l.starts[from])/1e6 + burst
			if n := float64(to - from + 1); n > most+1e-6 {
				l.t.Fatalf("%v jobs started in the %d ms from %d ms on, where %.1f may", n, (l.starts[to]-l.starts[from])/1000, (l.starts[from]-l.starts[0])/1000, most)
			}
		}
	}
}

// The global rate holds over all shards, whoever needs it, while the lender is there, away or new, and while a shard is away.
func TestLend_HoldsTheGlobalRate(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	l := newLending(t, 3, func(s *Settings) { s.Global, s.Burst = 40, 6 })
	l.work(0, 2000)
	l.step(40)
	l.within(40, 6)
	l.begin()
	l.step(100) // it waits for a former lender, then shard 0 gets nearly all
	before := len(l.starts)
	l.step(60)
	if n := len(l.starts) - before; n < 105 {
		t.Errorf("one shard has work, and %d jobs started in 3 s at 40 a second", n)
	}
	l.work(1, 2000)
	l.work(2, 2000)
	l.step(20)
	clear(l.by)
	l.step(60)
	for i := range 3 {
		if l.by[i] < 30 || l.by[i] > 50 {
			t.Errorf("starts by shard of 120: %v", l.by)
		}
	}
	l.away[1] = true // it goes on alone, with its part in the end
	l.step(200)
	clear(l.by)
	l.step(60)
	if l.by[1] < 30 || l.by[0]+l.by[2] < 65 {
		t.Errorf("starts by shard of 120 while shard 1 is out of reach: %v", l.by)
	}
	l.away[1] = false
	l.step(40)
	l.lender = nil
	l.step(200)
	clear(l.by)
	l.step(60)
	for i := range 3 {
		if l.by[i] < 35 {
			t.Errorf("starts by shard of 120 without a lender: %v", l.by)
		}
	}
	l.begin()
	l.step(40)
	l.within(40, 6)
	if found, err := l.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// A rate of few jobs goes from shard to shard, with the tokens that are left.
func TestLend_SharesARateOfFewJobs(t *testing.T) {
	l := newLending(t, 3, func(s *Settings) { s.Global, s.Burst = 5, 1 })
	for i := range 3 {
		l.work(i, 500)
	}
	l.begin()
	l.step(200)
	clear(l.by)
	l.step(400)
	l.within(5, 1)
	if all := l.by[0] + l.by[1] + l.by[2]; all < 75 || slices.Min([]int{l.by[0], l.by[1], l.by[2]}) < 20 {
		t.Errorf("starts by shard of 100: %v", l.by)
	}
}

// A job that costs more than a shard's part of the burst starts when its shard has the whole.
func TestLend_StartsJobsThatCostMoreThanAPart(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	l := newLending(t, 3, func(s *Settings) { s.Global, s.Burst = 40, 6 })
	l.cost = 4
	l.begin()
	l.step(80)
	for i := range 3 {
		l.work(i, 200)
	}
	l.step(300)
	l.within(10, 1.5)
	if all := l.by[0] + l.by[1] + l.by[2]; all < 90 || slices.Min([]int{l.by[0], l.by[1], l.by[2]}) < 15 {
		t.Errorf("starts by shard of 150: %v", l.by)
	}
}

// The limits of a type and of a tenant hold over all shards.
func TestLend_HoldsLimitsOfTypesAndTenants(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	for name, change := range map[string]func(l *lending){
		"type": func(l *lending) {
			set := l.Settings()
			set.Types = map[string]TypeLimit{"t": {Rate: 12, Concurrency: 2}}
			if err := l.Configure(set); err != nil {
				t.Fatal(err)
			}
		},
		"tenant": func(l *lending) {
			if _, err := l.SetTenant(t.Context(), Tenant{Name: "acme", Rate: 12, Concurrency: 2}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLending(t, 3, func(*Settings) {})
			change(l)
			for i := range 3 {
				l.work(i, 300)
			}
			l.begin()
			running := map[int][]Leased{}
			for range 240 {
				l.c.us += 50_000
				for i, s := range l.shards {
					jobs := pull(t, s, 100).Jobs
					for range jobs {
						l.starts, l.by[i] = append(l.starts, l.c.us), l.by[i]+1
					}
					running[i] = append(running[i], jobs...)
				}
				if n := len(running[0]) + len(running[1]) + len(running[2]); n > 2 {
					t.Fatalf("%d jobs run at once", n)
				}
				for i, s := range l.shards {
					if len(running[i]) > 0 && rand.IntN(4) == 0 {
						ack(t, s, Done, running[i]...)
						running[i] = nil
					}
				}
				l.call()
			}
			l.within(12, 1.2)
			if slices.Min([]int{l.by[0], l.by[1], l.by[2]}) < 8 {
				t.Errorf("starts by shard: %v", l.by)
			}
			for i, s := range l.shards {
				if len(running[i]) > 0 {
					ack(t, s, Done, running[i]...)
				}
			}
			if found, err := l.Audit(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("audit: %v, %v", found, err)
			}
		})
	}
}

// A shard that is always full goes down to a smaller concurrency of a type or tenant: no job starts in the place of one that has ended.
func TestLend_ReducesAConcurrencyThatIsAlwaysFull(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, l *lending, concurrency int64){
		"type": func(t *testing.T, l *lending, concurrency int64) {
			set := l.Settings()
			set.Types = map[string]TypeLimit{"t": {Concurrency: concurrency}}
			if err := l.Configure(set); err != nil {
				t.Fatal(err)
			}
		},
		"tenant": func(t *testing.T, l *lending, concurrency int64) {
			if _, err := l.SetTenant(t.Context(), Tenant{Name: "acme", Concurrency: concurrency}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLending(t, 3, func(*Settings) {})
			change(t, l, 9)
			l.work(1, 600)
			l.begin()
			var running []Leased
			step := func() {
				l.c.us += 50_000
				running = append(running, pull(t, l.shards[1], 100).Jobs...)
				l.call()
			}
			for range 140 {
				step()
			}
			if n := len(running); n < 6 || n > 9 {
				t.Fatalf("one shard alone has jobs, and %d of 9 run", n)
			}
			for _, concurrency := range []int64{4, 2} {
				change(t, l, concurrency)
				for range 12 { // calls that find the shard full
					step()
				}
				for range 60 {
					ack(t, l.shards[1], Done, running[0])
					running = running[1:]
					step()
				}
				if n := int64(len(running)); n < 1 || n > concurrency {
					t.Errorf("%d jobs run at once, %d may", n, concurrency)
				}
			}
			// A concurrency that is given back is used again.
			change(t, l, 9)
			for range 60 {
				step()
			}
			if n := len(running); n < 6 || n > 9 {
				t.Errorf("one shard alone has jobs, and %d of 9 run", n)
			}
			ack(t, l.shards[1], Done, running...)
			if found, err := l.Audit(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("audit: %v, %v", found, err)
			}
		})
	}
}

// call has the lender call the shards, every 200 ms.
func (l *lending) call() {
	l.t.Helper()
	if l.lender == nil || l.c.us/50_000%4 != 0 {
		return
	}
	now := time.Duration(l.c.us) * time.Microsecond
	for i, call := range l.lender.Calls(now) {
		l.number++
		if l.away[i] {
			l.lender.Failed(i)
			continue
		}
		if l.earlier {
			maps.DeleteFunc(call.Shares, func(name string, _ lend.Share) bool { return strings.HasPrefix(name, "#") })
		}
		r, _, err := l.shards[i].Lend(l.t.Context(), l.number, call)
		if err != nil {
			l.t.Fatal(err)
		}
		if l.earlier {
			maps.DeleteFunc(r.Shares, func(name string, _ lend.Share) bool { return strings.HasPrefix(name, "#") })
		}
		l.lender.Replied(i, now, r)
	}
}
