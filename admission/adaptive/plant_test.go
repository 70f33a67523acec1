package adaptive

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

// plant simulates an origin and its visitors on a virtual clock with steps of 50 ms. Every visitor makes some requests over a few
// seconds. The origin answers the requests of capacity visitors a second. Further requests queue; a request that would queue for longer
// than patience fails at once.
type plant struct {
	capacity func(t float64) float64 // visitors a second
	smooth   bool                    // latency grows on the way to the capacity; else only beyond it
	noise    float64                 // σ of the logarithm of a latency
	spread   float64                 // seconds over which a visitor's requests come
	entry    float64                 // seconds within which a visitor learns of the admission
	service  float64                 // latency of a request without load, seconds
	patience float64                 // seconds of queue beyond which requests fail
	demand   float64                 // visitors a second who join; 0: any number
	requests int                     // requests of one visitor; 0: 4
	more     float64                 // further requests for each request while the capacity is reduced
	crowd    int                     // visitors in the queue at any time, who poll every second or two and so learn of admissions in bursts; 0: by entry
	delay    int                     // seconds by which the measurements are late
	gateways int
	policy   Policy
	start    int64
	rng      *rand.Rand
}

const (
	plantStep   = 0.05
	plantSecond = 20  // steps
	plantSpan   = 3   // seconds of the sliding window
	late        = 0.1 // share of polls that come a step later than advised
)

// waiter is a visitor of a crowd.
type waiter struct {
	poll int // the step of the next one
	in   bool
}

// admit admits the first visitors of the queue while there is credit, four times a second as rooms do. It returns the numbers of visitors
// who were admitted and who reached the origin in this step. New visitors replace them at once, and poll for the first time after one
// to three seconds.
func (p *plant) admit(queue []waiter, at int, credit *float64) (admitted, came int, after []waiter) {
	if at%(plantSecond/4) == 0 {
		for i := 0; i < len(queue) && *credit >= 1; i++ {
			if !queue[i].in {
				queue[i].in = true
				*credit--
				admitted++
			}
		}
	}
	after = queue[:0]
	for _, w := range queue {
		if w.poll == at && w.in {
			came++
			continue
		}
		if w.poll == at {
			w.poll += plantSecond * 2
			if p.rng.IntN(6) == 0 {
				w.poll -= plantSecond
			}
			if p.rng.Float64() < late {
				w.poll++
			}
		}
		after = append(after, w)
	}
	for len(after) < p.crowd {
		w := waiter{poll: at + plantSecond*(1+p.rng.IntN(3))}
		if at == 0 {
			w.poll += p.rng.IntN(4)
		}
		after = append(after, w)
	}
	return admitted, came, after
}

// second holds the measurements of one second.
type second struct {
	rate, capacity, admitted float64
	errors, requests         int64
	p95                      time.Duration
	level                    Level
}

