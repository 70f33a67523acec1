package store

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/lend"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// jobsOfParts returns the ids of jobs of a group of n parts, by part: as many of each as counts has.
func jobsOfParts(n int, counts map[int]int) (jobs []Job) {
	have := map[int]int{}
	for i := 0; ; i++ {
		missing := false
		for part, count := range counts {
			missing = missing || have[part] < count
		}
		if !missing {
			return jobs
		}
		if id := fmt.Sprintf("j%d", i); have[partOf(id, n)] < counts[partOf(id, n)] {
			have[partOf(id, n)]++
			jobs = append(jobs, Job{ID: id, Payload: []byte("1")})
		}
	}
}

// splitGroup creates a group with parts on all three shards, with jobs in some. It returns the shards of the parts.
func (l *lending) splitGroup(spec GroupSpec, counts map[int]int) parts {
	l.t.Helper()
	spec.Split, spec.Tenant, spec.Type = len(l.shards), "acme", "t"
	if _, _, err := l.CreateGroup(l.t.Context(), spec); err != nil {
		l.t.Fatal(err)
	}
	l.addTo(spec.ID, counts)
	p, err := l.parts(l.t.Context(), spec.ID)
	if err != nil || len(p) != len(l.shards) {
		l.t.Fatal(p, err)
	}
	return p
}

func (l *lending) addTo(group string, counts map[int]int) {
	l.t.Helper()
	jobs := jobsOfParts(len(l.shards), counts)
	for i := range jobs { // new ones
		jobs[i].Cost = l.cost
	}
	for len(jobs) > 0 {
		n := min(MaxAdd, len(jobs))
		if _, err := l.AddJobs(l.t.Context(), group, Chunk{}, jobs[:n]); err != nil {
			l.t.Fatal(err)
		}
		jobs = jobs[n:]
	}
}

// audited fails if an invariant is broken in any shard.
func (l *lending) audited() {
	l.t.Helper()
	if found, err := l.Audit(l.t.Context()); err != nil || len(found) > 0 {
		l.t.Errorf("audit: %v, %v", found, err)
	}
}

// beginWithWholeRate begins to lend, until the only part with jobs has the whole rate of 60.
func (l *lending) beginWithWholeRate() {
	l.t.Helper()
	l.begin()
	l.step(80) // it waits for a former lender
	before := len(l.starts)
	l.step(60)
	if n := len(l.starts) - before; n < 165 {
		l.t.Fatalf("one part has jobs, and %d jobs started in 3 s at 60 a second", n)
	}
}

// The whole rate of a split group goes to the part that has jobs, within a second, and the rate and burst of the group hold whatever
// happens to the lender and to a shard.
func TestLend_LendsTheRateOfASplitGroup(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	l := newLending(t, 3, func(*Settings) {})
	p := l.splitGroup(GroupSpec{ID: "g", Rate: 60}, map[int]int{0: 1, 1: 3000, 2: 1})
	busy := p[1].o.Shard
	l.step(40)
	l.within(60, 6)
	if n := len(l.starts); n > 2*20+10 {
		t.Fatalf("%d jobs started in 2 s without a lender: parts have 20 a second", n)
	}
	l.beginWithWholeRate()
	l.addTo("g", map[int]int{0: 2000, 2: 2000})
	l.step(20)
	clear(l.by)
	l.step(60)
	for i := range 3 {
		if l.by[i] < 45 || l.by[i] > 75 {
			t.Errorf("starts by shard of 180: %v", l.by)
		}
	}
	if g, err := l.Group(t.Context(), "g"); err != nil || g.Rate != 60 {
		t.Errorf("the group has a rate of %v, %v", g.Rate, err)
	}
	l.away[busy] = true // it goes on alone, with its fixed part in the end
	l.step(200)
	clear(l.by)
	l.step(60)
	if all := l.by[0] + l.by[1] + l.by[2]; l.by[busy] < 50 || all < 165 {
		t.Errorf("starts by shard of 180 while shard %d is out of reach: %v", busy, l.by)
	}
	l.away[busy] = false
	l.step(40)
	l.lender = nil
	l.step(200)
	clear(l.by)
	l.step(60)
	for i := range 3 {
		if l.by[i] < 55 {
			t.Errorf("starts by shard of 180 without a lender: %v", l.by)
		}
	}
	l.begin()
	l.step(80)
	l.within(60, 6)
	l.audited()
}

