package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/store"
)

func TestParseAggregate_AcceptsAndRefuses(t *testing.T) {
	for _, row := range []struct{ in, want, err string }{
		{``, `{"op":"count"}`, ""},
		{` null `, `{"op":"count"}`, ""},
		{`"count"`, `{"op":"count"}`, ""},
		{`"concat"`, `{"op":"concat"}`, ""},
		{`{"op":"concat"}`, `{"op":"concat"}`, ""},
		{`"sum:a.b"`, `{"op":"sum","field":"a.b"}`, ""},
		{`{"field":"items.0.price", "op":"mean"}`, `{"op":"mean","field":"items.0.price"}`, ""},
		{`"min:x"`, `{"op":"min","field":"x"}`, ""},
		{`"max:Größe"`, `{"op":"max","field":"Größe"}`, ""},
		{`{"op":"reduce","name":"by_country"}`, `{"op":"reduce","name":"by_country"}`, ""},
		{`"sum"`, "", `op "sum" needs the field`},
		{`"sum:"`, "", `names no field`},
		{`"sum:a..b"`, "", `field "a..b": a part between dots must not be empty`},
		{`"count:a"`, "", `op "count" takes neither field nor name`},
		{`"median:a"`, "", `op "median": use count, concat`},
		{`"reduce"`, "", `name ""`},
		{`{"op":"reduce","name":"a b"}`, "", `name "a b"`},
		{`{"op":"reduce","name":"a","field":"b"}`, "", `field "b"`},
		{`{"op":"sum","field":"a","name":"b"}`, "", `name "b"`},
		{`{"op":"sum","feild":"a"}`, "", `unknown field "feild"`},
		{`{"op":"count"} {}`, "", `text follows the value`},
		{`{"op":1}`, "", `use "count"`},
		{`[]`, "", `use "count"`},
		{`"count`, "", `not JSON`},
		{`count`, "", `use "count"`},
		{`"sum:` + strings.Repeat("a", 257) + `"`, "", `257 bytes, at most 256`},
	} {
		got, err := ParseAggregate([]byte(row.in))
		if string(got) != row.want || (err == nil) != (row.err == "") || (err != nil && !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: %s, %v; want %s, %q", row.in, got, err, row.want, row.err)
		}
	}
}

// FuzzParseAggregate checks that an accepted aggregate is canonical: parsing it again returns the same text.
func FuzzParseAggregate(f *testing.F) {
	for _, s := range []string{``, `null`, `"count"`, `"sum:a.b"`, `{"op":"mean","field":"a"}`, `{"op":"reduce","name":"x"}`, `{"op":`, `"sum:\u0000"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseAggregate(data)
		if err != nil {
			return
		}
		again, err := ParseAggregate(got)
		if err != nil || string(again) != string(got) {
			t.Fatalf("%s becomes %s, %v", got, again, err)
		}
		if r, err := newReduction(string(got), nil, nil, nil); err == nil {
			if err := r.add(&store.Outcome{Status: "succeeded", Result: data}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzNumberAt(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,2.5]}}`), "a.b.1")
	f.Add([]byte(`[[1e999]]`), "0.0")
	f.Add([]byte(`-`), "")
	f.Fuzz(func(t *testing.T, doc []byte, path string) {
		if x, ok := numberAt(doc, strings.Split(path, ".")); ok && (math.IsInf(x, 0) || math.IsNaN(x)) {
			t.Fatalf("%v", x)
		}
	})
}

