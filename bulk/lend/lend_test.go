package lend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// names has the names of the limits in an order that does not change.
var names = []string{Global, "mail", "@acme", "#sale"}

// world is what happens to shards and to the lenders, of which a former one may go on for a while. Its shards do what
// lua/rates_lend.lua and lua/lib/bulk.lua do.
type world struct {
	now    time.Duration
	n      int
	limits map[string]Limit
	shards []*model
	late   []func() // calls that are executed later
}

type model struct {
	i, n   int
	offset int64 // of its clock, µs
	number int64
	lease  map[string]Share
	till   int64
	starts int64
	run    map[string]int64 // jobs of the type and of the group that run
	needs  map[string]int

	part     bool // it has its part of the group
	lost     bool
	unlisted bool  // but does not report it
	partTill int64 // when its lease of the group's rate ends
}

// reports reports whether the shard's replies have a limit.
func (m *model) reports(name string) bool { return !ofGroup(name) || m.part && !m.unlisted }

func (w *world) clock(m *model) int64 { return w.now.Microseconds() + m.offset }

// has returns what a shard has of a limit now.
func (w *world) has(m *model, name string) Share {
	part := w.limits[name].Part(m.i, w.n)
	have, lent := m.lease[name]
	at, till := w.clock(m), m.till
	if ofGroup(name) {
		till = m.partTill
	}
	switch {
	case ofGroup(name) && !m.part:
		return Share{}
	case !lent && ofTenant(name) && at < m.till+After.Microseconds():
		return Share{}
	case !lent:
		have = part
	case at < till:
	case (name == Global || ofGroup(name)) && at >= till+After.Microseconds():
		have.Rate, have.Burst = part.Rate, part.Burst
	default:
		have.Rate, have.Burst = min(have.Rate, part.Rate), min(have.Burst, part.Burst)
	}
	have.Concurrency = max(have.Concurrency, m.run[name])
	return have
}

// execute runs a call on a shard.
func (w *world) execute(m *model, number int64, c Call) (Reply, bool) {
	newest := number > m.number
	if newest {
		m.number = number
	}
	counts := newest && w.clock(m) < c.Till
	left := map[string]int64{}
	if counts {
		m.till = c.Till
		for name, share := range c.Shares {
			if share.Whole != w.limits[name] || !m.reports(name) {
				continue
			}
			if ofGroup(name) {
				m.partTill = c.Till
			}
			if before := w.has(m, name); share.Burst < before.Burst {
				left[name] = (before.Burst - share.Burst) * 1e6
			}
			m.lease[name] = share
		}
	}
	r := Reply{Counted: counts, Now: w.clock(m), Starts: m.starts, Shares: map[string]Share{}}
	for _, name := range names {
		whole := w.limits[name]
		if !m.reports(name) {
			continue
		}
		share := w.has(m, name)
		share.Whole, share.Running, share.Need, share.Tokens = whole, m.run[name], m.needs[name], left[name]
		r.Shares[name] = share
	}
	return r, newest
}

func (w *world) check(t *rapid.T) {
	for _, name := range names {
		whole := w.limits[name]
		var sum Share
		text := ""
		for _, m := range w.shards {
			have := w.has(m, name)
			if have.Rate > 0 && have.Burst < job {
				t.Fatalf("shard %d has a rate of %d and a burst of %d, which would be one job", m.i, have.Rate, have.Burst)
			}
			sum.Rate, sum.Burst, sum.Concurrency = sum.Rate+have.Rate, sum.Burst+have.Burst, sum.Concurrency+have.Concurrency
			text += fmt.Sprintf(" %d/%d/%d", have.Rate, have.Burst, have.Concurrency)
		}
		if sum.Rate > whole.Rate || sum.Burst > whole.Burst || sum.Concurrency > whole.Concurrency {
			t.Fatalf("after %s the shards have%s of %q, which is %+v", w.now, text, name, whole)
		}
	}
}