// Without a lender a part that had the whole rate goes back to its fixed part.
func TestLend_LeaseOfASplitGroupEndsWithItsLender(t *testing.T) {
	l := newLending(t, 3, func(*Settings) {})
	l.splitGroup(GroupSpec{ID: "g", Rate: 60}, map[int]int{0: 1, 1: 3000, 2: 1})
	l.beginWithWholeRate()
	l.lender = nil
	l.step(160) // 2 s of lease, and 4 s until the fixed parts
	before := len(l.starts)
	l.step(60)
	if n := len(l.starts) - before; n < 50 || n > 66 {
		t.Errorf("%d jobs started in 3 s without a lender: the part has 20 a second", n)
	}
}

// A shard without workers leaves the rate of the group to the other parts.
func TestLend_LendsTheRateOfAPartThatNobodyRuns(t *testing.T) {
	l := newLending(t, 3, func(*Settings) {})
	l.splitGroup(GroupSpec{ID: "g", Rate: 60}, map[int]int{0: 900, 1: 900, 2: 900})
	l.idle = map[int]bool{0: true, 1: true}
	l.begin()
	l.step(140)
	clear(l.by)
	l.step(60)
	if l.by[2] < 140 {
		t.Errorf("shard 2 alone has workers, and %d jobs of 180 started", l.by[2])
	}
	l.idle = nil
	l.step(20)
	clear(l.by)
	l.step(60)
	for i := range 3 {
		if l.by[i] < 40 {
			t.Errorf("starts by shard of 180, once all have workers: %v", l.by)
		}
	}
	l.within(60, 6)
	l.audited()
}

// A job that costs more than a part's burst starts when its part has the whole.
func TestLend_StartsJobsOfASplitGroupThatCostMoreThanAPart(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	l := newLending(t, 3, func(*Settings) {})
	l.cost = 5
	l.splitGroup(GroupSpec{ID: "g", Rate: 60}, map[int]int{0: 300, 1: 300, 2: 300})
	l.begin()
	l.step(400)
	l.within(12, 1.2)
	if all := l.by[0] + l.by[1] + l.by[2]; all < 140 || l.by[0] < 20 || l.by[1] < 20 || l.by[2] < 20 {
		t.Errorf("starts by shard of 240: %v", l.by)
	}
	l.audited()
}

// The concurrency of a split group goes to the parts that have jobs, and holds over all of them. It changes while jobs run.
func TestLend_LendsTheConcurrencyOfASplitGroup(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	l := newLending(t, 3, func(*Settings) {})
	p := l.splitGroup(GroupSpec{ID: "g", Concurrency: 6}, map[int]int{0: 600, 1: 600, 2: 600})
	l.begin()
	running, most, full := map[int][]Leased{}, 6, 0
	for step := range 300 {
		l.c.us += 50_000
		alone := step >= 60 && step < 120 // from then on part 0 alone takes new jobs
		sum := 0
		for _, i := range rand.Perm(3) {
			if !alone || i == p[0].o.Shard {
				running[i] = append(running[i], pull(t, l.shards[i], 100).Jobs...)
			}
		}
		for _, jobs := range running {
			sum += len(jobs)
		}
		if sum > most {
			t.Fatalf("step %d: %d jobs run at once, %d may", step, sum, most)
		}
		if step >= 90 && step < 120 && sum >= 4 {
			full++
		}
		if step == 200 {
			if _, err := l.Patch(t.Context(), "g", Patch{Concurrency: new(int64(4))}); err != nil {
				t.Fatal(err)
			}
		}
		if step == 240 {
			most = 4
		}
		for i, s := range l.shards {
			ends := rand.IntN(3) == 0
			if alone && i == p[0].o.Shard {
				ends = l.c.us/50_000%4 == 1 // just after a call, so that every call finds its jobs running
			}
			if len(running[i]) > 0 && ends {
				ack(t, s, Done, running[i]...)
				running[i] = nil
			}
		}
		l.call()
	}
	if full < 25 {
		t.Errorf("one part alone has jobs, and in %d of 30 steps 4 of 6 run", full)
	}
	for i, s := range l.shards {
		if len(running[i]) > 0 {
			ack(t, s, Done, running[i]...)
		}
	}
	l.audited()
}

