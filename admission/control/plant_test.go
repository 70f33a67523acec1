package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// plant is an origin under visitors, on a virtual clock of 50 ms a step. Every visitor makes some requests over a few seconds;
// the origin answers so many visitors' worth of them a second. What it cannot answer queues up, and what would queue for too
// long fails at once.
type plant struct {
	capacity func(t float64) float64 // visitors a second
	smooth   bool                    // latency grows on the way to the capacity; else only beyond it
	noise    float64                 // σ of the logarithm of a latency
	spread   float64                 // seconds over which a visitor's requests come
	demand   float64                 // visitors a second that want in; 0: any number
	delay    int                     // seconds by which the measurements are late
	gateways int
	policy   Policy
	start    int64
	rng      *rand.Rand
}

const (
	plantStep = 0.05
	requests  = 4     // a visitor
	service   = 0.020 // seconds, without a load
	patience  = 1.5   // seconds of queue beyond which requests fail
	plantSpan = 4     // seconds of the sliding window
)

// second is what was seen in one.
type second struct {
	rate, capacity, admitted float64
	errors, requests         int64
	p95                      time.Duration
	level                    Level
}

func (p plant) run(seconds int) []second {
	s := State{Rate: p.start}
	policy := p.policy
	var out []second
	due := make([]float64, int((p.spread+2)/plantStep)+2) // requests by the step in which they come, a ring
	var backlog, credit, utilized float64
	perGateway := make([][]Histogram, seconds) // by second
	var admitted []float64
	for sec := range seconds {
		hs := make([]Histogram, max(1, p.gateways))
		row := second{rate: float64(s.Rate) / 1000}
		for i := range int(1 / plantStep) {
			t := float64(sec) + float64(i)*plantStep
			c := p.capacity(t) * requests
			row.capacity = p.capacity(t)
			want := float64(s.Rate) / 1000 * plantStep
			if p.demand > 0 {
				want = min(want, p.demand*plantStep)
			}
			credit += want
			at := sec*int(1/plantStep) + i
			for ; credit >= 1; credit-- {
				row.admitted++
				due[at%len(due)]++
				for range requests - 1 {
					due[(at+int(p.rng.Float64()*p.spread/plantStep))%len(due)]++
				}
			}
			n := due[at%len(due)]
			due[at%len(due)] = 0
			utilized += (n/(c*plantStep) - utilized) * plantStep // over a second
			for range int(n) {
				h := &hs[p.rng.IntN(len(hs))]
				wait := backlog / c
				if wait > patience {
					h.Add(time.Millisecond, true)
					row.errors++
				} else {
					backlog++
					latency := service
					if p.smooth {
						latency /= 1 - min(0.97, utilized)
					}
					latency = (latency + wait) * math.Exp(p.noise*p.rng.NormFloat64())
					h.Add(time.Duration(latency*float64(time.Second)), false)
				}
				row.requests++
			}
			backlog = max(0, backlog-c*plantStep)
		}
		perGateway[sec] = hs
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
		h := merged.Health()
		s = Next(policy, s, int64(sec+1)*1_000_000, h, Usage{Rate: lately / float64(min(5, len(admitted))), Wanted: p.demand == 0 || p.demand > float64(s.Rate)/1000})
		row.p95, row.level = h.P95, s.Level
		out = append(out, row)
	}
	return out
}

// settled is after how many seconds from a change on the rate stays between the shares of the capacity.
func settled(rows []second, from, to int, low, high float64) int {
	for i := to - 1; i >= from; i-- {
		if r := rows[i].rate / rows[i].capacity; r < low || r > high {
			return i + 1 - from
		}
	}
	return 0
}

// turns counts changes of direction of more than 3 % of the rate, and says how far apart its extremes are.
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

func TestGradientFollowsTheCapacity(t *testing.T) {
	capacity := func(t float64) float64 {
		if t >= 90 && t < 180 {
			return 40
		}
		return 100
	}
	base := plant{capacity: capacity, spread: 3, start: 50_000, noise: 0.15,
		policy: Policy{MinRate: 5_000, MaxRate: 150_000, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}}
	for _, row := range []struct {
		name string
		with func(p *plant)
	}{
		{"queue", func(*plant) {}},
		{"smooth", func(p *plant) { p.smooth = true }},
		{"noise", func(p *plant) { p.noise = 0.4 }},
		{"smooth and noise", func(p *plant) { p.noise, p.smooth = 0.4, true }},
		{"eight gateways", func(p *plant) { p.gateways = 8 }},
		{"1 s late", func(p *plant) { p.delay = 1 }},
		{"2 s late", func(p *plant) { p.delay = 2 }},
		{"2 s late, smooth", func(p *plant) { p.delay, p.smooth = 2, true }},
		{"long visits", func(p *plant) { p.spread = 8 }},
		{"long visits, smooth", func(p *plant) { p.spread, p.smooth = 8, true }},
		{"narrow range", func(p *plant) { p.policy.MaxRate = 110_000; p.policy.MinRate = 20_000 }},
		{"wide range", func(p *plant) { p.policy.MaxRate = 1_000_000; p.policy.MinRate = 1_000 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			for seed := range uint64(3) {
				p := base
				p.rng = rand.New(rand.NewPCG(seed, 7))
				row.with(&p)
				rows := p.run(270)
				var text string
				for k, span := range [][2]int{{0, 90}, {90, 180}, {180, 270}} {
					at := settled(rows, span[0], span[1], 0.6, 1.2)
					var errs, reqs int64
					var most float64
					for _, r := range rows[span[0]+min(30, at) : span[1]] {
						errs, reqs = errs+r.errors, reqs+r.requests
					}
					for _, r := range rows[span[0]+30 : span[1]] {
						most = max(most, r.rate/r.capacity)
					}
					n, swing := turns(rows[span[0]+30 : span[1]])
					text += fmt.Sprintf(" | %d: settles %2d s, at most %.2f, errors %.3f %%, turns %d, swing %.2f", k, at, most, 100*float64(errs)/float64(reqs), n, swing)
				}
				t.Log(seed, text)
				if testing.Verbose() && seed == 0 {
					for i, r := range rows {
						if i%5 == 0 {
							t.Logf("%3d c %3.0f rate %6.1f adm %3.0f p95 %6.0f ms err %d/%d %v", i, r.capacity, r.rate, r.admitted, r.p95.Seconds()*1000, r.errors, r.requests, r.level)
						}
					}
				}
			}
		})
	}
}
