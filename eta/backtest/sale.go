package backtest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/anteroom/anteroom/eta"
)

// Sale describes the events of a room. Functions take seconds since its beginning; nil ones are 0, or no limit.
type Sale struct {
	Name     string
	Start    time.Time // in UTC; the room's zone is UTC
	Seconds  float64
	Tick     float64                  // s between two snapshots, at most 1
	Initial  int64                    // visitors in the queue when it begins
	Arrivals func(float64) float64    // joins/s
	Rate     func(float64) float64    // of the policy, visitors/s, known to the gateway
	Set      func(float64) float64    // the part of it that operators have set; nil: all
	Steps    func(float64) []eta.Step // the future rates that the gateway knows
	Flow     func(float64) float64    // visitors/s that something else admits, unknown to the gateway
	Losses   func(float64) float64    // visitors/s who leave from anywhere in the queue
	// Gone returns, for a recorded sale, after how many seconds in the queue a visitor becomes absent who joins at t with that many
	// ahead and departs silently; false: the visitor stays. nil: Leave and Silent decide.
	Gone    func(t float64, ahead int64, rng *rand.Rand) (seconds float64, gone bool)
	Paused  func(float64) bool
	Leave   float64                             // share of visitors who leave before their turn
	Silent  float64                             // share of leaving visitors who send no request
	NoShow  float64                             // share of visitors who are admitted and do not claim
	Active  int64                               // max_active; 0: no limit
	Session float64                             // s, mean length of a session
	Stay    func(*rand.Rand) float64            // s, of one session; nil: exponential, by Session
	Full    func(float64) (limit, active int64) // as recorded; nil: Active, and the simulated sessions
	Exact   bool                                // arrivals and flow are even, not random
	Step    float64                             // s: when the flow changes; 0: it does not
}

const (
	absence     = 600 // s, as the default of queue.absence
	claimWindow = 300 // s, as the default of queue.claim_window
)

func at(f func(float64) float64, t, otherwise float64) float64 {
	if f == nil {
		return otherwise
	}
	return f(t)
}

func constant(x float64) func(float64) float64 { return func(float64) float64 { return x } }

func steps(first float64, more ...float64) func(float64) float64 { // at, value, at, value…
	return func(t float64) float64 {
		value := first
		for i := 0; i < len(more); i += 2 {
			if t >= more[i] {
				value = more[i+1]
			}
		}
		return value
	}
}

// Synthetic returns the simulated sales for a seed, always the same for one seed.
func Synthetic(seed uint64) []Sale {
	begin := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	hour := Sale{Start: begin, Seconds: 3600, Tick: 0.25, Initial: 4000, Leave: 0.05, Silent: 0.5, NoShow: 0.03,
		Arrivals: constant(20), Rate: constant(20)}
	with := func(name string, change func(*Sale)) Sale {
		s := hour
		s.Name = name
		change(&s)
		return s
	}
	return []Sale{
		with("steady", func(*Sale) {}),
		with("ramp", func(s *Sale) {
			s.Rate, s.Flow = constant(100), func(t float64) float64 { return 12 + 12*t/3600 }
		}),
		with("step up", func(s *Sale) {
			s.Rate, s.Flow, s.Step, s.Initial, s.Arrivals = constant(100), steps(15, 1500, 30), 1500, 6000, steps(15, 1500, 28)
		}),
		with("step down", func(s *Sale) {
			s.Rate, s.Flow, s.Step, s.Arrivals = constant(100), steps(30, 1500, 15), 1500, steps(30, 1500, 15)
		}),
		with("new rate", func(s *Sale) {
			s.Rate, s.Step, s.Arrivals = steps(20, 1500, 40), 1500, steps(20, 1500, 40)
		}),
		with("pause", func(s *Sale) { s.Paused = func(t float64) bool { return t >= 1200 && t < 1320 } }),
		with("abandonment", func(s *Sale) { s.Leave, s.Arrivals = 0.3, constant(30) }),
		with("origin stall", func(s *Sale) {
			s.Rate, s.Flow = constant(50), steps(20, 1500, 2, 1560, 20)
		}),
		with("full site", func(s *Sale) {
			s.Rate, s.Active, s.Session, s.Initial, s.Arrivals = constant(50), 6000, 300, 9000, constant(21)
		}),
		TimeOfDay(seed),
	}
}

// Lumps returns an hour of a room that is filled at once, by sessions most of which end together. It is not part of Synthetic, so
// that the seeds of those sales stay as they are.
func Lumps() Sale {
	return Sale{Name: "lumps", Start: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), Seconds: 3600, Tick: 0.25, Initial: 9000, Leave: 0.05, Silent: 0.5, NoShow: 0.03,
		Arrivals: constant(6), Rate: constant(50), Active: 2000, Stay: visits}
}

// SilentLeavers returns an hour of a room in which a third of the visitors depart silently, at any time of their expected wait, and
// whose operator halves the rate. Like Lumps, it is not part of Synthetic.
func SilentLeavers() Sale {
	return Sale{Name: "silent leavers", Start: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), Seconds: 3600, Tick: 0.25, Initial: 4000,
		Leave: 1. / 3, Silent: 1, NoShow: 0.03, Arrivals: steps(28, 1500, 14), Rate: steps(20, 1500, 10), Step: 1500}
}

// visits returns the length of a session, s: until session.ttl has run out, and longer for one in five.
func visits(rng *rand.Rand) float64 {
	stay := 300 + 15*rng.Float64()
	if rng.Float64() < 0.2 {
		stay += 200 * rng.ExpFloat64()
	}
	return stay
}

// TimeOfDay returns 16 hours of a room whose flow depends on the hour of the day. Each day has its own height and timing, the
// weights of neighbouring hours blend, and the flow wanders by some per cent.
func TimeOfDay(seed uint64) Sale {
	rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a simulation
	day := [24]float64{}
	for h := range day {
		switch {
		case h >= 22:
			day[h] = 0.8
		case h >= 18:
			day[h] = 2
		case h >= 12:
			day[h] = 1.5
		case h >= 9:
			day[h] = 1
		default:
			day[h] = 0.3
		}
		day[h] *= 0.9 + 0.2*rng.Float64()
	}
	shift, height := 0.5*(rng.Float64()-0.5), 3*(0.8+0.4*rng.Float64())
	wander := make([]float64, 24*60+1) // by minutes, an autoregressive process
	for i := 1; i < len(wander); i++ {
		wander[i] = 0.98*wander[i-1] + 0.012*rng.NormFloat64()
	}
	start := time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC).AddDate(0, 0, int(seed%7))
	weight := func(hour float64) float64 { // linear from a quarter of an hour before each full hour to a quarter after it
		hour = math.Mod(hour+shift+48, 24)
		h := math.Floor(hour)
		into, here := hour-h, day[int(h)]
		if into < 0.25 {
			before := day[(int(h)+23)%24]
			return before + (here-before)*(0.5+2*into)
		}
		if into > 0.75 {
			return here + (day[(int(h)+1)%24]-here)*(2*into-1.5)
		}
		return here
	}
	hours := float64(start.Hour())
	flow := func(t float64) float64 {
		return height * weight(hours+t/3600) * math.Exp(wander[int(t/60)%len(wander)])
	}
	return Sale{Name: "time of day", Start: start, Seconds: 16 * 3600, Tick: 1, Initial: 12000, Leave: 0.02, Silent: 0.5, NoShow: 0.03,
		Rate: constant(50), Flow: flow, Arrivals: func(t float64) float64 { return 0.99 * flow(t) }}
}
