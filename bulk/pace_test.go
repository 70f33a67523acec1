package bulk

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
)

// shared is an origin of a fixed capacity that visitors and jobs share, a tenth of a second a step: what comes above the capacity
// queues up, and what is answered takes the longer the fuller it is.
type shared struct {
	capacity float64 // a second
	backlog  float64
	line     float64 // visitors in the room, which lets in no more than admits
	admits   float64 // a second
	room     adaptive.State
	patience adaptive.Patience
	jobs     int // the last second in which jobs ran above their least
}

// steer is the room's own controller: it adapts to the origin as well, and does not know whose load it is.
func (o *shared) steer(second int, h adaptive.Health, in float64) {
	p := adaptive.Policy{MinRate: 20_000, MaxRate: 200_000, TargetP95: plant.Policy.TargetP95, MaxErrorRate: MaxErrors}
	if now := int64(second+1) * 1e6; !o.patience.Waits(p.Level(h), o.jobs > 0 && second-o.jobs < 4, now) {
		o.room = adaptive.Next(p, o.room, now, h, adaptive.Usage{Rate: in, Wanted: o.line > 0})
	}
	o.admits = float64(o.room.Rate) / 1000
}

// step simulates a tenth of a second with so many visitors and jobs a second. It returns the visitors admitted and the latency of all
// requests.
func (o *shared) step(visitors, jobs float64) (in float64, latency time.Duration) {
	in = min(o.line+visitors/10, o.admits/10)
	o.line = max(0, o.line+visitors/10-in)
	if o.line < 1e-9 {
		o.line = 0
	}
	o.backlog = max(0, o.backlog+in+(jobs-o.capacity)/10)
	full := min(0.98, (10*in+jobs)/o.capacity)
	return in, time.Duration((0.02/(1-full) + o.backlog/o.capacity) * float64(time.Second))
}

func fared(requests float64, p95 time.Duration) adaptive.Health {
	return adaptive.Health{Requests: int64(requests), P95: p95}
}

var plant = Pace{Policy: adaptive.Policy{MinRate: 1000, MaxRate: 500_000, TargetP95: 200 * time.Millisecond, MaxErrorRate: MaxErrors}, Begin: 20_000}

// day is ten minutes of visitors: few, many within what the origin bears, a rush beyond it, and few again; from one to the next
// it takes so many seconds.
func day(at, takes float64) float64 {
	marks := []struct{ at, visitors float64 }{{0, 10}, {120, 60}, {300, 120}, {390, 20}}
	now := 0.0
	for i, m := range marks {
		switch {
		case i == 0 || at >= m.at:
			now = m.visitors
		case at > m.at-takes:
			return now + (m.visitors-now)*(at-m.at+takes)/takes
		}
	}
	return now
}

// past is what gateways report of the last three seconds.
type past struct {
	requests [3]float64
	latency  [3]time.Duration
}

func (p *past) begin(second int) { p.requests[second%3], p.latency[second%3] = 0, 0 }

func (p *past) add(second int, requests float64, latency time.Duration) {
	i := second % 3
	p.requests[i], p.latency[i] = p.requests[i]+requests, max(p.latency[i], latency)
}

func (p *past) health() adaptive.Health {
	h := fared(p.requests[0]+p.requests[1]+p.requests[2], max(p.latency[0], p.latency[1], p.latency[2]))
	h.Span = 3 * time.Second
	return h
}

// lived has what visitors and jobs were served in a day, and what visitors left unused.
type lived struct{ waits, slow, jobs, idle float64 }

