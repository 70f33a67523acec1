package bulk

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/control"
)

// shared is an origin of a fixed capacity that visitors and jobs share, second by second: what comes above the capacity queues
// up, and what is answered takes the longer the fuller it is.
type shared struct {
	capacity float64
	backlog  float64
	line     float64 // visitors in the room, which lets in no more than admits
	admits   float64
	room     control.State
}

// steer is the room's own controller: it adapts to the origin as well, and does not know whose load it is.
func (o *shared) steer(second int, h control.Health, in float64) {
	p := control.Policy{MinRate: 20_000, MaxRate: 200_000, TargetP95: plant.Policy.TargetP95, MaxErrorRate: MaxErrors}
	o.room = control.Next(p, o.room, int64(second+1)*1e6, h, control.Usage{Rate: in, Wanted: o.line > 0})
	o.admits = float64(o.room.Rate) / 1000
}

// second takes a second's visitors and jobs, and gives the visitors let in and the latency that all had.
func (o *shared) second(visitors, jobs float64) (in float64, latency time.Duration) {
	in = min(o.line+visitors, o.admits)
	o.line += visitors - in
	o.backlog = max(0, o.backlog+in+jobs-o.capacity)
	full := min(0.98, (in+jobs)/o.capacity)
	return in, time.Duration((0.02/(1-full) + o.backlog/o.capacity) * float64(time.Second))
}

func fared(requests float64, p95 time.Duration) control.Health {
	return control.Health{Requests: int64(requests), P95: p95}
}

var plant = Pace{Policy: control.Policy{MinRate: 1000, MaxRate: 500_000, TargetP95: 200 * time.Millisecond, MaxErrorRate: MaxErrors}, Begin: 20_000}

// day is ten minutes of visitors: few, many within what the origin bears, a rush beyond it, and few again; from one to the next
// it takes half a minute.
func day(second int) float64 {
	marks := []struct {
		at       int
		visitors float64
	}{{0, 10}, {90, 10}, {120, 60}, {270, 60}, {300, 120}, {360, 120}, {390, 20}, {600, 20}}
	for i, m := range marks[1:] {
		if from := marks[i]; second < m.at {
			return from.visitors + (m.visitors-from.visitors)*float64(second-from.at)/float64(m.at-from.at)
		}
	}
	return 0
}

// past is what gateways report of the last three seconds.
type past struct {
	requests [3]float64
	latency  [3]time.Duration
}

func (p *past) add(second int, requests float64, latency time.Duration) {
	p.requests[second%3], p.latency[second%3] = requests, latency
}

func (p *past) health() control.Health {
	h := fared(p.requests[0]+p.requests[1]+p.requests[2], max(p.latency[0], p.latency[1], p.latency[2]))
	h.Span = 3 * time.Second
	return h
}

// live plays the day with jobs at the pace, or with none, and gives what visitors and jobs got, and what visitors left.
func live(p *Pace) (waits, slow, jobs, idle float64) {
	o := shared{capacity: 100, room: control.State{Rate: 60_000}}
	o.steer(0, control.Health{}, 0)
	var s pacing
	var people, runs past
	rate := 0.0
	for t := range 600 {
		if p != nil {
			h := admission.OriginHealth{Health: people.health(), Gateways: 2, Waiting: int64(math.Ceil(o.line))}
			s = s.next(p, int64(t+1)*1e6, runs.health(), h, control.Usage{Rate: rate, Wanted: true})
			rate = float64(s.rate(p)) / 1000
		}
		in, latency := o.second(day(t), rate)
		people.add(t, in, latency)
		o.steer(t, people.health(), in)
		runs.add(t, rate, latency)
		waits += o.line
		if latency > plant.Policy.TargetP95 {
			slow++
		}
		jobs += rate
		idle += o.capacity - in
	}
	return waits, slow, jobs, idle
}

