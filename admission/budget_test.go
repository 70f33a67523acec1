package admission

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission/limiter"
	"github.com/anteroom/anteroom/internal/redistest"
)

// sharing is rooms of one origin on several gateways, and a token bucket as the bound of the budget: all their admissions are
// taken from it, and it must never be overdrawn.
type sharing struct {
	t     rapid.TB
	test  *testing.T
	clock *testClock
	redis redis.UniversalClient
	cores []*Core
	rooms [][]*Room // by gateway
	in    []int64   // admissions of each room so far
	bound limiter.TokenBucket
	relax int64               // until then the bound is the looser of two configurations
	next  limiter.TokenBucket // the bound from then on
}

func newSharing(test *testing.T, t rapid.TB, client redis.UniversalClient, prefix string, gateways int, policies ...Policy) *sharing {
	s := &sharing{t: t, test: test, clock: newTestClock(), redis: client, in: make([]int64, len(policies))}
	b := policies[0].Budget
	s.bound = limiter.TokenBucket{Level: b.Burst * 1_000_000, At: s.clock.us, Rate: b.Rate, Burst: b.Burst}
	for range gateways {
		core, err := New(Options{Client: client, Prefix: prefix, Timeout: patience, Log: quiet(), Now: s.clock.now})
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

// join enrols n visitors at a room, or admits them.
func (s *sharing) join(gateway, room, n int) {
	qs := make([]enterQ, n)
	for i := range qs {
		qs[i] = enterQ{kind: "arrive", id: testID(), hold: time.Hour}
	}
	for len(qs) > 0 {
		k := min(len(qs), batchMost)
		r := s.rooms[gateway][room]
		answers, err := r.calls.sendEnter(s.test.Context(), qs[:k])
		if err != nil {
			s.t.Fatal(err)
		}
		for _, a := range answers {
			if a.code == replyWaiting {
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

// reload configures all gateways. What was leased before may be used for a while.
func (s *sharing) reload(policies ...Policy) {
	b := policies[0].Budget
	s.next = limiter.TokenBucket{Rate: b.Rate, Burst: b.Burst}
	s.bound.Refill(s.clock.us)
	s.bound.Rate, s.bound.Burst = max(s.bound.Rate, b.Rate), max(s.bound.Burst, b.Burst)
	s.bound.Level = s.bound.Burst * 1_000_000
	s.relax = s.clock.us + 2_000_000
	s.configure(policies...)
}

// judge takes all admissions since the last call from the bucket, at the present time.
func (s *sharing) judge() {
	if s.relax > 0 && s.clock.us >= s.relax {
		s.bound, s.relax = s.next, 0
		s.bound.At, s.bound.Level = s.clock.us, s.bound.Burst*1_000_000
	}
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

// run ticks every gateway every 250 ms, out of step, for d, and returns how many each room admitted.
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

// play ticks every gateway at its own pauses, with a random delay, for d, and returns how many each room admitted.
func (s *sharing) play(d time.Duration) []int64 {
	before := append([]int64(nil), s.in...)
	chance := rand.New(rand.NewPCG(1, 2))
	type loop struct {
		gateway, room int
		at            int64
	}
	var loops []loop
	for g := range s.cores {
		for i := range s.in {
			loops = append(loops, loop{g, i, s.clock.us + chance.Int64N(250_000)})
		}
	}
	for end := s.clock.us + d.Microseconds(); ; {
		l := &loops[0]
		for i := range loops {
			if loops[i].at < l.at {
				l = &loops[i]
			}
		}
		if l.at > end {
			break
		}
		s.clock.pass(time.Duration(l.at-s.clock.us) * time.Microsecond)
		s.tick(l.gateway, l.room)
		l.at = s.clock.us + s.rooms[l.gateway][l.room].ticker.pause().Microseconds() + 500 + chance.Int64N(5000)
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

// Shares follow the weights, the whole budget is used, and other rooms get immediately what one room does not use.
func TestBudget_SharedByWeightAndUsedUp(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, client redis.UniversalClient) {
		const rate = 80_000
		s := newSharing(t, t, client, redistest.Prefix(t), 2,
			budgeted(rate, rate, 3000, 1_000_000), budgeted(rate, rate, 1000, 1_000_000), budgeted(rate, rate, 1000, 1_000_000))
		s.run(time.Second, nil)
		s.join(0, 0, 900)
		s.join(0, 1, 150)
		s.run(time.Second, nil)
		// What the two were given, by weight, is never farther apart than a lease of each: of what comes in between two calls.
		var one, other float64
		start := append([]int64(nil), s.in...)
		got := s.run(5*time.Second, func() {
			d := float64(s.in[0]-start[0])/3 - float64(s.in[1]-start[1])
			one, other = min(one, d), max(other, d)
		})
		t.Log(got, one, other)
		if most := 2 * 0.25 * rate / 1000 * (1/3. + 1); other-one > most {
			t.Errorf("by weight the rooms were %.1f apart, want at most %.1f", other-one, most)
		}
		if got[0]+got[1] < 388 || got[2] != 0 {
			t.Errorf("%v of 400 were admitted", got)
		}
		if got[0] < 285 || got[1] < 95 {
			t.Errorf("%v were admitted, want three to one", got)
		}
		if minutes, err := s.rooms[1][0].History(t.Context(), 1); err != nil || minutes[0].Share != 60_000 || minutes[0].Found {
			t.Errorf("history: %+v %v", minutes, err)
		}
		if e := s.rooms[1][0].Expected(); e != 60_000 {
			t.Errorf("beside the other the first may count on %d, want 60000", e)
		}
		for s.in[1] < 150 {
			s.run(100*time.Millisecond, nil)
		}
		if got := s.run(time.Second, nil); got[0] < 72 {
			t.Errorf("%v in the second after the other room was empty, want 80", got)
		}
		if e := s.rooms[1][0].Expected(); e != 80_000 {
			t.Errorf("alone the first may count on %d, want 80000", e)
		}
	})
}

// emptied returns a room with a queue whose budget, 20/s with a burst of 20, is used up, and a lease of all that the budget has
// gained since, which was granted and not passed to the room.
func emptied(t *testing.T) (s *sharing, lease string) {
	s = newSharing(t, t, redistest.Client(t), redistest.Prefix(t), 1, budgeted(20_000, 20_000, 1000, 1_000_000))
	r := s.rooms[0][0]
	s.tick(0, 0)
	s.join(0, 0, 300)
	s.run(3*time.Second, nil)
	s.clock.pass(700 * time.Millisecond)
	lease, err := r.lease.borrow(t.Context(), true)
	if err != nil || lease == "" {
		t.Fatalf("lease %q: %v", lease, err)
	}
	return s, lease
}

// bring passes a lease to the room, at a time at which the room ticks.
func (s *sharing) bring(lease string) (admitted int64) {
	before := s.in[0]
	if _, err := s.rooms[0][0].ticker.advance(s.test.Context(), lease); err != nil {
		s.t.Fatal(err)
	}
	s.judge()
	return s.in[0] - before
}

func TestLease_CountsOnceAndInTime(t *testing.T) {
	s, lease := emptied(t)
	if n := s.bring(lease); n < 10 {
		t.Errorf("%d admitted with a lease of 700 ms at 20/s", n)
	}
	s.clock.pass(200 * time.Millisecond)
	if n := s.bring(lease); n != 0 {
		t.Errorf("%d admitted with a lease that was used up", n)
	}
	s, lease = emptied(t)
	s.clock.pass(501 * time.Millisecond)
	if n := s.bring(lease); n != 0 {
		t.Errorf("%d admitted with a lease that was late", n)
	}
	// What is left of one in time ends with it.
	s, lease = emptied(t)
	if err := s.rooms[0][0].Pause(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	if s.bring(lease); s.rooms[0][0].lease.left < 10 {
		t.Errorf("a paused room holds %d", s.rooms[0][0].lease.left)
	}
	s.clock.pass(501 * time.Millisecond)
	if s.bring(""); s.rooms[0][0].lease.left != 0 {
		t.Errorf("%d are left of a lease that has ended", s.rooms[0][0].lease.left)
	}
}

// A burst of one visitor also reaches the rate: at any tick interval there is a tick when the next admission is due.
func TestBudget_BurstOfOneIsUsedUp(t *testing.T) {
	for _, gateways := range []int{1, 4} {
		s := newSharing(t, t, redistest.Client(t), redistest.Prefix(t), gateways,
			budgeted(1000, 1000, 1000, 1_000_000), budgeted(1000, 1000, 1000, 1_000_000))
		s.tick(0, 0)
		s.join(0, 0, 40)
		s.play(2 * time.Second)
		alone := s.play(10 * time.Second)
		s.join(0, 1, 40)
		both := s.play(10 * time.Second)
		t.Log(gateways, alone, both)
		if alone[0] < 10 || both[0]+both[1] < 10 || min(both[0], both[1]) < 4 {
			t.Errorf("%d gateways admitted %v and then, two rooms, %v of 10", gateways, alone, both)
		}
	}
}

// Two gateways ask for leases of one room at the same time. The room takes leases in order, so the second lease waits for the
// first.
func TestLease_OvertakesNoOther(t *testing.T) {
	s := newSharing(t, t, redistest.Client(t), redistest.Prefix(t), 2, budgeted(200_000, 200_000, 1000, 1_000_000))
	s.tick(0, 0)
	s.join(0, 0, 1200)
	s.run(3*time.Second, nil)
	s.clock.pass(200 * time.Millisecond)
	slow, err := s.rooms[0][0].lease.borrow(t.Context(), true)
	if err != nil || slow == "" {
		t.Fatalf("lease %q: %v", slow, err)
	}
	s.clock.pass(5 * time.Millisecond)
	s.tick(1, 0) // has asked after the first, and is done before it
	s.clock.pass(176 * time.Millisecond)
	if n := s.bring(slow); n < 30 {
		t.Errorf("%d were admitted by a lease of 200 ms at 200/s", n)
	}
}

// A store that lost the record of leases grants none until all leases that it does not know of have ended.
func TestBudget_LostWaitsForLeasesToEnd(t *testing.T) {
	s, _ := emptied(t)
	if err := s.redis.Del(t.Context(), budgetKeys(s.cores[0].o.Prefix, "shop")...).Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.run(1400*time.Millisecond, nil); got[0] != 0 {
		t.Errorf("%d admitted", got[0])
	}
	if got := s.run(2*time.Second, nil); got[0] == 0 {
		t.Error("nobody is admitted any more")
	}
}

// Admissions of all rooms never exceed the budget, however gateways race, crash between the two scripts and use leases late or
// twice, and however rooms are added, removed, paused and lose their store.
func TestBudget_IsNeverExceeded(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		gateways, rooms := rapid.IntRange(1, 3).Draw(rt, "gateways"), rapid.IntRange(1, 3).Draw(rt, "rooms")
		draw := func() []Policy {
			rate := rapid.SampledFrom([]int64{500, 2000, 20_000, 300_000}).Draw(rt, "rate")
			burst := max(1000, rate*rapid.SampledFrom([]int64{10, 50, 100, 300}).Draw(rt, "burst")/100)
			var policies []Policy
			for range rooms {
				own := rapid.SampledFrom([]int64{5000, 1_000_000, 1_000_000}).Draw(rt, "own")
				policies = append(policies, budgeted(rate, burst, rapid.SampledFrom([]int64{1, 1000, 3000, 1_000_000}).Draw(rt, "weight"), own))
			}
			return policies
		}
		s := newSharing(t, rt, client, redistest.Prefix(t), gateways, draw()...)
		type held struct {
			room  int
			lease string
		}
		var late []held
		gateway := func() int { return rapid.IntRange(0, gateways-1).Draw(rt, "gateway") }
		room := func() int { return rapid.IntRange(0, rooms-1).Draw(rt, "room") }
		for g := range gateways {
			for i := range rooms {
				s.tick(g, i)
				s.join(g, i, 60)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":     func(*rapid.T) {},
			"pass": func(*rapid.T) { s.clock.pass(time.Duration(rapid.IntRange(1, 400).Draw(rt, "ms")) * time.Millisecond) },
			"tick": func(*rapid.T) { s.clock.pass(50 * time.Millisecond); s.tick(gateway(), room()) },
			"join": func(*rapid.T) { s.join(gateway(), room(), rapid.SampledFrom([]int{1, 5, 60}).Draw(rt, "n")) },
			"run":  func(*rapid.T) { s.run(250*time.Millisecond, nil) },
			"crash": func(*rapid.T) { // between the two scripts; the lease may come to a room yet
				i := room()
				lease, err := s.rooms[gateway()][i].lease.borrow(t.Context(), true)
				if err != nil {
					rt.Fatal(err)
				}
				if lease != "" {
					late = append(late, held{i, lease})
				}
			},
			"late": func(*rapid.T) {
				if len(late) == 0 {
					rt.Skip("none")
				}
				h := late[rapid.IntRange(0, len(late)-1).Draw(rt, "lease")]
				if _, err := s.rooms[gateway()][h.room].ticker.advance(t.Context(), h.lease); err != nil {
					rt.Fatal(err)
				}
				s.judge()
			},
			"pause": func(*rapid.T) {
				r := s.rooms[gateway()][room()]
				f := r.Pause
				if rapid.Bool().Draw(rt, "resume") {
					f = r.Resume
				}
				if err := f(t.Context(), "ann"); err != nil {
					rt.Fatal(err)
				}
			},
			"reload": func(*rapid.T) { s.reload(draw()...) },
			"lose the budget": func(*rapid.T) {
				if err := client.Del(t.Context(), budgetKeys(s.cores[0].o.Prefix, "shop")...).Err(); err != nil {
					rt.Fatal(err)
				}
				for g := range gateways { // a gateway that knows of no lease would begin a new account
					if u, _ := s.cores[g].BudgetUse("shop"); u.number > 0 {
						for i := range rooms {
							s.tick(g, i)
						}
						return
					}
				}
			},
			"lose a room": func(*rapid.T) {
				i := room()
				if err := client.Del(t.Context(), s.rooms[0][i].keys...).Err(); err != nil {
					rt.Fatal(err)
				}
				s.in[i] = 0
				s.tick(gateway(), i)
			},
		})
	})
}

// When Redis's clock is set back, or a replica whose clock is behind takes over, the budget stands still for a moment only.
func TestBudget_SurvivesClockSetBack(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	core, err := New(Options{Client: client, Prefix: prefix, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]int64{}
	lease := func(now int64, room string, want int) int64 { // it has used up all before it
		t.Helper()
		res, err := core.scripts.Run(t.Context(), "origin_lease", budgetKeys(prefix, "shop"),
			now, room, 20_000, 20_000, 1000, want, 0, last[room], 0, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		last[room] = max(last[room], res.Int(0))
		return res.Int(1)
	}
	at := newTestClock().us
	lease(at, "gone", 1)
	at += 1_000_000
	if n := lease(at, "gone", 5) + lease(at, "sale", 30); n != 20 {
		t.Fatalf("%d given of 20", n)
	}
	at -= 3_600_000_000
	if n := lease(at, "sale", 30); n != 0 {
		t.Errorf("%d given at once by the clock that went back", n)
	}
	var n int64
	for range 40 {
		at += 100_000
		n += lease(at, "sale", 30)
	}
	if n < 45 || n > 50 {
		t.Errorf("%d given in 4 s at 20/s of which 1.5 s had to pass", n)
	}
}

// Without the store no gateway knows which rooms have queues: a room admits its share by the weights of all rooms, and at most
// its own rate.
func TestBudget_OfflineRoomHasItsShare(t *testing.T) {
	p := budgeted(80_000, 40_000, 1000, 30_000)
	p.Budget.Weights = 4000
	for _, row := range []struct{ own, rate, burst int64 }{{30_000, 20_000, 10_000}, {5000, 5000, 5000}} {
		p.Rate, p.Burst = row.own, row.own
		if p.LocalRate() != row.rate || p.LocalBurst() != row.burst {
			t.Errorf("of %d: rate %d, burst %d, want %d, %d", row.own, p.LocalRate(), p.LocalBurst(), row.rate, row.burst)
		}
		s := Snapshot{Policy: p, Gateways: 2}
		var l local
		l.begin(0)
		in := int64(0)
		for ms := int64(0); ms <= 10_000; ms++ {
			if l.share(&s, ms*1e6) {
				in++
			}
		}
		if want := row.rate / 2 / 100; in > want+row.burst/2000 || in < want-1 {
			t.Errorf("one of two gateways let %d in within 10 s, want %d", in, want)
		}
	}
}