// live plays the day with jobs at the pace, or with none.
func live(p *Pace, takes float64) (l lived) {
	o := shared{capacity: 100, room: adaptive.State{Rate: 60_000}}
	o.steer(0, adaptive.Health{}, 0)
	var s pacing
	var people, runs past
	var told admission.OriginHealth // by the gateways
	rate, in := 0.0, 0.0
	for i := range 6000 {
		t := i / 10
		switch i % 10 {
		case 0:
			if i > 0 {
				o.steer(t-1, people.health(), in)
				told = admission.OriginHealth{Health: people.health(), Gateways: 2, Waiting: int64(math.Ceil(o.line))}
			}
			people.begin(t)
			runs.begin(t)
			in = 0
		case 5: // workers look half a second after gateways spoke
			if p != nil {
				s = s.next(p, int64(t+1)*1e6, runs.health(), told, adaptive.Usage{Rate: rate, Wanted: true})
				rate = float64(s.rate(p)) / 1000
			}
		case 1, 3, 7, 9: // and for a line five times as often, of which gateways tell when it begins
			if p != nil && o.line > 0 && s.yields(p) {
				s = s.yield(p)
				rate = float64(s.rate(p)) / 1000
			}
		}
		if p != nil && s.yields(p) {
			o.jobs = t
		}
		n, latency := o.step(day(float64(i)/10, takes), rate)
		in += n
		people.add(t, n, latency)
		runs.add(t, rate/10, latency)
		l.waits += o.line / 10
		if latency > plant.Policy.TargetP95 {
			l.slow += 0.1
		}
		l.jobs += rate / 10
		l.idle += o.capacity/10 - n
	}
	return l
}

// Visitors wait hardly longer than without jobs, although their room adapts to the same origin, whether they arrive within half a
// minute or all at once. Jobs use half of the capacity that visitors leave. If jobs adapted to their own latency alone, jobs and
// visitors would share the origin equally.
func TestPace_LeavesVisitorsUnaffected(t *testing.T) {
	t.Parallel()
	for _, takes := range []float64{30, 1} {
		first, none, both := plant, plant, plant
		first.People, none.People, both.Jobs = "shop", "shop", true
		none.Policy.MinRate = 0
		alone, shared := live(nil, takes), live(&both, takes)
		t.Logf("within %.0f s: alone %.0f, beside jobs that do not give way %.0f", takes, alone, shared)
		for _, row := range []struct {
			pace *Pace
			most float64
		}{{&first, 1.07}, {&none, 1.04}} {
			l := live(row.pace, takes)
			t.Logf("at least %d/s: %.0f (%+.1f %%)", row.pace.Policy.MinRate/1000, l, 100*(l.waits/alone.waits-1))
			if l.waits > row.most*alone.waits {
				t.Errorf("visitors waited %.0f s altogether, %.0f without jobs", l.waits, alone.waits)
			}
			if l.slow > alone.slow+2.5 {
				t.Errorf("the origin was too slow for %.1f s, without jobs for %.1f", l.slow, alone.slow)
			}
			if l.jobs < 0.45*l.idle {
				t.Errorf("%.0f jobs ran, visitors left room for %.0f", l.jobs, l.idle)
			}
			if shared.waits < 1.3*l.waits {
				t.Errorf("with jobs that do not give way visitors waited %.0f s, with those that do %.0f", shared.waits, l.waits)
			}
		}
	}
}

