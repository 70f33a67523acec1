package bulk

import (
	"encoding/json"

	"github.com/anteroom/anteroom/bulk/store"
)

// Outcome is the outcome of one job.
type Outcome = store.Outcome

// Reducer computes an aggregate of a group's outcomes, for {"op":"reduce","name":…}. Each outcome is added once, in
// the order in which jobs ended. MapReduce makes a Reducer of two functions.
type Reducer interface {
	// Begin continues from a state of Fold.State, perhaps of another process; nil is the beginning.
	Begin(state []byte) (Fold, error)
}

// Fold is a reduction in progress. It is used by one goroutine at a time. An error or a panic stops the group's
// reduction, which is retried from the last saved state.
type Fold interface {
	Add(o *Outcome) error
	State() ([]byte, error)  // small JSON: saved in the store after each page of outcomes
	Result() ([]byte, error) // JSON
}

// MapReduce returns a Reducer of two functions: mapping returns what an outcome contributes (ok false: nothing),
// reduce adds it to the sum so far, which begins with S's zero value. S must be representable as JSON; it is the
// result.
func MapReduce[V, S any](mapping func(o *Outcome) (v V, ok bool, err error), reduce func(acc S, v V) S) Reducer {
	return mapReduce[V, S]{mapping, reduce}
}

type mapReduce[V, S any] struct {
	mapping func(o *Outcome) (V, bool, error)
	reduce  func(acc S, v V) S
}

func (m mapReduce[V, S]) Begin(state []byte) (Fold, error) {
	f := &mapFold[V, S]{mapReduce: m}
	if len(state) > 0 {
		if err := json.Unmarshal(state, &f.acc); err != nil {
			return nil, err
		}
	}
	return f, nil
}

type mapFold[V, S any] struct {
	mapReduce[V, S]
	acc S
}

func (f *mapFold[V, S]) Add(o *Outcome) error {
	v, ok, err := f.mapping(o)
	if err == nil && ok {
		f.acc = f.reduce(f.acc, v)
	}
	return err
}

func (f *mapFold[V, S]) State() ([]byte, error)  { return json.Marshal(f.acc) }
func (f *mapFold[V, S]) Result() ([]byte, error) { return json.Marshal(f.acc) }