func (p plant) run(seconds int) []second {
	s := State{Rate: p.start}
	requests := cmp.Or(p.requests, 4)
	policy := p.policy
	var out []second
	due := make([]float64, int((p.spread+p.entry+2)/plantStep)+2) // requests by the step in which they come, a ring
	var backlog, credit, utilized float64
	var queue []waiter
	visit := func(at int) {
		due[at%len(due)]++
		n := requests - 1
		if p.more > 0 && p.capacity(float64(at)*plantStep) < 90 {
			for range requests {
				if p.rng.Float64() < p.more {
					n++
				}
			}
		}
		for range n {
			due[(at+int(p.rng.Float64()*p.spread/plantStep))%len(due)]++
		}
	}
	const longest = 10
	perGateway := make([][]Histogram, seconds+longest) // by the second of the answer
	for i := range perGateway {
		perGateway[i] = make([]Histogram, max(1, p.gateways))
	}
	var admitted []float64
	for sec := range seconds {
		row := second{rate: float64(s.Rate) / 1000}
		for i := range int(1 / plantStep) {
			t := float64(sec) + float64(i)*plantStep
			c := p.capacity(t) * float64(requests)
			row.capacity = p.capacity(t)
			want := float64(s.Rate) / 1000 * plantStep
			if p.demand > 0 {
				want = min(want, p.demand*plantStep)
			}
			credit += want
			at := sec*int(1/plantStep) + i
			if p.crowd > 0 {
				var n, came int
				n, came, queue = p.admit(queue, at, &credit)
				row.admitted += float64(n)
				for range came {
					visit(at)
				}
			} else {
				for ; credit >= 1; credit-- {
					row.admitted++
					visit(at + int(p.rng.Float64()*p.entry/plantStep))
				}
			}
			n := due[at%len(due)]
			due[at%len(due)] = 0
			utilized += (n/(c*plantStep) - utilized) * plantStep // over a second
			for range int(n) {
				gateway := p.rng.IntN(len(perGateway[0]))
				wait := backlog / c
				if wait > p.patience {
					perGateway[sec][gateway].Add(time.Millisecond, true)
					row.errors++
				} else {
					backlog++
					latency := p.service
					if p.smooth {
						latency /= 1 - min(0.97, utilized)
					}
					latency = (latency + wait) * math.Exp(p.noise*p.rng.NormFloat64())
					answered := min(sec+longest, int(t+latency))
					perGateway[answered][gateway].Add(time.Duration(latency*float64(time.Second)), false)
				}
				row.requests++
			}
			backlog = max(0, backlog-c*plantStep)
		}
		admitted = append(admitted, row.admitted)
		var merged Histogram
		for back := range plantSpan {
			if at := sec - p.delay - back; at >= 0 {
				for i := range perGateway[at] {
					merged.Merge(&perGateway[at][i])
				}
			}
		}
		var lately float64
		for _, n := range admitted[max(0, len(admitted)-5):] {
			lately += n
		}
		h := merged.Health(plantSpan * time.Second)
		s = Next(policy, s, int64(sec+1)*1_000_000, h, Usage{Rate: lately / float64(min(5, len(admitted))), Wanted: p.demand == 0 || p.demand > float64(s.Rate)/1000})
		row.p95, row.level = h.P95, s.Level
		out = append(out, row)
	}
	return out
}

// settled returns after how many seconds from a change the rate stays between the two shares of the capacity.
func settled(rows []second, from, to int, low, high float64) int {
	for i := to - 1; i >= from; i-- {
		if r := rows[i].rate / rows[i].capacity; r < low || r > high {
			return i + 1 - from
		}
	}
	return 0
}

// turns returns the number of changes of direction by more than 3 % of the rate, and the distance of its extremes as a share of the capacity.
func turns(rows []second) (n int, swing float64) {
	low, high := rows[0].rate, rows[0].rate
	up, down := false, false
	least, most := low, high
	for _, r := range rows {
		least, most = min(least, r.rate), max(most, r.rate)
		low, high = min(low, r.rate), max(high, r.rate)
		if r.rate > low*1.03 && !up {
			n, up, down, high = n+1, true, false, r.rate
		}
		if r.rate < high*0.97 && !down {
			n, down, up, low = n+1, true, false, r.rate
		}
		if up {
			low = max(low, r.rate*0.97)
		}
		if down {
			high = min(high, r.rate*1.03)
		}
	}
	return n, (most - least) / rows[0].capacity
}

// bursts sets the origin and the crowd of test/e2e (make adaptive): visitors learn of their admission with a poll, whole seconds after
// the poll before, so that many come at once.
func bursts(p *plant) {
	p.crowd, p.requests, p.spread, p.delay, p.service, p.patience, p.policy.TargetP95 = 200, 2, 1.5, 1, 0.08, 2, 400*time.Millisecond
}

// patient sets a target that allows a queue of most of a second, which builds up and drains slowly.
func patient(p *plant) {
	p.entry, p.spread, p.delay, p.service, p.patience, p.policy.TargetP95 = 3, 1.5, 1, 0.2, 4, time.Second
}

