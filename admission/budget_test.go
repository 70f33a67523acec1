package admission

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// sharing is rooms of one origin on several gateways, and a bucket that is the budget's promise: whatever they admit together
// is taken from it, and must be there.
type sharing struct {
	t     rapid.TB
	test  *testing.T
	clock *testClock
	redis redis.UniversalClient
	cores []*Core
	rooms [][]*Room // by gateway
	in    []int64   // admissions of each room so far
	bound TokenBucket
	joins int64
}

func newSharing(test *testing.T, t rapid.TB, client redis.UniversalClient, prefix string, gateways int, policies ...Policy) *sharing {
	s := &sharing{t: t, test: test, clock: newTestClock(), redis: client, in: make([]int64, len(policies))}
	b := policies[0].Budget
	s.bound = TokenBucket{Level: b.Burst * 1_000_000, At: s.clock.us, Rate: b.Rate, Burst: b.Burst}
	for range gateways {
		core, err := New(Options{Client: client, Prefix: prefix, Timeout: 5 * time.Second, Log: quiet(), Now: s.clock.now})
		if err != nil {
			t.Fatal(err)
		}
		s.cores = append(s.cores, core)
		s.rooms = append(s.rooms, make([]*Room, len(policies)))
	}
	s.configure(policies...)
	return s
}

// configure is a reload of all gateways.
func (s *sharing) configure(policies ...Policy) {
	for g, core := range s.cores {
		for i, p := range policies {
			s.rooms[g][i] = core.Room("room-"+strconv.Itoa(i), p)
		}
	}
}

// join enrols n visitors at a room, or lets them in.
func (s *sharing) join(gateway, room, n int) {
	qs := make([]enterQ, n)
	for i := range qs {
		qs[i] = enterQ{kind: "arrive", id: testID(), grace: 3600}
	}
	for len(qs) > 0 {
		k := min(len(qs), batchMost)
		r := s.rooms[gateway][room]
		answers, err := r.sendEnter(s.test.Context(), qs[:k])
		if err != nil {
			s.t.Fatal(err)
		}
		for _, a := range answers {
			if a.code == "W" {
				r.lease.joined.Add(1)
			}
		}
		qs = qs[k:]
	}
	s.judge()
}

func (s *sharing) tick(gateway, room int) {
	if err := s.rooms[gateway][room].Tick(s.test.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.judge()
}

// judge takes from the bucket what was admitted since the last call; all of it now.
func (s *sharing) judge() {
	s.bound.Refill(s.clock.us)
	for i, r := range s.rooms[0] {
		n, err := s.redis.HGet(s.test.Context(), r.keys[0], "admissions").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			s.t.Fatal(err)
		}
		if n < s.in[i] {
			s.in[i] = n // its store lost it
		}
		s.bound.Take(n - s.in[i])
		s.in[i] = n
	}
	if s.bound.Level < 0 {
		s.t.Fatalf("over the budget by %d millionths of a visitor", -s.bound.Level/1000)
	}
}

// run ticks every gateway every 250 ms, out of step, for so long, and gives what each room admitted.
func (s *sharing) run(d time.Duration, between func()) []int64 {
	before := append([]int64(nil), s.in...)
	n := len(s.cores) * len(s.in)
	step := 250 * time.Millisecond / time.Duration(n)
	for i := 0; d > 0; i, d = i+1, d-step {
		s.clock.pass(step)
		s.tick(i%len(s.cores), i/len(s.cores)%len(s.in))
		if between != nil {
			between()
		}
	}
	got := make([]int64, len(s.in))
	for i := range got {
		got[i] = s.in[i] - before[i]
	}
	return got
}

func budgeted(rate, burst, weight, own int64) Policy {
	p := basePolicy
	p.Rate, p.Burst, p.Absence = own, max(1000, own), time.Hour
	p.Budgeted = true
	p.Budget = Budget{Origin: "shop", Rate: rate, Burst: burst, Weight: weight, Weights: weight}
	return p
}

// over runs a test on a server and on a cluster of one node.
func overBoth(t *testing.T, f func(t *testing.T, client redis.UniversalClient)) {
	t.Run("server", func(t *testing.T) { f(t, redistest.Client(t)) })
	t.Run("cluster", func(t *testing.T) { f(t, redistest.Cluster(t)) })
}

// Shares go by weight, all of the budget is used, and what one room does not use the others get at once.
func TestBudgetIsSharedByWeightAndUsedUp(t *testing.T) {
	overBoth(t, func(t *testing.T, client redis.UniversalClient) {
		const rate = 80_000
		for _, gateways := range []int{1, 3} {
			s := newSharing(t, t, client, redistest.Prefix(t), gateways,
				budgeted(rate, rate, 3000, 1_000_000), budgeted(rate, rate, 1000, 1_000_000), budgeted(rate, rate, 1000, 1_000_000))
			s.run(2*time.Second, nil)
			s.join(0, 0, 3000)
			s.join(0, 1, 900)
			s.run(time.Second, nil)
			got := s.run(10*time.Second, nil)
			t.Log(gateways, "gateways:", got)
			if got[0]+got[1] < 776 || got[2] != 0 {
				t.Errorf("%d gateways: %v of 800 admitted", gateways, got)
			}
			if got[0] < 570 || got[1] < 190 {
				t.Errorf("%d gateways: %v, want three to one", gateways, got)
			}
			for s.in[1] < 900 {
				s.run(time.Second, nil)
			}
			if got := s.run(time.Second, nil); got[0] < 72 {
				t.Errorf("%d gateways: %v in the second after the other room was empty, want 80", gateways, got)
			}
		}
	})
}

func TestXRates(t *testing.T) {
	for _, rate := range []int64{500, 1000, 2000, 5000, 20_000, 200_000, 3_000_000} {
		for _, gateways := range []int{1, 2, 4, 8} {
			s := newSharing(t, t, redistest.Client(t), redistest.Prefix(t), gateways, budgeted(rate, max(1000, rate), 1000, 20_000_000))
			s.run(2*time.Second, nil)
			s.join(0, 0, min(18000, int(60*rate/1000+10)))
			s.run(2*time.Second, nil)
			d := 40 * time.Second
			if rate > 1_000_000 {
				d = time.Second
			}
			got := s.run(d, nil)
			fmt.Println(rate, gateways, got, float64(got[0])/(float64(rate)/1000*d.Seconds()))
		}
	}
}