// A part that is always full goes down to a smaller concurrency: no job starts in the place of one that has ended.
func TestLend_ReducesTheConcurrencyOfASplitGroupThatIsAlwaysFull(t *testing.T) {
	l := newLending(t, 3, func(*Settings) {})
	p := l.splitGroup(GroupSpec{ID: "g", Concurrency: 9}, map[int]int{1: 600})
	l.begin()
	var running []Leased
	step := func() {
		l.c.us += 50_000
		running = append(running, pull(t, p[1], 100).Jobs...)
		l.call()
	}
	for range 140 {
		step()
	}
	if n := len(running); n < 6 {
		t.Fatalf("one part alone has jobs, and %d of 9 run", n)
	}
	if _, err := l.Patch(t.Context(), "g", Patch{Concurrency: new(int64(4))}); err != nil {
		t.Fatal(err)
	}
	for range 12 { // calls that find the part full
		step()
	}
	for range 60 {
		ack(t, p[1], Done, running[0])
		running = running[1:]
		step()
	}
	if n := len(running); n < 1 || n > 4 {
		t.Errorf("%d jobs run at once, 4 may", n)
	}
	ack(t, p[1], Done, running...)
	l.audited()
}

// The limits of a group change in one part after the other. A part with the new limit adds nothing to a lease that another one has of the old.
func TestLend_ChangesTheLimitsOfASplitGroupPartByPart(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	for name, row := range map[string]struct {
		spec  GroupSpec
		patch Patch
	}{
		"rate":        {GroupSpec{ID: "g", Rate: 60}, Patch{Rate: new(90.0)}},
		"concurrency": {GroupSpec{ID: "g", Concurrency: 9}, Patch{Concurrency: new(int64(12))}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLending(t, 3, func(*Settings) {})
			p := l.splitGroup(row.spec, map[int]int{0: 1500, 1: 3000, 2: 1500})
			running := map[*Store][]Leased{}
			start := func(s *Store) {
				jobs := pull(t, s, 100).Jobs
				for range jobs {
					l.starts = append(l.starts, l.c.us)
				}
				running[s] = append(running[s], jobs...)
			}
			end := func() {
				for s, jobs := range running {
					if len(jobs) > 0 {
						ack(t, s, Done, jobs...)
					}
				}
				clear(running)
			}
			l.begin()
			for step := range 140 { // one part has nearly all
				l.c.us += 50_000
				start(p[1])
				if name == "rate" && step < 139 {
					end()
				}
				l.call()
			}
			l.c.us += 150_000
			start(p[1])
			row.patch.whole = &wholePatch{p.words(), row.patch.Rate, row.patch.Concurrency}
			for _, i := range []int{0, 2, 1} {
				if _, err := p[i].Patch(t.Context(), "g", row.patch.ofPart(3, i)); err != nil {
					t.Fatal(err)
				}
				for range 10 {
					for _, s := range p {
						start(s)
					}
					if name == "rate" {
						end()
						l.c.us += 50_000
					}
				}
			}
			switch sum := len(running[p[0]]) + len(running[p[1]]) + len(running[p[2]]); name {
			case "rate":
				l.within(90, 9)
			default:
				if sum < 6 || sum > 12 {
					t.Errorf("%d jobs run at once, 12 may", sum)
				}
			}
			end()
			most := 0
			for range 60 {
				l.c.us += 50_000
				for _, s := range p {
					start(s)
				}
				l.call()
				most = max(most, len(running[p[0]])+len(running[p[1]])+len(running[p[2]]))
				end()
			}
			if name == "concurrency" && most != 12 {
				t.Errorf("%d jobs run at once, 12 may", most)
			}
			if n := len(l.starts); name == "rate" {
				for range 60 {
					l.c.us += 50_000
					for _, s := range p {
						start(s)
					}
					l.call()
					end()
				}
				if n = len(l.starts) - n; n < 240 {
					t.Errorf("%d jobs started in 3 s at 90 a second", n)
				}
				l.within(90, 9)
			}
			l.audited()
		})
	}
}