// Whatever happens to calls, shards and lenders, the shares of a limit are together never more than the limit.
func TestLender_NeverGivesMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		var lenders []*Lender
		var numbers []int64
		var earlier []bool // lenders of an earlier version, which does not lend limits of groups
		var since []time.Duration
		for step := range 120 {
			w.now += time.Duration(rapid.IntRange(20, 400).Draw(t, "pause")) * time.Millisecond
			if step == 0 || rapid.IntRange(0, 39).Draw(t, "new lender") == 0 {
				lenders, numbers, since = append(lenders, New(w.n, w.now)), append(numbers, int64(len(lenders)+1)*1e9), append(since, w.now)
				earlier = append(earlier, rapid.IntRange(0, 4).Draw(t, "earlier") == 0)
			}
			for len(w.late) > 0 && rapid.Bool().Draw(t, "late") {
				w.late[0]()
				w.late = w.late[1:]
				w.check(t)
			}
			for _, m := range w.shards {
				switch rapid.IntRange(0, 99).Draw(t, "part") {
				case 0:
					m.part, m.lost = false, m.lost || m.part // for ever
				case 1, 2, 3:
					m.part = !m.lost && (m.part || step < 40)
				}
				for _, name := range names {
					if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
						m.needs[name] = rapid.IntRange(None, Wide).Draw(t, "need")
					}
				}
				m.starts += int64(rapid.IntRange(0, 5).Draw(t, "starts"))
				for _, name := range []string{"mail", "#sale"} {
					if most := w.has(m, name).Concurrency; m.needs[name] > None && rapid.Bool().Draw(t, "runs") {
						m.run[name] = max(m.run[name], most)
					} else if rapid.Bool().Draw(t, "ends") {
						m.run[name] = 0
					}
				}
			}
			for k, l := range lenders {
				// The former one goes on for less than a second.
				if k < len(lenders)-1 && w.now > since[k+1]+900*time.Millisecond {
					continue
				}
				calls := l.Calls(w.now)
				for i, c := range calls {
					m := w.shards[i]
					if earlier[k] {
						delete(c.Shares, "#sale")
					}
					numbers[k]++
					number := numbers[k]
					switch rapid.SampledFrom([]string{"ok", "ok", "ok", "ok", "lost", "late", "no reply"}).Draw(t, "call") {
					case "ok":
						r, newest := w.execute(m, number, c)
						if earlier[k] {
							delete(r.Shares, "#sale")
						}
						w.check(t)
						w.now += time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond
						if newest {
							l.Replied(i, w.now, r)
						} else {
							l.Failed(i)
						}
					case "lost":
						l.Failed(i)
					case "no reply":
						w.execute(m, number, c)
						l.Failed(i)
					case "late":
						w.late = append(w.late, func() { w.execute(m, number, c) })
						l.Failed(i)
					}
					w.check(t)
				}
			}
			w.check(t)
		}
	})
}

func newWorld(t *rapid.T) *world {
	w := &world{now: time.Minute, n: rapid.IntRange(2, 5).Draw(t, "shards")}
	rate := rapid.Int64Range(1000, 200_000).Draw(t, "rate")
	w.limits = map[string]Limit{
		Global:  {Rate: rate, Burst: max(job, rapid.Int64Range(1, 20).Draw(t, "burst")*job)},
		"mail":  {Rate: 14_000, Burst: 1400, Concurrency: rapid.Int64Range(1, 12).Draw(t, "concurrency")},
		"@acme": {Rate: 9000, Burst: rapid.Int64Range(1, 5).Draw(t, "tenant burst") * job, Concurrency: rapid.Int64Range(1, 6).Draw(t, "tenant concurrency")},
	}
	parts := ""
	for i := range w.n {
		w.shards = append(w.shards, &model{i: i, n: w.n, offset: rapid.Int64Range(-1e6, 1e6).Draw(t, "offset"), lease: map[string]Share{},
			needs: map[string]int{}, run: map[string]int64{}, part: rapid.Bool().Draw(t, "part"), unlisted: rapid.IntRange(0, 9).Draw(t, "unlisted") == 0})
	}
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, w.n-1), 2, w.n, rapid.ID[int]).Draw(t, "shards of parts") {
		parts += string([]byte{byte(i)})
	}
	for i, m := range w.shards {
		if strings.IndexByte(parts, byte(i)) < 0 {
			m.part, m.lost = false, true
		}
	}
	w.limits["#sale"] = Limit{Rate: 70_000, Burst: 7000, Concurrency: rapid.Int64Range(5, 12).Draw(t, "group concurrency"), Shards: parts}
	return w
}