// Each plant's capacity goes from 100 to 40 and to 100 again, and to others. The controller's constants were found with other
// seeds than these.
func TestGradient_FollowsTheCapacity(t *testing.T) {
	short.SkipRace(t, "controls origins that are simulated, each by one goroutine")
	base := plant{service: 0.02, patience: 1.5, spread: 3, start: 50_000, noise: 0.15,
		policy: Policy{MinRate: 5_000, MaxRate: 150_000, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}}
	// low is the share of the capacity from which on the rate counts as settled. The target is five times the latency without load, so
	// an origin whose latency grows with its load is kept at little more than half of its capacity, and so is an origin of which every
	// twentieth request is slow at any load. after is the number of seconds in which the rate settles. From 30 s on the rate is at most
	// over of the capacity (at any time where the capacity has not fallen), and moves by at most swing of it.
	for _, row := range []struct {
		name        string
		low         float64
		after       int
		over, swing float64
		with        func(p *plant)
	}{
		{"latency grows beyond the capacity", 0.7, 20, 1.1, 0.2, func(*plant) {}},
		{"latency grows with the load", 0.5, 25, 0.8, 0.2, func(p *plant) { p.smooth = true }},
		{"noise", 0.55, 20, 1, 0.2, func(p *plant) { p.noise = 0.4 }},
		{"noise and load", 0.33, 25, 0.8, 0.2, func(p *plant) { p.noise, p.smooth = 0.4, true }},
		{"eight gateways", 0.7, 20, 1.1, 0.2, func(p *plant) { p.gateways = 8 }},
		{"1 s late", 0.7, 25, 1.1, 0.2, func(p *plant) { p.delay = 1 }},
		{"2 s late", 0.7, 28, 1.1, 0.3, func(p *plant) { p.delay = 2 }},
		{"2 s late, with the load", 0.5, 28, 0.8, 0.2, func(p *plant) { p.delay, p.smooth = 2, true }},
		{"long visits", 0.7, 25, 1.1, 0.2, func(p *plant) { p.spread = 8 }},
		{"long visits, with the load", 0.45, 25, 0.9, 0.2, func(p *plant) { p.spread, p.smooth = 8, true }},
		{"visitors who poll", 0.7, 25, 1.1, 0.25, func(p *plant) { p.entry, p.spread, p.delay = 3, 4.5, 1 }},
		{"visitors who poll, with the load", 0.45, 25, 0.9, 0.2, func(p *plant) { p.entry, p.spread, p.delay, p.smooth = 3, 4.5, 1, true }},
		{"a patient target", 0.7, 30, 1.25, 0.5, patient},
		{"bursts", 0.7, 30, 1.1, 0.3, bursts},
		{"half as many requests again while it is slow", 0.45, 28, 1.1, 0.5, func(p *plant) { p.more, p.delay = 0.5, 1 }},
		{"a narrow range", 0.7, 20, 1.1, 0.2, func(p *plant) { p.policy.MaxRate, p.policy.MinRate = 110_000, 20_000 }},
		{"a wide range", 0.7, 20, 1.1, 0.2, func(p *plant) { p.policy.MaxRate, p.policy.MinRate = 1_000_000, 1_000 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, course := range []struct {
				seeds      uint64
				capacities [3]float64
			}{{5, [3]float64{100, 40, 100}}, {1, [3]float64{100, 40, 60}}, {1, [3]float64{100, 70, 140}}} {
				for seed := range course.seeds {
					p := base
					p.rng = rand.New(rand.NewPCG(seed, 7))
					p.capacity = func(t float64) float64 { return course.capacities[min(2, int(t/90))] }
					row.with(&p)
					rows := p.run(270)
					for k := range course.capacities {
						limits := held{row.low, row.after, row.over, row.swing}
						if seed == 0 && course.seeds == 1 {
							limits.after, limits.over = 30, max(1.2, row.over)
							if p.policy.TargetP95 == time.Second { // the rate returns to that before, which the origin cannot bear now
								limits.after, limits.over, limits.swing = 35, 1.4, 0.6
							}
						}
						text, ok := limits.by(rows, k)
						if text = fmt.Sprintf("seed %d, %s", seed, text); !ok {
							t.Error(text)
							for i, r := range rows[90*k : 90*k+90] {
								t.Logf("%3d s: rate %6.1f admitted %3.0f p95 %6.0f ms errors %d/%d %v", i, r.rate, r.admitted, r.p95.Seconds()*1000, r.errors, r.requests, r.level)
							}
						} else if seed == 0 {
							t.Log(text)
						}
					}
				}
			}
		})
	}
}

