package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bench/visitor"
)

// shortestWait is the shortest wait whose estimate is judged, s: a percentage of less says little.
const shortestWait = 5.0

// shownEstimate is an estimate that a visitor was shown.
type shownEstimate struct {
	at                 int64   // microseconds since 1970
	seconds, low, high float32 // of the wait
}

// estimates is how the waits that were shown compare with the waits that followed.
type estimates struct {
	Count   int     `json:"count"`    // estimates of waits of at least 5 s, of visitors who were admitted
	MAPE    float64 `json:"mape"`     // mean absolute error over the real wait
	Bias    float64 `json:"bias"`     // mean error over the real wait; above 0 too long a wait was shown
	InRange float64 `json:"in_range"` // share of the real waits that lay within the range
}

// noteEstimate keeps the estimate of an answer.
func (p *person) noteEstimate(a *visitor.Answer, now time.Time) {
	if e := a.Status.ETA; e != nil && p.phase == waiting {
		p.shown = append(p.shown, shownEstimate{at: now.UnixMicro(), seconds: float32(e.Seconds), low: float32(e.Low), high: float32(e.High)})
	}
}

// judgeEstimates compares the estimates that were shown from a time on with the waits of those who were admitted.
func judgeEstimates(people []person, from time.Time) estimates {
	var e estimates
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
			// Figures are whole seconds, rounded up.
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

func (e estimates) line(w *strings.Builder) {
	if e.Count > 0 {
		fmt.Fprintf(w, "estimates  %d of waits of 5 s or more: mean absolute error %.1f %%, bias %+.1f %%, %.1f %% in range\n", e.Count, 100*e.MAPE, 100*e.Bias, 100*e.InRange)
	}
}