// Visitors wait at most a tenth longer than without jobs, though their room adapts to the same origin, and jobs use half of
// what visitors leave. By the jobs' own latency alone, the two would share the origin.
func TestVisitorsFareAsIfThereWereNoJobs(t *testing.T) {
	t.Parallel()
	alone, never, _, left := live(nil)
	first, both := plant, plant
	first.People, both.Jobs = "shop", true
	waits, slow, jobs, _ := live(&first)
	shared, _, most, _ := live(&both)
	t.Logf("seconds in line: %.0f alone, %.0f with jobs that give way, %.0f with others; of 600 s above the target: %.0f, %.0f; jobs %.0f, %.0f of %.0f",
		alone, waits, shared, never, slow, jobs, most, left)
	if waits > 1.1*alone {
		t.Errorf("visitors waited %.0f s altogether, %.0f without jobs", waits, alone)
	}
	if slow > never+6 {
		t.Errorf("the origin was too slow for %.0f s, without jobs for %.0f", slow, never)
	}
	if jobs < 0.5*left {
		t.Errorf("%.0f jobs ran, visitors left room for %.0f", jobs, left)
	}
	if shared < 1.3*waits {
		t.Errorf("with jobs that do not give way visitors waited %.0f s, with those that do %.0f", shared, waits)
	}
}

func TestJobsGiveWay(t *testing.T) {
	t.Parallel()
	p := plant
	p.People = "shop"
	calm := admission.OriginHealth{Health: fared(1000, 20*time.Millisecond), Gateways: 1}
	use := control.Usage{Rate: 1e6, Wanted: true}
	at := int64(1e15)
	step := func(s pacing, h admission.OriginHealth) pacing {
		at += 1e6
		return s.next(&p, at, control.Health{}, h, use)
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
		{"somebody waits", admission.OriginHealth{Health: calm.Health, Gateways: 1, Waiting: 1}, high / 2},
		{"slower than seven tenths of the target", admission.OriginHealth{Health: fared(1000, 141*time.Millisecond), Gateways: 1}, high / 2},
		{"errors", admission.OriginHealth{Health: control.Health{Requests: 100, Errors: 6}, Gateways: 1}, high / 2},
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
	// Silence is held for a while, and then taken for nobody.
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
	// Both together: the smaller holds.
	p.Jobs = true
	s.Jobs.Rate = 2000
	if got := s.rate(&p); got != min(s.Jobs.Rate, s.People.Rate) {
		t.Errorf("both: %d", got)
	}
}

// Whatever is reported, the rate stays within its bounds and the state can be read again.
func TestPaceStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := plant
		p.Policy.MinRate = rapid.Int64Range(0, 5000).Draw(t, "min")
		p.Policy.MaxRate = p.Policy.MinRate + rapid.Int64Range(0, 1e6).Draw(t, "range")
		p.Begin = rapid.Int64Range(0, 2e6).Draw(t, "begin")
		p.Jobs, p.People = rapid.Bool().Draw(t, "jobs"), "shop"
		draw := func(what string) control.Health {
			n := rapid.Int64Range(0, 1000).Draw(t, what)
			return control.Health{Requests: n, Errors: rapid.Int64Range(0, n).Draw(t, "errors"), P95: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "p95"))}
		}
		var s pacing
		now := int64(1e15)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(-5e6, 5e6).Draw(t, "dt")
			h := admission.OriginHealth{Health: draw("people"), Gateways: rapid.IntRange(0, 2).Draw(t, "gateways"), Waiting: rapid.Int64Range(0, 2).Draw(t, "waiting")}
			s = s.next(&p, now, draw("jobs"), h, control.Usage{Rate: rapid.Float64Range(0, 1000).Draw(t, "rate"), Wanted: rapid.Bool().Draw(t, "wanted")})
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

// FuzzPacing reads what others may have written.
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
		next := s.next(&p, 1e15, fared(100, time.Second), admission.OriginHealth{Gateways: 1, Waiting: 3}, control.Usage{})
		if r := next.rate(&p); r < p.Policy.MinRate || r > p.Policy.MaxRate {
			t.Fatalf("%q leads to %d", text, r)
		}
	})
}
