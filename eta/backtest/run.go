package backtest

import (
	"math"
	"time"

	"github.com/anteroom/anteroom/eta"
)

// Contender is an estimator in a comparison.
type Contender struct {
	Name      string
	Estimator eta.Estimator
	Learn     bool // use learned weights of hours
}

// Score sums up the errors of an estimator in sales of one kind.
type Score struct {
	Asked     int     // estimates of a wait of at least five seconds
	Unknown   int     // polls without an estimate
	Fallbacks int     // polls in which window replaced the model
	Percent   float64 // sum of |promised − real| / real
	Seconds   float64 // sum of |promised − real|
	Under     int     // estimates below the real wait
	Within    int     // waits within the range
	Updates   int     // estimates after the visitor's first
	Jumps     int     // of these, more than a fifth higher
	After     int     // estimates from one to three minutes after the step
	AfterSum  float64 // of their |promised − real| / real
	First     int     // estimates within the first minute after the step
	FirstSum  float64
}

// Add adds another score.
func (s *Score) Add(o Score) {
	s.Asked, s.Unknown, s.Fallbacks = s.Asked+o.Asked, s.Unknown+o.Unknown, s.Fallbacks+o.Fallbacks
	s.Percent, s.Seconds = s.Percent+o.Percent, s.Seconds+o.Seconds
	s.Under, s.Within, s.Updates, s.Jumps = s.Under+o.Under, s.Within+o.Within, s.Updates+o.Updates, s.Jumps+o.Jumps
	s.After, s.AfterSum, s.First, s.FirstSum = s.After+o.After, s.AfterSum+o.AfterSum, s.First+o.First, s.FirstSum+o.FirstSum
}

func share(n float64, of int) float64 {
	if of == 0 {
		return math.NaN()
	}
	return n / float64(of)
}

// MAPE returns the mean absolute error over the real wait; NaN without estimates, here and below.
func (s Score) MAPE() float64 { return share(s.Percent, s.Asked) }

// MAE returns the mean absolute error, s.
func (s Score) MAE() float64 { return share(s.Seconds, s.Asked) }

// UnderShare returns the share of estimates that were too low.
func (s Score) UnderShare() float64 { return share(float64(s.Under), s.Asked) }

// Coverage returns the share of waits that lay within the range.
func (s Score) Coverage() float64 { return share(float64(s.Within), s.Asked) }

// JumpShare returns the share of estimates more than a fifth above the visitor's previous one.
func (s Score) JumpShare() float64 { return share(float64(s.Jumps), s.Updates) }

// AfterMAPE returns MAPE for the estimates from one to three minutes after the step.
func (s Score) AfterMAPE() float64 { return share(s.AfterSum, s.After) }

const (
	leastWait = 5.0  // s; shorter waits are left out, because their relative errors mean little
	followed  = 1500 // approximate number of visitors whose polls are simulated in one sale
)

// account holds the estimates that one visitor received.
type account struct {
	at        []float64
	announced [][]eta.Estimate // by poll, by contender
}

// Run simulates a sale with all contenders at once, each with the input that a gateway has, and returns their scores in order.
// Visitors poll as a gateway with the first contender advises: at intervals of a tenth of the wait, 2 s to a minute, ± 15 %.
func Run(s Sale, seed uint64, contenders []Contender) []Score {
	scores, _ := run(s, seed, contenders, nil)
	return scores
}

