package store_test

import (
	"maps"
	"math"
	"slices"
	"strings"

	. "github.com/anteroom/anteroom/bulk/store"
)

// starts are those under a limit: of all jobs, of a tenant's, of a group's.
type starts struct {
	rate, burst float64 // the most that was ever in force; infinite without a limit
	log         []start
}

type start struct{ at, cost int64 }

// rated notes that a rate comes into force.
func (c *crowd) rated(name string, rate, burst float64) {
	s := c.starts[name]
	if s == nil {
		s = &starts{}
		c.starts[name] = s
	}
	if rate == 0 {
		rate = math.Inf(1)
	}
	if burst == 0 {
		burst = max(1, rate/10)
	}
	s.rate, s.burst = max(s.rate, rate), max(s.burst, burst)
}

// ratesInForce notes the rates of tenants and groups.
func (c *crowd) ratesInForce() {
	c.rated("", c.m.S.Global, c.m.S.Burst)
	rates := c.m.Rates()
	maps.DeleteFunc(c.starts, func(name string, _ *starts) bool { // another of that name has a limiter of its own
		_, there := rates[name]
		return !there && strings.HasPrefix(name, "group ")
	})
	for name, rate := range rates {
		burst := c.m.S.Burst
		if !strings.HasPrefix(name, "tenant ") {
			burst = 0
		}
		c.rated(name, rate, burst)
	}
}

// started checks that between any start and now no more have started than rate and burst allow, whatever changed meanwhile.
func (c *crowd) started(jobs []Leased) {
	for _, j := range jobs {
		for _, name := range []string{"", "tenant " + j.Tenant, "group " + j.Group, "type " + j.Type} {
			s := c.starts[name]
			if s == nil { // a type without limits
				continue
			}
			s.log = append(s.log, start{c.now, j.Cost})
			sum, dearest := 0.0, 1.0
			for _, l := range slices.Backward(s.log) {
				sum, dearest = sum+float64(l.cost), max(dearest, float64(l.cost))
				dt := float64(c.now-l.at) / 1e6
				most := s.rate*dt + max(s.burst, dearest) // a cost above the burst is granted when nothing is owed
				if c.m.S.Limiter == "fixed_window" {
					length := c.m.S.Window.Seconds()
					most = s.rate * length * (math.Floor(float64(c.now)/1e6/length) - math.Floor(float64(l.at)/1e6/length) + 1)
					if c.uneven {
						most += dearest // a cost above a window's is charged to those that follow
					}
					most = max(most, 1) // rates below one a window
				}
				if sum > most+1e-6 {
					c.t.Fatalf("%s: a cost of %v started within %v s; rate %v, burst %v", name, sum, dt, s.rate, s.burst)
				}
			}
		}
	}
}
