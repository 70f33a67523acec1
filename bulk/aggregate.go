package bulk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/anteroom/anteroom/bulk/store"
)

// aggregate is what a group asks for to be computed from its results.
type aggregate struct {
	Op    string `json:"op"`
	Field string `json:"field,omitempty"` // of sum, min, max, mean: the path of a number in each result, as "order.total"
	Name  string `json:"name,omitempty"`  // of reduce: the registered reducer
}

const maxField = 256

var reducerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ParseAggregate parses a group's aggregate and returns its canonical form, compact JSON. It accepts "count" (also
// null or nothing), "concat", "sum:a.b" (and min, max, mean), {"op":"sum","field":"a.b"}, and
// {"op":"reduce","name":"…"} for a registered reducer.
func ParseAggregate(data []byte) (canonical []byte, err error) {
	a, err := parseAggregate(data)
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	return json.Marshal(a)
}

// ParseAggregate is like the function ParseAggregate, and refuses a reducer that is not registered in this process.
func (e *Engine) ParseAggregate(data []byte) (canonical []byte, err error) {
	a, err := parseAggregate(data)
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	e.mu.Lock()
	known := slices.Sorted(maps.Keys(e.reducers))
	e.mu.Unlock()
	if a.Op == "reduce" && !slices.Contains(known, a.Name) {
		if len(known) == 0 {
			return nil, fmt.Errorf("aggregate: name %q: this worker has no reducers of its own; use count, concat, sum, min, max or mean", a.Name)
		}
		return nil, fmt.Errorf("aggregate: name %q: this worker has no such reducer; use %s", a.Name, strings.Join(known, ", "))
	}
	return json.Marshal(a)
}

func parseAggregate(data []byte) (aggregate, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return aggregate{Op: "count"}, nil
	}
	var a aggregate
	if data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return a, fmt.Errorf("not JSON: %w", err)
		}
		var colon bool
		a.Op, a.Field, colon = strings.Cut(s, ":")
		if colon && a.Field == "" {
			return a, fmt.Errorf("%q names no field: write %q", s, a.Op+":field")
		}
	} else {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&a); err != nil {
			return a, fmt.Errorf(`use "count", "concat", "sum:field" or {"op":…,"field":…}: %w`, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return a, errors.New("text follows the value: use one string or one object")
		}
	}
	return a, a.check()
}

func (a aggregate) check() error {
	switch a.Op {
	case "count", "concat":
		if a.Field != "" || a.Name != "" {
			return fmt.Errorf("op %q takes neither field nor name", a.Op)
		}
	case "sum", "min", "max", "mean":
		switch {
		case a.Name != "":
			return fmt.Errorf("name %q: op %q takes a field, not a name", a.Name, a.Op)
		case a.Field == "":
			return fmt.Errorf(`op %q needs the field of the results that holds the number, such as "%s:order.total"`, a.Op, a.Op)
		case len(a.Field) > maxField:
			return fmt.Errorf("field has %d bytes, at most %d are accepted", len(a.Field), maxField)
		}
		for _, part := range strings.Split(a.Field, ".") {
			if part == "" {
				return fmt.Errorf("field %q: a part between dots must not be empty", a.Field)
			}
		}
	case "reduce":
		if a.Field != "" {
			return fmt.Errorf("field %q: op \"reduce\" takes a name, not a field", a.Field)
		}
		if !reducerName.MatchString(a.Name) {
			return fmt.Errorf("name %q: use the name of a registered reducer, 1 to 64 of A-Z a-z 0-9 . _ -", a.Name)
		}
	default:
		return fmt.Errorf("op %q: use count, concat, sum, min, max, mean or reduce", a.Op)
	}
	return nil
}

// numbers aggregates the numbers in a field of the results.
type numbers struct {
	Sum     float64 `json:"sum"`
	Lost    float64 `json:"lost"` // rounding error of Sum (Neumaier summation)
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Count   int64   `json:"count"`
	Skipped int64   `json:"skipped"` // succeeded jobs without that number
}

func (n *numbers) add(x float64) {
	sum := n.Sum + x
	if math.IsInf(sum, 0) { // JSON has no infinity
		n.Skipped++
		return
	}
	if n.Count == 0 {
		n.Min, n.Max = x, x
	}
	n.Count++
	n.Min, n.Max = math.Min(n.Min, x), math.Max(n.Max, x)
	if math.Abs(n.Sum) >= math.Abs(x) {
		n.Lost += (n.Sum - sum) + x
	} else {
		n.Lost += (x - sum) + n.Sum
	}
	n.Sum = sum
}

// value returns the result of op, nil without any number.
func (n *numbers) value(op string) any {
	sum := n.Sum + n.Lost
	switch {
	case op == "sum":
		return sum
	case n.Count == 0:
		return nil
	case op == "min":
		return n.Min
	case op == "max":
		return n.Max
	}
	return sum / float64(n.Count)
}

