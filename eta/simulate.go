package eta

import "math"

// Plan is what operators can set of a room's admissions.
type Plan struct {
	Rate      float64 // visitors/s
	MaxActive int64   // 0: no limit
	Paused    bool
}

// Outcome is the future of a queue under a Plan.
type Outcome struct {
	Plan     Plan
	Newcomer Estimate // of a visitor who joins now
	Last     Estimate // of the last in the queue; unknown while nobody waits
	// Seconds is the time until nobody of today's queue waits. Empties is false where that does not happen.
	Seconds float64
	Empties bool
	Inside  float64 // sessions and admissions at that time, or now where Empties is false
}

// Simulate returns the outcome of a plan for the room of in, whose own plan is in.Rate, in.MaxActive and in.Paused. session is the time
// in seconds after which a session ends, used where the room does not show it.
//
// The queue is that of Forecast.At. Sessions are a fluid too: with i of them, each ending at the rate μ, and r admissions a second
//
//	di/dt = r − μi,   so that   i(t) = r/μ + (i₀ − r/μ)·e^(−μt)
//
// until i reaches max_active; from then on as many are admitted as end, μ·max_active a second. By Little's law μ is the present flow
// over the sessions of now. Simulate changes nothing.
func Simulate(in Input, p Plan, session float64) Outcome {
	base := Window{}.Forecast(nil, in)
	flow, inside := base.Rate(), float64(in.Active)
	ending := 1 / max(1, session)
	if flow > 0 && inside > 0 {
		ending = flow / inside
	}
	same := p == Plan{in.Rate, in.MaxActive, in.Paused}
	f, rate := base, flow
	if !same {
		full := in.MaxActive > 0 && in.Active >= in.MaxActive
		switch raised := p.MaxActive == 0 || p.MaxActive > in.MaxActive; {
		case full && raised || in.Paused: // what was observed is the limit's work, not the rate's
			rate = p.Rate
		case in.Rate > 0:
			rate = min(p.Rate, flow*p.Rate/in.Rate)
		default:
			rate = p.Rate
		}
		f = planned(in, p, rate, ending)
	}
	o := Outcome{Plan: p, Inside: inside}
	if p.Paused {
		return o
	}
	o.Newcomer = f.At(in.Waiting)
	if in.Waiting > 0 {
		o.Last = f.At(in.Waiting - 1)
	}
	if o.Empties = in.Waiting == 0 || o.Last.Known; o.Empties {
		o.Seconds = o.Last.Seconds
		o.Inside = sessions(p, inside, rate, ending, o.Seconds)
	}
	return o
}

// planned returns the forecast for a plan: of its rate until the room is full, and of the sessions that end from then on.
func planned(in Input, p Plan, rate, ending float64) *Forecast {
	in.Rate, in.Set, in.MaxActive, in.Paused = rate, rate, 0, p.Paused
	in.Buckets, in.Schedule = nil, nil
	if p.MaxActive > 0 {
		from, top := fills(float64(p.MaxActive), float64(in.Active), rate, ending), ending*float64(p.MaxActive)
		switch at := in.Now + int64(min(from, 1e9)*1e6); {
		case float64(in.Active) > float64(p.MaxActive): // nobody is admitted until enough sessions have ended
			in.Hold, in.Rate = max(in.Hold, at), min(rate, top)
			in.Set = in.Rate
		case from <= 0:
			in.Rate = min(rate, top)
			in.Set = in.Rate
		case !math.IsInf(from, 1):
			in.Schedule = []Step{{At: at, Rate: min(rate, top)}}
		}
	}
	return Window{}.Forecast(nil, in)
}

// fills returns the time until the number of sessions is most, coming from above or below; +Inf: never.
func fills(most, inside, rate, ending float64) float64 {
	if inside > most {
		return math.Log(inside/most) / ending
	}
	balance := rate / ending
	if balance <= most {
		return math.Inf(1)
	}
	return math.Log((balance-inside)/(balance-most)) / ending
}

// sessions returns the number of sessions after a time.
func sessions(p Plan, inside, rate, ending, seconds float64) float64 {
	if p.MaxActive > 0 && inside > float64(p.MaxActive) {
		return max(float64(p.MaxActive), inside*math.Exp(-ending*seconds))
	}
	balance := rate / ending
	n := balance + (inside-balance)*math.Exp(-ending*seconds)
	if p.MaxActive > 0 {
		n = min(n, float64(p.MaxActive))
	}
	return n
}