// earlierPull starts jobs of a shard as a process of an earlier version does, which reads from a group's record nothing but the limits of
// this part: the field that this version has appended is kept from it.
func (l *lending) earlierPull(s *Store) []Leased {
	l.t.Helper()
	hide := func(script string) {
		l.t.Helper()
		if err := s.o.Client.Eval(l.t.Context(), `
			for _, gkey in ipairs(redis.call('HKEYS', KEYS[1])) do
				local r = cmsgpack.unpack(redis.call('HGET', KEYS[1], gkey))
				`+script+`
				redis.call('HSET', KEYS[1], gkey, cmsgpack.pack(r))
			end
			return 1`, []string{s.keys[keyFlow], s.keys[keyState] + ":hidden"}).Err(); err != nil {
			l.t.Fatal(err)
		}
	}
	hide(`redis.call('HSET', KEYS[2], gkey, r[#r]) r[#r] = 0`)
	jobs := pull(l.t, s, 100).Jobs
	hide(`r[#r] = redis.call('HGET', KEYS[2], gkey) redis.call('HDEL', KEYS[2], gkey)`)
	return jobs
}

// While processes of the earlier version and of this one share the shards, the rate and the concurrency of a group hold: also if the
// lender is of the earlier version and lends no limits of groups.
func TestLend_HoldsTheLimitsOfASplitGroupBesideAnEarlierVersion(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	l := newLending(t, 3, func(*Settings) {})
	l.splitGroup(GroupSpec{ID: "g", Rate: 60, Concurrency: 9}, map[int]int{0: 200, 1: 3000, 2: 200})
	l.begin()
	for step := range 800 {
		l.c.us += 50_000
		l.earlier = step/150%2 == 1
		if step%300 == 299 {
			l.begin()
		}
		for _, i := range rand.Perm(3) {
			s := l.shards[i]
			var jobs []Leased
			if rand.IntN(2) == 0 {
				jobs = l.earlierPull(s)
			} else {
				jobs = pull(t, s, 100).Jobs
			}
			for range jobs {
				l.starts, l.by[i] = append(l.starts, l.c.us), l.by[i]+1
			}
			if len(jobs) > 0 {
				ack(t, s, Done, jobs...)
			}
		}
		l.call()
	}
	l.within(60, 6)
	if len(l.starts) < 800*3/2 {
		t.Errorf("%d jobs started in 40 s at 60 a second", len(l.starts))
	}
	l.audited()
}

