package store

import (
	"encoding/json"
	"strings"
)

// Tally counts outcomes. It is part of every aggregate.
type Tally struct {
	Succeeded int64            `json:"succeeded"`
	Failed    int64            `json:"failed"`
	Dead      int64            `json:"dead"`
	Cancelled int64            `json:"cancelled"`
	Errors    map[string]int64 `json:"errors"` // failed and dead jobs by code; beyond a hundred codes as "other"
}

// maxCodes bounds the error codes of one aggregate, as lua/lib/bulk.lua does.
const maxCodes = 100

// Add counts an outcome.
func (t *Tally) Add(o *Outcome) {
	switch o.Status {
	case "succeeded":
		t.Succeeded++
		return
	case "failed":
		t.Failed++
	case "dead":
		t.Dead++
	case "cancelled":
		t.Cancelled++
		return
	}
	c := o.Code
	if c == "" {
		c = "error"
	}
	if t.Errors == nil {
		t.Errors = map[string]int64{}
	}
	if _, known := t.Errors[c]; !known && len(t.Errors) >= maxCodes {
		c = "other"
	}
	t.Errors[c]++
}

// Counts reports whether the aggregate only counts outcomes. Scripts count them as they arrive, and no reducer reads
// them.
func (g *GroupSpec) Counts() bool { return g.op() == "count" || g.op() == "concat" }

func (g *GroupSpec) op() string {
	if g.Aggregate == "" {
		return "count"
	}
	var a struct{ Op string }
	_ = json.Unmarshal([]byte(g.Aggregate), &a) // an invalid aggregate does not count
	return a.Op
}

// countedResult returns the aggregate of a group whose outcomes were counted. codes are words: a code, its count, and
// so on.
func countedResult(g *Group, codes string) []byte {
	t := Tally{Succeeded: g.Succeeded, Failed: g.Failed, Dead: g.Dead, Cancelled: g.Cancelled, Errors: map[string]int64{}}
	words := strings.Fields(codes)
	for i := 0; i+1 < len(words); i += 2 {
		t.Errors[words[i]] = asInt(words[i+1])
	}
	result, _ := t.Result(g.op(), g.ID) // never fails
	return result
}

// Result returns the aggregate "count" or "concat" of a group as JSON.
func (t Tally) Result(op, group string) ([]byte, error) {
	if t.Errors == nil {
		t.Errors = map[string]int64{}
	}
	if op != "concat" {
		return json.Marshal(t)
	}
	return json.Marshal(struct {
		Op      string `json:"op"`
		Results string `json:"results"` // path of the outcomes
		Tally
	}{op, "/v1/groups/" + group + "/results", t})
}