func TestPace_YieldsToVisitors(t *testing.T) {
	t.Parallel()
	p := plant
	p.People = "shop"
	calm := admission.OriginHealth{Health: fared(1000, 20*time.Millisecond), Gateways: 1}
	use := adaptive.Usage{Rate: 1e6, Wanted: true}
	at := int64(1e15)
	step := func(s pacing, h admission.OriginHealth) pacing {
		at += 1e6
		return s.next(&p, at, adaptive.Health{}, h, use)
	}
	var s pacing
	for range 100 {
		s = step(s, calm)
	}
	high := s.rate(&p)
	if high < 100_000 {
		t.Fatalf("after 100 calm seconds %d", high)
	}
	for _, row := range []struct {
		name string
		h    admission.OriginHealth
		want int64
	}{
		{"somebody waits", admission.OriginHealth{Health: calm.Health, Gateways: 1, Waiting: 1}, 1000},
		{"slower than seven tenths of the target", admission.OriginHealth{Health: fared(1000, 141*time.Millisecond), Gateways: 1}, high / 2},
		{"slower than twice that", admission.OriginHealth{Health: fared(1000, 281*time.Millisecond), Gateways: 1}, 1000},
		{"errors", admission.OriginHealth{Health: adaptive.Health{Requests: 100, Errors: 6}, Gateways: 1}, 1000},
		{"no word from the gateways", admission.OriginHealth{}, high},
	} {
		if got := step(s, row.h).rate(&p); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
		at -= 1e6
	}
	few := admission.OriginHealth{Health: fared(3, time.Hour), Gateways: 1}
	if got := step(s, few).rate(&p); got < high {
		t.Errorf("three requests are no reason to slow down: %d", got)
	}
	// While no gateway reports, the rate is kept for a while; after that the origin counts as one without visitors.
	waiting := admission.OriginHealth{Health: calm.Health, Gateways: 1, Waiting: 9}
	for range 20 {
		s = step(s, waiting)
	}
	if s.rate(&p) != p.Policy.MinRate {
		t.Fatalf("while visitors wait: %d", s.rate(&p))
	}
	for range 14 {
		s = step(s, admission.OriginHealth{})
	}
	if s.rate(&p) != p.Policy.MinRate {
		t.Fatalf("14 s of silence: %d", s.rate(&p))
	}
	for range 10 {
		s = step(s, admission.OriginHealth{})
	}
	if s.rate(&p) <= p.Policy.MinRate {
		t.Fatal("after a long silence jobs do not come back")
	}
	// With both, the smaller rate applies.
	p.Jobs = true
	s.Jobs.Rate = 2000
	if got := s.rate(&p); got != min(s.Jobs.Rate, s.People.Rate) {
		t.Errorf("both: %d", got)
	}
}

// For every report, the rate stays within its bounds and the saved state can be restored.
func TestPace_StaysWithinBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := plant
		p.Policy.MinRate = rapid.Int64Range(0, 5000).Draw(t, "min")
		p.Policy.MaxRate = p.Policy.MinRate + rapid.Int64Range(0, 1e6).Draw(t, "range")
		p.Begin = rapid.Int64Range(0, 2e6).Draw(t, "begin")
		p.Jobs, p.People = rapid.Bool().Draw(t, "jobs"), "shop"
		draw := func(what string) adaptive.Health {
			n := rapid.Int64Range(0, 1000).Draw(t, what)
			return adaptive.Health{Requests: n, Errors: rapid.Int64Range(0, n).Draw(t, "errors"), P95: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "p95"))}
		}
		var s pacing
		now := int64(1e15)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(-5e6, 5e6).Draw(t, "dt")
			h := admission.OriginHealth{Health: draw("people"), Gateways: rapid.IntRange(0, 2).Draw(t, "gateways"), Waiting: rapid.Int64Range(0, 2).Draw(t, "waiting")}
			s = s.next(&p, now, draw("jobs"), h, adaptive.Usage{Rate: rapid.Float64Range(0, 1000).Draw(t, "rate"), Wanted: rapid.Bool().Draw(t, "wanted")})
			if r := s.rate(&p); r < p.Policy.MinRate || r > p.Policy.MaxRate {
				t.Fatalf("rate %d, bounds %d and %d", r, p.Policy.MinRate, p.Policy.MaxRate)
			}
			text, err := s.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			var again pacing
			if err := again.UnmarshalText(text); err != nil || again != s {
				t.Fatalf("%s: %+v %v", text, again, err)
			}
		}
	})
}

// FuzzPacing parses states and reports as other versions may have written them.
func FuzzPacing(f *testing.F) {
	f.Add(`{"jobs":"{\"rate\":5}","people":"{\"rate\":7,\"level\":1}","heard":9}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s pacing
		if s.UnmarshalText([]byte(text)) != nil {
			return
		}
		p := plant
		p.Jobs, p.People = true, "shop"
		next := s.next(&p, 1e15, fared(100, time.Second), admission.OriginHealth{Gateways: 1, Waiting: 3}, adaptive.Usage{})
		if r := next.rate(&p); r < p.Policy.MinRate || r > p.Policy.MaxRate {
			t.Fatalf("%q leads to %d", text, r)
		}
	})
}