// A part of an earlier version keeps its fixed limits. They are lent once they are set again; a process of the earlier version that sets
// them takes them back.
func TestLend_AdoptsASplitGroupOfAnEarlierVersion(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	l := newLending(t, 3, func(*Settings) {})
	p := l.splitGroup(GroupSpec{ID: "g", Rate: 60, Concurrency: 9}, map[int]int{0: 1, 1: 3000, 2: 1})
	for _, s := range p {
		if err := s.o.Client.Eval(t.Context(), `
			local r = cmsgpack.unpack(redis.call('HGET', KEYS[1], '1'))
			r[#r] = nil
			redis.call('HSET', KEYS[1], '1', cmsgpack.pack(r))
			return redis.call('HDEL', KEYS[2], 'parted')`, []string{s.keys[keyFlow], s.keys[keyState]}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rate := func() int {
		t.Helper()
		l.step(60)
		before := len(l.starts)
		l.step(60)
		return (len(l.starts) - before) / 3
	}
	l.begin()
	if n := rate(); n < 18 || n > 21 {
		t.Errorf("a part of an earlier version starts %d jobs a second, its part is 20", n)
	}
	if g, err := l.Group(t.Context(), "g"); err != nil || g.Rate != 60 || g.Concurrency != 9 {
		t.Errorf("%v, %d, %v", g.Rate, g.Concurrency, err)
	}
	if _, err := l.Patch(t.Context(), "g", Patch{Rate: new(60.0)}); err != nil {
		t.Fatal(err)
	}
	if n := rate(); n < 52 {
		t.Errorf("once set again, %d jobs a second start in the one part that has jobs, of 60", n)
	}
	if g, err := l.Group(t.Context(), "g"); err != nil || g.Rate != 60 || g.Concurrency != 9 {
		t.Errorf("%v, %d, %v", g.Rate, g.Concurrency, err)
	}
	for i, s := range p {
		if _, err := s.Patch(t.Context(), "g", Patch{Rate: new(float64(share(90_000, 3, i)) / 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := rate(); n < 27 || n > 31 {
		t.Errorf("an earlier version has set 90, and the part starts %d jobs a second", n)
	}
	if g, err := l.Group(t.Context(), "g"); err != nil || g.Rate != 90 {
		t.Errorf("%v, %v", g.Rate, err)
	}
	l.within(90, 9)
	l.audited()
}

// Groups beyond a number have fixed parts, and ended ones make room.
func TestLend_BoundsTheGroupsWhoseLimitsAreLent(t *testing.T) {
	l := newLending(t, 2, func(*Settings) {})
	for n := range 53 {
		l.splitGroup(GroupSpec{ID: fmt.Sprintf("g%d", n), Rate: 60}, nil)
	}
	listed := func() int {
		t.Helper()
		number, err := l.shards[0].LendNumber(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := l.shards[0].Lend(t.Context(), number, lend.Call{Till: l.c.us + 1e6})
		if err != nil || !r.Counted {
			t.Fatal(r.Counted, err)
		}
		return len(r.Shares) - 1
	}
	if n := listed(); n != 50 {
		t.Errorf("the limits of %d groups are lent", n)
	}
	for n := range 5 {
		if _, err := l.Cancel(t.Context(), fmt.Sprintf("g%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	if n := listed(); n != 45 {
		t.Errorf("after 5 have ended, the limits of %d groups are lent", n)
	}
	l.splitGroup(GroupSpec{ID: "more", Rate: 60}, nil)
	if n := listed(); n != 46 {
		t.Errorf("with one more, the limits of %d groups are lent", n)
	}
}

// BenchmarkLend measures a call that renews the leases of many split groups.
func BenchmarkLend(b *testing.B) {
	for _, groups := range []int{0, 50} {
		b.Run(fmt.Sprint(groups), func(b *testing.B) {
			f, err := NewFleet(Options{Shards: 2, Prefix: redistest.Prefix(b), Timeout: 10 * time.Second, Settings: Defaults(), Log: slog.New(slog.DiscardHandler)}, redistest.Client(b))
			if err != nil {
				b.Fatal(err)
			}
			if err := f.Prepare(b.Context()); err != nil {
				b.Fatal(err)
			}
			for n := range groups {
				if _, _, err := f.CreateGroup(b.Context(), GroupSpec{ID: fmt.Sprintf("g%d", n), Tenant: "acme", Type: "t", Split: 2, Rate: 60, Concurrency: 9}); err != nil {
					b.Fatal(err)
				}
			}
			l := lend.New(2, 0)
			number, err := f.shards[0].LendNumber(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			now := time.Minute
			for b.Loop() {
				now += 200 * time.Millisecond
				for i, c := range l.Calls(now) {
					number++
					r, _, err := f.shards[i].Lend(b.Context(), number, c)
					if err != nil {
						b.Fatal(err)
					}
					l.Replied(i, now, r)
				}
			}
		})
	}
}
