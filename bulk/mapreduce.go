package bulk

import (
	"encoding/json"

	"github.com/anteroom/anteroom/bulk/store"
)

// Outcome is what became of one job, as a reducer sees it.
type Outcome = store.Outcome

// Reducer makes an aggregate of a group's outcomes: {"op":"reduce","name":…} where it is registered under that name in the
// processes that run. Each outcome is taken in once, in the order in which jobs ended. MapReduce makes one of two functions.
type Reducer interface {
	// Begin goes on from a state that Fold.State gave, in this process or in another; nil is the beginning.
	Begin(state []byte) (Fold, error)
}

// Fold is a reduction under way. It is used by one goroutine at a time. An error, or a panic, stops the group's reduction; it
// is tried again from the last state that was written.
type Fold interface {
	Add(o *Outcome) error
	State() ([]byte, error)  // JSON, small: it is written to the store after each page of outcomes
	Result() ([]byte, error) // JSON
}

// MapReduce is a Reducer of two functions: mapping gives what an outcome contributes (ok false: nothing), reduce adds it to
// what there is, from S's zero value. S must survive JSON; it is the result.
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