// numberAt returns the number at a path of keys (and indices, in arrays) of a JSON document.
func numberAt(doc []byte, path []string) (float64, bool) {
	for _, key := range path {
		doc = bytes.TrimSpace(doc)
		if len(doc) == 0 {
			return 0, false
		}
		switch doc[0] {
		case '{':
			var object map[string]json.RawMessage
			if json.Unmarshal(doc, &object) != nil {
				return 0, false
			}
			doc = object[key]
		case '[':
			var list []json.RawMessage
			i, err := strconv.Atoi(key)
			if err != nil || json.Unmarshal(doc, &list) != nil || i < 0 || i >= len(list) {
				return 0, false
			}
			doc = list[i]
		default:
			return 0, false
		}
	}
	doc = bytes.TrimSpace(doc)
	var x float64
	if len(doc) == 0 || (doc[0] != '-' && (doc[0] < '0' || doc[0] > '9')) || json.Unmarshal(doc, &x) != nil {
		return 0, false
	}
	return x, true
}

// reduction is an aggregate in progress. It accepts outcomes in any order, each once. Between outcomes its state can
// be saved and restored.
type reduction struct {
	aggregate aggregate
	path      []string
	fold      Fold  // of reduce
	without   error // why a reduce has no fold
	state     reductionState
}

type reductionState struct {
	Tally   store.Tally     `json:"tally"`
	Numbers *numbers        `json:"numbers,omitempty"`
	Custom  json.RawMessage `json:"custom,omitempty"`
}

// errNoReducer is returned when a group needs a reducer that this process does not have; another may.
var errNoReducer = errors.New("no such reducer is registered in this process")

// missingReducer is errNoReducer with the reducer's name.
type missingReducer struct{ name string }

func (m *missingReducer) Error() string { return fmt.Sprintf("aggregate %q: %s", m.name, errNoReducer) }
func (m *missingReducer) Unwrap() error { return errNoReducer }

// newReduction continues an aggregate from state; nil is its beginning. A non-nil without is the reason for leaving
// out a registered reducer.
func newReduction(spec string, state []byte, reducers map[string]Reducer, without error) (*reduction, error) {
	a, err := parseAggregate([]byte(spec))
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	r := &reduction{aggregate: a}
	if len(state) > 0 {
		if err := json.Unmarshal(state, &r.state); err != nil {
			return nil, fmt.Errorf("cannot read the state of a reduction: %w", err)
		}
	}
	switch a.Op {
	case "sum", "min", "max", "mean":
		r.path = strings.Split(a.Field, ".")
		if r.state.Numbers == nil {
			r.state.Numbers = &numbers{}
		}
	case "reduce":
		if without != nil {
			r.without, r.state.Custom = without, nil
			break
		}
		reducer := reducers[a.Name]
		if reducer == nil {
			return nil, &missingReducer{a.Name}
		}
		if r.fold, err = reducer.Begin(r.state.Custom); err != nil {
			return nil, fmt.Errorf("reducer %q: %w", a.Name, err)
		}
	}
	return r, nil
}

func (r *reduction) add(o *store.Outcome) error {
	r.state.Tally.Add(o)
	switch {
	case r.fold != nil:
		if err := r.fold.Add(o); err != nil {
			return fmt.Errorf("reducer %q: job %s: %w", r.aggregate.Name, o.ID, err)
		}
	case r.state.Numbers != nil && o.Status == "succeeded":
		if x, ok := numberAt(o.Result, r.path); ok {
			r.state.Numbers.add(x)
		} else {
			r.state.Numbers.Skipped++
		}
	}
	return nil
}

// marshal returns the state.
func (r *reduction) marshal() (state []byte, err error) {
	if r.fold != nil {
		if r.state.Custom, err = r.fold.State(); err != nil {
			return nil, fmt.Errorf("reducer %q: %w", r.aggregate.Name, err)
		}
	}
	return json.Marshal(&r.state)
}

// result returns the group's aggregate as JSON.
func (r *reduction) result(group string) ([]byte, error) {
	t := r.state.Tally
	if t.Errors == nil {
		t.Errors = map[string]int64{}
	}
	switch {
	case r.fold != nil:
		value, err := r.fold.Result()
		if err == nil && !json.Valid(value) {
			err = errors.New("the result is not JSON")
		}
		if err != nil {
			return nil, fmt.Errorf("reducer %q: %w", r.aggregate.Name, err)
		}
		return json.Marshal(struct {
			aggregate
			Value json.RawMessage `json:"value"`
			store.Tally
		}{r.aggregate, value, t})
	case r.without != nil:
		return json.Marshal(struct {
			aggregate
			Value any    `json:"value"` // null
			Error string `json:"error"`
			store.Tally
		}{r.aggregate, nil, r.without.Error(), t})
	case r.state.Numbers != nil:
		n := r.state.Numbers
		return json.Marshal(struct {
			aggregate
			Value   any   `json:"value"` // null: there is none
			Sum     any   `json:"sum,omitempty"`
			Count   int64 `json:"count"`
			Skipped int64 `json:"skipped"`
			store.Tally
		}{r.aggregate, n.value(r.aggregate.Op), n.meanSum(r.aggregate.Op), n.Count, n.Skipped, t})
	}
	return t.Result(r.aggregate.Op, group)
}

// meanSum returns the sum that is reported with a mean, nil for other ops.
func (n *numbers) meanSum(op string) any {
	if op != "mean" {
		return nil
	}
	return n.Sum + n.Lost
}