// run lets calls go well for a time.
func (w *world) run(l *Lender, number *int64, d time.Duration) {
	for end := w.now + d; w.now < end; w.now += 200 * time.Millisecond {
		for i, c := range l.Calls(w.now) {
			*number++
			r, _ := w.execute(w.shards[i], *number, c)
			l.Replied(i, w.now+5*time.Millisecond, r)
		}
	}
}

func TestLender_FollowsNeedWithinASecond(t *testing.T) {
	w := &world{now: time.Minute, n: 4, limits: map[string]Limit{Global: {Rate: 1_000_000, Burst: 100_000}, "mail": {Concurrency: 6}}}
	for i := range w.n {
		w.shards = append(w.shards, &model{i: i, n: 4, lease: map[string]Share{}, needs: map[string]int{}})
	}
	l, number := New(w.n, w.now), int64(1)
	w.run(l, &number, 5*time.Second)
	for at := range 4 {
		for _, m := range w.shards {
			m.needs = map[string]int{}
		}
		w.shards[at].needs = map[string]int{Global: Waits, "mail": Waits}
		w.run(l, &number, time.Second)
		if have := w.has(w.shards[at], Global); have.Rate < 900_000 || have.Burst < 80_000 {
			t.Errorf("shard %d alone has work, and after a second it has %+v", at, have)
		}
		if have := w.has(w.shards[at], "mail"); have.Concurrency < 3 {
			t.Errorf("shard %d alone has mail, and after a second %+v", at, have)
		}
	}
	// Without a lender a shard has its part again.
	w.now += Lease + After + time.Second
	for _, m := range w.shards {
		if have, part := w.has(m, Global), w.limits[Global].Part(m.i, 4); have.Rate != part.Rate {
			t.Errorf("shard %d: %+v, want %+v", m.i, have, part)
		}
	}
}

// A limit of one job at a time goes from shard to shard.
func TestLender_TakesTurnsWithASmallLimit(t *testing.T) {
	w := &world{now: time.Minute, n: 3, limits: map[string]Limit{Global: {Rate: 5000, Burst: 1000}, "mail": {Concurrency: 1}}}
	for i := range w.n {
		w.shards = append(w.shards, &model{i: i, n: 3, lease: map[string]Share{}, needs: map[string]int{Global: Waits, "mail": Waits}})
	}
	w.shards[2].needs = map[string]int{}
	l, number, had := New(w.n, w.now), int64(1), map[string]int{}
	for range 40 {
		w.run(l, &number, 200*time.Millisecond)
		for _, m := range w.shards {
			for _, name := range names {
				if have := w.has(m, name); have.Rate+have.Concurrency > 0 {
					had[fmt.Sprint(name, m.i)]++
				}
			}
		}
	}
	for _, who := range []string{"0", "1", "mail0", "mail1"} {
		if had[who] < 12 {
			t.Errorf("%s had its turn %d times of 40: %v", who, had[who], had)
		}
	}
	if had["2"]+had["mail2"] > 4 {
		t.Errorf("a shard without work had a turn: %v", had)
	}
}

// groupWorld has a group with parts on shards 0, 2 and 3 of four.
func groupWorld() (*world, Limit) {
	sale := Limit{Rate: 60_000, Burst: 6000, Concurrency: 9, Shards: "\x00\x02\x03"}
	w := &world{now: time.Minute, n: 4, limits: map[string]Limit{Global: {Rate: 1_000_000, Burst: 100_000}, "#sale": sale}}
	for i := range w.n {
		w.shards = append(w.shards, &model{i: i, n: w.n, lease: map[string]Share{}, needs: map[string]int{}, part: i != 1, lost: i == 1})
	}
	return w, sale
}

