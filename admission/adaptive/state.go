package adaptive

import (
	"encoding/json"
	"errors"
	"fmt"
)

// State is all that the controller keeps between two calls, so that another gateway can go on from it. Its text is JSON. Times are µs
// as passed to Next, rates thousandths a second.
type State struct {
	Rate  int64 `json:"rate"`
	Level Level `json:"level"` // that the last call acted on
	At    int64 `json:"at"`    // time of the last call

	// Fields of ModeGradient.
	Ceiling  int64 `json:"ceiling,omitempty"`  // what the origin bore at its last overload; 0: unknown
	Good     int64 `json:"good,omitempty"`     // the most that it has borne, and may bear again
	Each     int64 `json:"each,omitempty"`     // requests that an admission leads to, thousandths
	Learned  int64 `json:"learned,omitempty"`  // calls that Each is averaged over, up to learning
	Coming   int64 `json:"coming,omitempty"`   // requests of an admission at present, as a share of Each, thousandths; 0: unknown
	Lagged   int64 `json:"lagged,omitempty"`   // admissions a second some seconds ago, thousandths
	P95      int64 `json:"p95,omitempty"`      // µs, of the last call
	Slope    int64 `json:"slope,omitempty"`    // µs a second by which that grows
	Baseline int64 `json:"baseline,omitempty"` // µs; p95 of a healthy origin, frozen while it is not
	Cut      int64 `json:"cut,omitempty"`      // of the last blind cut, or when a queue was last seen to drain

	// Fields of ModeStep.
	Better int64 `json:"better,omitempty"` // since when the origin is healthier than Level
	Raised int64 `json:"raised,omitempty"` // time of the last step up
	Hold   int64 `json:"hold,omitempty"`   // how long the origin must be healthier before a step up, µs
}

// MostState bounds the text of a state.
const MostState = 1 << 10

// ErrState is returned when a text is no state.
var ErrState = errors.New("adaptive: not a state")

// MarshalText returns the form of the store.
func (s State) MarshalText() ([]byte, error) {
	type plain State
	return json.Marshal(plain(s))
}

// UnmarshalText reads the form of MarshalText.
func (s *State) UnmarshalText(text []byte) error {
	if len(text) > MostState {
		return fmt.Errorf("%w: %d bytes", ErrState, len(text))
	}
	type plain State
	var got plain
	if err := json.Unmarshal(text, &got); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if got.Level > Unhealthy {
		return fmt.Errorf("%w: level %d", ErrState, got.Level)
	}
	*s = State(got)
	return nil
}

// latest bounds times and rates, so that sums of two of them fit.
const latest = 1 << 60

// clean limits every value to its range: other programs may write to the store, and a clock may have been ahead.
func (s State) clean(now int64) State {
	for _, v := range []*int64{&s.Rate, &s.At, &s.Ceiling, &s.Good, &s.Each, &s.Learned, &s.Lagged, &s.Coming, &s.P95, &s.Baseline, &s.Cut, &s.Better, &s.Raised, &s.Hold} {
		*v = min(latest, max(0, *v))
	}
	s.Slope = min(1e9, max(-1e9, s.Slope))
	for _, v := range []*int64{&s.At, &s.Cut, &s.Better, &s.Raised} {
		*v = min(*v, max(0, now))
	}
	return s
}