func TestNumberAt_FindsNumberByPath(t *testing.T) {
	for _, row := range []struct {
		doc, path string
		want      any
	}{
		{`{"a":1}`, "a", 1.0},
		{` {"a": {"b": -2.5e1 } } `, "a.b", -25.0},
		{`{"a":[{"b":7}]}`, "a.0.b", 7.0},
		{`{"a":[1]}`, "a.1", nil},
		{`{"a":[1]}`, "a.-1", nil},
		{`{"a":"1"}`, "a", nil},
		{`{"a":null}`, "a", nil},
		{`{"a":true}`, "a", nil},
		{`{"a":1e999}`, "a", nil},
		{`{"A":1}`, "a", nil},
		{`{"a":1}`, "b", nil},
		{`{"a":1}`, "a.b", nil},
		{`{"a":`, "a", nil},
		{`no JSON`, "a", nil},
		{``, "a", nil},
	} {
		got, ok := numberAt([]byte(row.doc), strings.Split(row.path, "."))
		if (row.want == nil) == ok || (ok && got != row.want) {
			t.Errorf("%s in %s: %v, %t; want %v", row.path, row.doc, got, ok, row.want)
		}
	}
}

var sample = []store.Outcome{
	{ID: "a", Status: "succeeded", Result: []byte(`{"n":0.1,"who":"x"}`)},
	{ID: "b", Status: "succeeded", Result: []byte(`{"n":0.2,"who":"y"}`)},
	{ID: "c", Status: "succeeded", Result: []byte(`{"n":-4,"who":"x"}`)},
	{ID: "d", Status: "succeeded", Result: []byte(`{"n":"many"}`)},
	{ID: "e", Status: "failed", Code: "http_404", Result: []byte(`{"n":1000}`)},
	{ID: "f", Status: "dead", Code: "timeout"},
	{ID: "g", Status: "dead"},
	{ID: "h", Status: "cancelled"},
}

const counts = `"succeeded":4,"failed":1,"dead":2,"cancelled":1,"errors":{"error":1,"http_404":1,"timeout":1}`

var byWho = MapReduce(
	func(o *Outcome) (who string, ok bool, err error) {
		if o.Status != "succeeded" {
			return "", false, nil
		}
		var r struct{ Who string }
		err = json.Unmarshal(o.Result, &r)
		return r.Who, r.Who != "", err
	},
	func(acc map[string]int, who string) map[string]int {
		if acc == nil {
			acc = map[string]int{}
		}
		acc[who]++
		return acc
	})