// run simulates a sale. It also returns examples, with hours in zone, unless zone is nil.
func run(s Sale, seed uint64, contenders []Contender, zone *time.Location) ([]Score, []Example) {
	q := newQueue(&s, seed)
	predictors := make([]*eta.Predictor, len(contenders))
	for i, c := range contenders {
		predictors[i] = eta.NewPredictor(c.Estimator, c.Learn)
	}
	scores := make([]Score, len(contenders))
	var accounts []account
	var asked []Example
	pending := map[int][]int{} // examples by account
	var made []Example
	q.admitted = func(i int, t float64) {
		score(&s, &accounts[i], t, scores)
		accounts[i] = account{}
		for _, e := range pending[i] {
			asked[e].Real = t - asked[e].at
			if asked[e].Real >= leastWait {
				made = append(made, asked[e])
			}
		}
		delete(pending, i)
	}
	expected := float64(s.Initial)
	for t := 0.0; t < s.Seconds; t += 60 {
		expected += at(s.Arrivals, t, 0) * 60
	}
	every := max(1, int(expected)/followed)
	agenda := make([][]int, int(75/s.Tick)) // visitors by the tick of their next poll
	tick := 0
	forecasts := make([]*eta.Forecast, len(contenders))
	ask := func(i int) {
		v := &q.places.all[i]
		if !v.in || v.leaves > 0 && q.t > v.leaves {
			return
		}
		a := &accounts[v.followed]
		announced := make([]eta.Estimate, len(forecasts))
		ahead := q.places.before(i)
		for j, f := range forecasts {
			announced[j] = f.At(ahead)
			if f.Fallback() != eta.FallbackNone {
				scores[j].Fallbacks++
			}
		}
		a.at, a.announced = append(a.at, q.t), append(a.announced, announced)
		if zone != nil && announced[0].Known {
			in := q.input()
			pending[v.followed] = append(pending[v.followed], len(asked))
			asked = append(asked, Example{X: eta.Features(forecasts[0], &in, zone).Then(announced[0].Seconds, &in, zone), Window: announced[0].Seconds, at: q.t})
		}
		wait := 2.0
		if announced[0].Known {
			wait = min(max(announced[0].Seconds/10, 2), 60)
		}
		due := tick + max(1, int(wait*(0.85+0.3*q.rng.Float64())/s.Tick))
		agenda[due%len(agenda)] = append(agenda[due%len(agenda)], i)
	}
	joins, count := 0.0, 0
	enter := func(spread float64) {
		i := q.join(spread)
		if count++; count%every == 0 {
			q.places.all[i].followed = len(accounts)
			accounts = append(accounts, account{})
			if forecasts[0] != nil {
				ask(i)
			} else {
				agenda[1] = append(agenda[1], i)
			}
		}
	}
	q.t = -s.Tick
	for range s.Initial {
		enter(0)
	}
	q.t = 0
	q.limiter.tokens = 0
	for q.t < s.Seconds {
		q.step()
		tick++
		in := q.input()
		for i, p := range predictors {
			forecasts[i] = p.Forecast(in)
		}
		n := q.draw(at(s.Arrivals, q.t, 0)*s.Tick, &joins)
		for j := range n {
			enter(s.Tick * float64(j) / float64(n))
		}
		due := agenda[tick%len(agenda)]
		agenda[tick%len(agenda)] = nil
		for _, i := range due {
			ask(i)
		}
	}
	return scores, made
}

// score compares a visitor's estimates with the time of their admission.
func score(s *Sale, a *account, t float64, scores []Score) {
	last := make([]float64, len(scores))
	for i, at := range a.at {
		real := t - at
		if real < leastWait {
			return
		}
		for j := range scores {
			score, e := &scores[j], a.announced[i][j]
			if !e.Known {
				score.Unknown++
				continue
			}
			off := math.Abs(e.Seconds - real)
			score.Asked++
			score.Percent += off / real
			score.Seconds += off
			if e.Seconds < real {
				score.Under++
			}
			if e.Low <= real && real <= e.High {
				score.Within++
			}
			if last[j] > 0 {
				score.Updates++
				if e.Seconds > 1.2*last[j] {
					score.Jumps++
				}
			}
			last[j] = e.Seconds
			if s.Step > 0 && at >= s.Step {
				switch since := at - s.Step; {
				case since < 60:
					score.First++
					score.FirstSum += off / real
				case since < 180:
					score.After++
					score.AfterSum += off / real
				}
			}
		}
	}
}

// Example is one line of a model's training data: the features of eta.FeatureNames, the estimate of Window and the real wait.
type Example struct {
	X      eta.Example `json:"x"`
	Window float64     `json:"window_seconds"`
	Real   float64     `json:"real_seconds"`

	at float64
}

// Examples simulates a sale and returns training data.
func Examples(s Sale, seed uint64, zone *time.Location) []Example {
	_, examples := run(s, seed, []Contender{{Name: "window", Estimator: eta.Window{}}}, zone)
	return examples
}
