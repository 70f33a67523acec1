package adaptive

import (
	"encoding/json"
	"errors"
	"fmt"
)

// State is all that the controller remembers, so that another can go on. Its text is JSON. Times are those that Next was given,
// rates thousandths a second.
type State struct {
	Rate  int64 `json:"rate"`
	Level Level `json:"level"` // that was acted on last
	At    int64 `json:"at"`    // of the last call

	// Of the gradient.
	Ceiling  int64 `json:"ceiling,omitempty"`  // what the origin bore when it was overloaded last; 0: none is known
	Good     int64 `json:"good,omitempty"`     // the most that it has borne, and may bear again
	Each     int64 `json:"each,omitempty"`     // requests that an admission leads to, thousandths
	Learned  int64 `json:"learned,omitempty"`  // looks that Each is of, up to learning
	Coming   int64 `json:"coming,omitempty"`   // what it leads to at present, as a share of Each, thousandths; 0: unknown
	Lagged   int64 `json:"lagged,omitempty"`   // admissions a second some seconds ago, thousandths
	P95      int64 `json:"p95,omitempty"`      // µs, of the last call
	Slope    int64 `json:"slope,omitempty"`    // µs a second by which that grows
	Baseline int64 `json:"baseline,omitempty"` // µs; p95 of a healthy origin, frozen while it is not
	Cut      int64 `json:"cut,omitempty"`      // when it was cut blindly last, or when a queue was seen to drain

	// Of the steps.
	Better int64 `json:"better,omitempty"` // since when the origin looks better than Level
	Raised int64 `json:"raised,omitempty"` // when it was raised last
	Hold   int64 `json:"hold,omitempty"`   // how long it has to look better, µs
}

// MostState bounds the text of a state.
const MostState = 1 << 10

// ErrState is of a text that is no state.
var ErrState = errors.New("adaptive: not a state")

// MarshalText is the form of the store.
func (s State) MarshalText() ([]byte, error) {
	type plain State
	return json.Marshal(plain(s))
}

// UnmarshalText reads it.
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

// clean drops what cannot be: a text may come from a store that others write to, and from a clock that was ahead.
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
