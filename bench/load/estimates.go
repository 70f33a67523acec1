package load

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/anteroom/anteroom/bench/visitor"
)

// shortestWait is the shortest wait whose estimate is judged, in seconds. A percentage of a shorter wait is not significant.
const shortestWait = 5.0

// shownEstimate is an estimate that was shown to a visitor.
type shownEstimate struct {
	at                 int64   // microseconds since 1970
	seconds, low, high float32 // of the wait
}

// Estimates compares the waits that were shown with the waits that followed.
type Estimates struct {
	Count   int     `json:"count"`    // estimates of waits of at least 5 s, of visitors who were admitted
	MAPE    float64 `json:"mape"`     // mean absolute error over the real wait
	Bias    float64 `json:"bias"`     // mean error over the real wait; above 0 the estimates were too long
	InRange float64 `json:"in_range"` // share of the real waits within the range
}

// noteEstimate stores the estimate of a response.
func (p *person) noteEstimate(a *visitor.Response, now time.Time) {
	if e := a.Status.ETA; e != nil && p.phase == waiting {
		p.shown = append(p.shown, shownEstimate{at: now.UnixMicro(), seconds: float32(e.Seconds), low: float32(e.Low), high: float32(e.High)})
	}
}

// judgeEstimates compares the estimates that were shown from a time on with the waits of the admitted visitors.
func judgeEstimates(people []person, from time.Time) Estimates {
	var e Estimates
	var absolute, signed float64
	within := 0
	for i := range people {
		p := &people[i]
		if p.admittedAt == 0 || p.absent || p.lost != "" {
			continue
		}
		for _, t := range p.shown {
			wait := float64(p.admittedAt-t.at) / 1e6
			if t.at < from.UnixMicro() || wait < shortestWait {
				continue
			}
			off := (float64(t.seconds) - wait) / wait
			e.Count++
			absolute += math.Abs(off)
			signed += off
			// Estimates are whole seconds, rounded up.
			if wait > float64(t.low)-1 && wait <= float64(t.high) {
				within++
			}
		}
	}
	if n := float64(e.Count); n > 0 {
		e.MAPE, e.Bias, e.InRange = absolute/n, signed/n, float64(within)/n
	}
	return e
}

func (e Estimates) line(w io.Writer) {
	if e.Count > 0 {
		fmt.Fprintf(w, "estimates  %d of waits of 5 s or more: mean absolute error %.1f %%, bias %+.1f %%, %.1f %% in range\n", e.Count, 100*e.MAPE, 100*e.Bias, 100*e.InRange)
	}
}
