// Package ramp raises or lowers the rate of a room step by step. It is pure: a gateway applies each step with a compare-and-set in the
// store, so that one step is taken once, whichever gateway takes it.
package ramp

import (
	"encoding/json"
	"fmt"
	"time"
)

// State is the state of a ramp.
type State string

// A ramp is in exactly one of these states. The last two are final.
const (
	Running State = "running"
	Held    State = "held" // its condition does not hold, or the room is paused
	Done    State = "done"
	Stopped State = "stopped"
)

// Breach is what a ramp does when a step is due and its condition does not hold.
type Breach string

// Breaches.
const (
	Hold Breach = "hold" // wait until it holds
	Back Breach = "back" // take a step back, not beyond the first rate, and try again after Every
	Stop Breach = "stop" // end the ramp
)

// Spec is a ramp as an operator asks for it. Rates are thousandths of a visitor per second.
type Spec struct {
	From   int64         `json:"from"`
	Step   int64         `json:"step"` // negative: the ramp lowers the rate
	Every  time.Duration `json:"every"`
	Until  int64         `json:"until"`
	P95    time.Duration `json:"p95"`    // steps are taken while the origin's p95 is below; 0: whatever it is
	Errors float64       `json:"errors"` // likewise its share of failed requests
	Breach Breach        `json:"breach"`
}

// Ramp is a ramp at work. Times are µs of Redis's clock.
type Ramp struct {
	Spec
	By      string `json:"by"`
	State   State  `json:"state"`
	Reason  string `json:"reason,omitempty"` // of Held and Stopped
	Rate    int64  `json:"rate"`             // that it has set last
	Steps   int64  `json:"steps"`
	Next    int64  `json:"next"`
	Started int64  `json:"started"`
	Ended   int64  `json:"ended,omitempty"`
}

// Health is what a ramp has to know of the room and its origin.
type Health struct {
	Paused    bool
	Measured  bool // there were requests to the origin lately
	P95       time.Duration
	ErrorRate float64
}

// New returns a ramp that begins now: the caller sets its rate.
func New(s Spec, by string, now int64) Ramp {
	r := Ramp{Spec: s, By: by, State: Running, Rate: s.From, Started: now, Next: now + s.Every.Microseconds()}
	if s.From == s.Until {
		r.State, r.Ended = Done, now
	}
	return r
}

// Over reports whether the ramp has ended.
func (r *Ramp) Over() bool { return r.State == Done || r.State == Stopped }

// End returns the ramp, stopped for a reason.
func (r Ramp) End(reason string, now int64) Ramp {
	r.State, r.Reason, r.Ended = Stopped, reason, now
	return r
}

// After returns the ramp at now. The caller applies it if it differs from r; where the rate does, it sets the rate.
func (r Ramp) After(now int64, h Health) Ramp {
	if r.Over() {
		return r
	}
	breach := r.breach(h)
	switch {
	case breach != "" && r.Breach == Stop && !h.Paused && h.Measured:
		return r.End(breach, now)
	case now < r.Next:
		return r
	case breach == "":
		r.State, r.Reason = Running, ""
		r.step(r.Step, now)
		if r.Rate == r.Until {
			r.State, r.Ended = Done, now
		}
	case r.Breach == Back && !h.Paused && h.Measured:
		r.State, r.Reason = Held, breach
		if r.Rate == r.From {
			r.Next = now + r.Every.Microseconds()
			break
		}
		r.step(-r.Step, now)
	default:
		r.State, r.Reason = Held, breach
	}
	return r
}

// step changes the rate by one step within From and Until.
func (r *Ramp) step(by, now int64) {
	low, high := min(r.From, r.Until), max(r.From, r.Until)
	r.Rate = min(max(r.Rate+by, low), high)
	r.Steps++
	r.Next = now + r.Every.Microseconds()
}

// breach returns why no step may be taken now; empty: one may.
func (r *Ramp) breach(h Health) string {
	switch {
	case h.Paused:
		return "the room is paused"
	case r.P95 == 0 && r.Errors == 0:
		return ""
	case !h.Measured:
		return "no requests to the origin are measured"
	case r.P95 > 0 && h.P95 >= r.P95:
		return fmt.Sprintf("the origin's p95 is not below %d ms", r.P95.Milliseconds())
	case r.Errors > 0 && h.ErrorRate >= r.Errors:
		return fmt.Sprintf("the origin's share of errors is not below %g", r.Errors)
	}
	return ""
}

// Parse reads a ramp that Text wrote.
func Parse(text string) (r Ramp, err error) {
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("ramp: %w", err)
	}
	return r, nil
}

// Text returns the ramp as the store keeps it.
func (r *Ramp) Text() string {
	b, _ := json.Marshal(r) // never fails: no maps, channels or infinities
	return string(b)
}
