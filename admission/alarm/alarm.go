// Package alarm decides when a limit of the configuration has been exceeded for long enough to act. It is pure; admission acts once over
// all gateways.
package alarm

import (
	"encoding/json"
	"fmt"
	"time"
)

// When is what an alarm watches.
type When string

// Quantities.
const (
	OriginErrors When = "origin_errors" // share of failed requests to the origin, over all gateways
	OriginP95    When = "origin_p95"    // s, over all gateways
	Waiting      When = "waiting"       // visitors in the queue
	Inside       When = "inside"        // sessions and admissions
)

// Do is what an alarm does.
type Do string

// Actions.
const (
	Pause  Do = "pause"
	Rate   Do = "rate"   // sets Spec.Rate
	Notify Do = "notify" // only logs and writes the audit log
)

// Spec is an alarm of the configuration.
type Spec struct {
	Name        string
	When        When
	Above       float64
	For         time.Duration
	Do          Do
	Rate        int64         // thousandths of a visitor per second, of Do Rate
	ResumeAfter time.Duration // after which the alarm takes back what it did, once the value is no longer above; 0: only operators do
}

// Watch is what one gateway has seen of an alarm. The zero value has seen nothing.
type Watch struct {
	Above bool  // at the last look
	Since int64 // since when it is so, µs; 0: never looked
	Known bool
	Value float64
}

// Look returns the watch after a look at now. An unknown value is not above.
func (w Watch) Look(s *Spec, now int64, value float64, known bool) Watch {
	above := known && value > s.Above
	if w.Since == 0 || above != w.Above {
		w.Since = now
	}
	w.Above, w.Known, w.Value = above, known, value
	return w
}

// lasts reports whether the value has been on its side of the limit for long enough.
func (w *Watch) lasts(s *Spec, now int64) bool {
	return w.Since > 0 && now-w.Since >= s.For.Microseconds()
}

// Record is what all gateways share about an alarm.
type Record struct {
	Fired   int64   `json:"fired,omitempty"`   // when it acted, µs of Redis's clock; 0: never
	Active  bool    `json:"active,omitempty"`  // it has acted, and the value has not been low for long enough since
	Before  *string `json:"before,omitempty"`  // the live value that its action replaced; nil: none
	Resumes bool    `json:"resumes,omitempty"` // its action is still to be taken back
}

// Step is what a gateway has to do about an alarm.
type Step uint8

// Steps.
const (
	Nothing Step = iota
	Act          // take the action
	Rearm        // it may act again
	Resume       // take the action back
)

// Next returns what is due at now.
func Next(s *Spec, w *Watch, r *Record, now int64) Step {
	lasts := w.lasts(s, now)
	switch {
	case w.Above && lasts && !r.Active:
		return Act
	case w.Above || !lasts:
	case r.Resumes && s.ResumeAfter > 0 && now-r.Fired >= s.ResumeAfter.Microseconds():
		return Resume
	case r.Active && (!r.Resumes || s.ResumeAfter == 0):
		return Rearm
	}
	return Nothing
}

// State returns the state of an alarm: ok, pending or fired.
func State(w *Watch, r *Record) string {
	switch {
	case r.Active:
		return "fired"
	case w.Above:
		return "pending"
	}
	return "ok"
}

// Parse reads a record that Text wrote; empty: the zero value.
func Parse(text string) (r Record, err error) {
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("alarm: %w", err)
	}
	return r, nil
}

// Text returns the record as the store keeps it.
func (r *Record) Text() string {
	b, _ := json.Marshal(r) // never fails
	return string(b)
}