// The state of each aggregate is saved and restored after every outcome, as if another process continued.
func TestAggregate_ContinuesFromSavedState(t *testing.T) {
	for _, row := range []struct{ spec, want string }{
		{``, `{` + counts + `}`},
		{`{"op":"count"}`, `{` + counts + `}`},
		{`{"op":"concat"}`, `{"op":"concat","results":"/v1/groups/g/results",` + counts + `}`},
		{`{"op":"sum","field":"n"}`, `{"op":"sum","field":"n","value":-3.7,"count":3,"skipped":1,` + counts + `}`},
		{`{"op":"min","field":"n"}`, `{"op":"min","field":"n","value":-4,"count":3,"skipped":1,` + counts + `}`},
		{`{"op":"max","field":"n"}`, `{"op":"max","field":"n","value":0.2,"count":3,"skipped":1,` + counts + `}`},
		{`{"op":"mean","field":"n"}`, `{"op":"mean","field":"n","value":-1.2333333333333334,"sum":-3.7,"count":3,"skipped":1,` + counts + `}`},
		{`{"op":"mean","field":"nothing"}`, `{"op":"mean","field":"nothing","value":null,"sum":0,"count":0,"skipped":4,` + counts + `}`},
		{`{"op":"sum","field":"nothing"}`, `{"op":"sum","field":"nothing","value":0,"count":0,"skipped":4,` + counts + `}`},
		{`{"op":"reduce","name":"who"}`, `{"op":"reduce","name":"who","value":{"x":2,"y":1},` + counts + `}`},
	} {
		var state []byte
		reducers := map[string]Reducer{"who": byWho}
		for _, o := range sample {
			r, err := newReduction(row.spec, state, reducers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if state, err = take(r, []store.Outcome{o}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := newReduction(row.spec, state, reducers, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := conclude(r, "g")
		if err != nil || string(got) != row.want {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", row.spec, got, err, row.want)
		}
	}
}

// TestNumbers_SumMillionDecimals: rounding errors do not accumulate, even beside large numbers.
func TestNumbers_SumMillionDecimals(t *testing.T) {
	var n numbers
	n.add(1e16)
	for range 1_000_000 {
		n.add(0.1)
	}
	n.add(-1e16)
	if got := n.value("sum"); math.Abs(got.(float64)-100000) > 1e-3 {
		t.Errorf("got %v, want 100000", got)
	}
	n.add(math.MaxFloat64)
	n.add(math.MaxFloat64) // more than a float holds
	if n.Skipped != 1 {
		t.Errorf("skipped %d, want 1", n.Skipped)
	}
	if _, err := json.Marshal(&n); err != nil {
		t.Error(err)
	}
}

func TestTally_BoundsErrorCodes(t *testing.T) {
	var c store.Tally
	for i := range 1000 {
		c.Add(&store.Outcome{Status: "failed", Code: fmt.Sprint("code_", i)})
	}
	if len(c.Errors) != 101 || c.Errors["other"] != 900 {
		t.Errorf("%d codes, other %d", len(c.Errors), c.Errors["other"])
	}
}

// The result depends neither on the order of the outcomes nor on how pages divide them.
func TestAggregates_AreIndependentOfPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.SampledFrom([]string{`{"op":"count"}`, `{"op":"sum","field":"n"}`, `{"op":"min","field":"n"}`,
			`{"op":"mean","field":"n"}`, `{"op":"reduce","name":"who"}`}).Draw(t, "spec")
		outcomes := rapid.SliceOf(rapid.Custom(func(t *rapid.T) store.Outcome {
			return store.Outcome{
				ID:     "j",
				Status: rapid.SampledFrom([]string{"succeeded", "failed", "dead", "cancelled"}).Draw(t, "status"),
				Code:   rapid.SampledFrom([]string{"", "timeout", "http_500"}).Draw(t, "code"),
				Result: fmt.Appendf(nil, `{"n":%d,"who":"%d"}`, rapid.IntRange(-1000, 1000).Draw(t, "n"), rapid.IntRange(0, 3).Draw(t, "who")),
			}
		})).Draw(t, "outcomes")
		reduce := func(all []store.Outcome, page func() int) string {
			var state []byte
			for {
				r, err := newReduction(spec, state, map[string]Reducer{"who": byWho}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(all) == 0 {
					got, err := conclude(r, "")
					if err != nil {
						t.Fatal(err)
					}
					return string(got)
				}
				n := min(page(), len(all))
				if state, err = take(r, all[:n]); err != nil {
					t.Fatal(err)
				}
				all = all[n:]
			}
		}
		whole := reduce(outcomes, func() int { return 1000 })
		turned := slices.Clone(outcomes)
		slices.Reverse(turned)
		for _, order := range [][]store.Outcome{outcomes, turned} {
			if got := reduce(order, func() int { return rapid.IntRange(1, 5).Draw(t, "page") }); got != whole {
				t.Fatalf("in pages %s, whole %s", got, whole)
			}
		}
	})
}

func TestReducer_ReportsFailures(t *testing.T) {
	if _, err := newReduction(`{"op":"reduce","name":"x"}`, nil, nil, nil); !errors.Is(err, errNoReducer) {
		t.Errorf("a reducer that is not there: %v", err)
	}
	r, err := newReduction(`{"op":"reduce","name":"x"}`, nil, map[string]Reducer{"x": MapReduce(
		func(o *Outcome) (int, bool, error) { panic("oh") }, func(a, b int) int { return a + b })}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take(r, sample); err == nil || !strings.Contains(err.Error(), "panicked: oh") {
		t.Errorf("a panic: %v", err)
	}
	if _, err := newReduction(`{"op":"count"}`, []byte(`{`), nil, nil); err == nil {
		t.Error("a broken state is taken")
	}
}