// The limits of a split group follow the need of its parts.
func TestLender_LendsAGroupsLimitsToPartsThatUseThem(t *testing.T) {
	w, sale := groupWorld()
	l, number := New(w.n, w.now), int64(1)
	w.run(l, &number, 5*time.Second)
	for _, at := range []int{3, 0, 2} {
		for _, m := range w.shards {
			m.needs = map[string]int{}
		}
		w.shards[at].needs["#sale"] = Waits
		w.run(l, &number, time.Second)
		if have := w.has(w.shards[at], "#sale"); have.Rate < 55_000 || have.Burst < 3500 || have.Concurrency < 5 {
			t.Errorf("shard %d alone has jobs of the group, and after a second it has %+v", at, have)
		}
		if have := w.has(w.shards[1], "#sale"); have != (Share{}) {
			t.Errorf("shard 1 has no part, and it has %+v", have)
		}
	}
	// Shard 0 has jobs and does not start them, as without workers.
	w.shards[0].needs["#sale"] = Some
	w.run(l, &number, 3*time.Second)
	if have := w.has(w.shards[2], "#sale"); have.Rate < 50_000 {
		t.Errorf("shard 2 alone starts jobs of the group, and it has %+v", have)
	}
	w.shards[0].needs["#sale"] = Waits
	w.run(l, &number, time.Second)
	for _, i := range []int{0, 2} {
		if have := w.has(w.shards[i], "#sale"); have.Rate < 25_000 {
			t.Errorf("shards 0 and 2 start jobs, and after a second shard %d has %+v", i, have)
		}
	}
	w.now += Lease + After + time.Second
	for _, m := range w.shards {
		if have, part := w.has(m, "#sale"), sale.Part(m.i, 4); have.Rate != part.Rate || have.Burst != part.Burst {
			t.Errorf("without a lender shard %d has %+v, want %+v", m.i, have, part)
		}
	}
	for _, m := range w.shards {
		m.part = false
	}
	w.run(l, &number, time.Second)
	if _, there := l.order["#sale"]; there {
		t.Error("the order of a group that has ended is kept")
	}
}

// A new lender takes no concurrency of a group from shards that reply, whatever a shard has that is away.
func TestLender_KeepsConcurrencyOfAGroupBesideAShardThatIsAway(t *testing.T) {
	w, _ := groupWorld()
	l, number := New(w.n, w.now), int64(1)
	for _, m := range w.shards {
		m.needs["#sale"] = Waits
	}
	w.run(l, &number, 5*time.Second)
	l, number = New(w.n, w.now), number+1e9
	for end := w.now + 10*time.Second; w.now < end; w.now += 200 * time.Millisecond {
		for i, c := range l.Calls(w.now) {
			number++
			if i == 3 {
				l.Failed(i)
				continue
			}
			r, _ := w.execute(w.shards[i], number, c)
			l.Replied(i, w.now+5*time.Millisecond, r)
		}
		if a, b := w.has(w.shards[0], "#sale"), w.has(w.shards[2], "#sale"); a.Concurrency+b.Concurrency != 6 {
			t.Fatalf("of 9 jobs, shards 0 and 2 may run %d and %d, while shard 3 with 3 is away", a.Concurrency, b.Concurrency)
		}
	}
	if a, b := w.has(w.shards[0], "#sale"), w.has(w.shards[2], "#sale"); a.Rate+b.Rate < 39_000 {
		t.Errorf("of 60000, shards 0 and 2 have %d and %d, while shard 3 is away", a.Rate, b.Rate)
	}
}

// A lender that pauses after a reply assumes that shards have their fixed parts meanwhile, although they replied with less.
func TestLender_AssumesFixedPartsOfAGroupAfterAPause(t *testing.T) {
	w, sale := groupWorld()
	l, number := New(w.n, w.now), int64(1)
	w.shards[3].needs["#sale"] = Waits
	w.run(l, &number, 8*time.Second)
	if have := w.has(w.shards[0], "#sale"); have.Rate >= sale.Part(0, w.n).Rate {
		t.Fatalf("shard 0 has no jobs, and it has %+v", have)
	}
	w.now += Lease + After
	calls := l.Calls(w.now)
	number += 4
	w.execute(w.shards[3], number, calls[3]) // the first to arrive
	var rate, burst int64
	for _, m := range w.shards {
		have := w.has(m, "#sale")
		rate, burst = rate+have.Rate, burst+have.Burst
	}
	if rate > sale.Rate || burst > sale.Burst {
		t.Errorf("the shards have a rate of %d and a burst of %d, of %d and %d", rate, burst, sale.Rate, sale.Burst)
	}
}