// held holds the limits for one row.
type held struct {
	low         float64
	after       int
	over, swing float64
}

// by describes part k of a run, of 90 s, and reports whether it is within the limits.
func (l held) by(rows []second, k int) (text string, ok bool) {
	from, to := 90*k, 90*k+90
	after := settled(rows, from, to, l.low, max(1.2, l.over))
	var errs, reqs int64
	var most float64
	for _, r := range rows[from+30 : to] {
		errs, reqs, most = errs+r.errors, reqs+r.requests, max(most, r.rate/r.capacity)
	}
	if k != 1 { // where the capacity has not fallen, the rate is never far above it
		for _, r := range rows[from:to] {
			most = max(most, r.rate/r.capacity)
		}
	}
	n, swing := turns(rows[from+30 : to])
	return fmt.Sprintf("%3.0f visitors/s: settled after %2d s, then at most %.2f of it, %.3f %% errors, %d turns, swing %.2f",
		rows[from].capacity, after, most, 100*float64(errs)/float64(reqs), n, swing), after <= l.after && most <= l.over && errs*100 <= reqs && n <= 12 && swing <= l.swing
}

// Visitors stay for a minute, and the first admissions lead to ever more requests until then. Meanwhile the rate must not grow.
func TestGradient_WaitsForRequestsStillToCome(t *testing.T) {
	for seed := range uint64(3) {
		p := plant{capacity: func(float64) float64 { return 100 }, service: 0.02, patience: 1.5, entry: 2, spread: 60, requests: 15, delay: 1, start: 50_000, noise: 0.15, rng: rand.New(rand.NewPCG(seed, 3)),
			policy: Policy{MinRate: 5_000, MaxRate: 150_000, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}}
		most, errs := 0.0, int64(0)
		for _, r := range p.run(60) {
			most, errs = max(most, r.rate/r.capacity), errs+r.errors
		}
		t.Logf("seed %d: at most %.2f of the capacity, %d errors", seed, most, errs)
		if most > 1 || errs > 0 {
			t.Errorf("seed %d: at most %.2f of the capacity, %d errors", seed, most, errs)
		}
	}
}

// A rate that is not used neither grows nor falls.
func TestGradient_KeepsAnUnusedRate(t *testing.T) {
	p := plant{capacity: func(float64) float64 { return 100 }, service: 0.02, patience: 1.5, spread: 3, start: 60_000, demand: 10, noise: 0.15, rng: rand.New(rand.NewPCG(1, 2)),
		policy: Policy{MinRate: 5_000, MaxRate: 150_000, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}}
	for i, r := range p.run(120) {
		if r.rate != 60 {
			t.Fatalf("after %d s the rate is %v, want 60: only 10 visitors a second came", i, r.rate)
		}
	}
}

// If an origin bears the lower rate and not the higher, the higher is tried ever more rarely.
func TestSteps_BecomeRarer(t *testing.T) {
	p := plant{capacity: func(float64) float64 { return 60 }, service: 0.02, patience: 1.5, spread: 3, start: 50_000, noise: 0.15, rng: rand.New(rand.NewPCG(1, 2)),
		policy: Policy{Mode: ModeStep, MinRate: 10_000, MaxRate: 90_000, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}}
	rows := p.run(1200)
	changes := [2]int{}
	for i, r := range rows[1:] {
		if r.rate != 10 && r.rate != 50 && r.rate != 90 {
			t.Fatalf("a rate of %v is no step", r.rate)
		}
		if r.rate != rows[i].rate {
			changes[i/600]++
		}
	}
	if changes[1] > 24 || changes[1] > changes[0] {
		t.Fatalf("%d changes in the first ten minutes, %d in the next", changes[0], changes[1])
	}
}
