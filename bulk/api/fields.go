package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/calendar"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	maxTenant  = 64
	maxType    = 64
	maxGroupID = 128
	alsoInType = ":/"
	maxRate    = 1e6 // a second; the configuration has the same bound
)

// field is a field of a JSON body or a parameter of a query.
type field[T any] struct {
	name    string
	allowed string
	set     func(to *T, raw []byte) (wrong string)
	// text is set for fields whose value has no quotes in a query.
	text bool
}

// decode sets to from a JSON object and returns all faults.
func decode[T any](fields []field[T], object []byte, to *T) (faults []ophttp.Fault) {
	seen := map[string]bool{}
	ophttp.Members(object, func(name, value []byte) bool {
		key := string(name)
		i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == key })
		switch {
		case i < 0:
			faults = append(faults, unknown(fields, key, value))
		case seen[key]:
			faults = append(faults, ophttp.Fault{Path: key, Problem: "is given twice", Allowed: "one"})
		default:
			if wrong := fields[i].set(to, value); wrong != "" {
				faults = append(faults, ophttp.Fault{Path: key, Value: ophttp.Excerpt(value), Problem: wrong, Allowed: fields[i].allowed})
			}
		}
		seen[key] = true
		return len(faults) < maxFaults
	})
	return faults
}

const maxFaults = 32

// labelParameter is the parameter that a query may have several times.
const labelParameter = "label"

// decodeQuery sets to from a query. Values are those of the JSON fields, text without quotes.
func decodeQuery[T any](fields []field[T], q url.Values, to *T) (faults []ophttp.Fault) {
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == name })
		switch {
		case i < 0:
			faults = append(faults, unknown(fields, name, ophttp.Marshal(q[name][0])))
		case len(q[name]) > 1 && name != labelParameter:
			faults = append(faults, ophttp.Fault{Path: name, Problem: "is given twice", Allowed: "one"})
		default:
			for _, value := range q[name] {
				raw := []byte(strings.TrimSpace(value))
				if fields[i].text || !json.Valid(raw) {
					raw = ophttp.Marshal(value)
				}
				if wrong := fields[i].set(to, raw); wrong != "" {
					faults = append(faults, ophttp.Fault{Path: name, Value: ophttp.Excerpt(raw), Problem: wrong, Allowed: fields[i].allowed})
					break
				}
			}
		}
		if len(faults) >= maxFaults {
			break
		}
	}
	return faults
}

func unknown[T any](fields []field[T], name string, value []byte) ophttp.Fault {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	f := ophttp.Fault{Path: ophttp.Shorten(name), Value: ophttp.Excerpt(value), Problem: "is not a field of this request", Allowed: strings.Join(names, ", ")}
	if len(fields) == 0 {
		f.Allowed = "none"
	}
	return f
}

const (
	ruleWord   = "1 to 64 of A-Z a-z 0-9 . _ -"
	ruleType   = "1 to 64 of A-Z a-z 0-9 . _ : / -"
	ruleRun    = "a type that a processor has, of " + ruleType
	ruleGroup  = "1 to 128 of A-Z a-z 0-9 . _ : -"
	ruleLevel  = "high, normal or low"
	ruleWeight = "a number from 0.01 to 100 with at most three decimal places"
	ruleRate   = "a number from 0 (no limit of its own) to 1000000 a second with at most three decimal places"
	ruleSlots  = "a whole number from 0 (no limit of its own) to 1000000"
	ruleMoment = "a time as RFC 3339 with a zone, such as 2026-01-02T15:04:05Z"
	ruleBase   = "a whole number of milliseconds from -1000000000000 to 1000000000000"
)

func setWord(to *string, raw []byte, most int, also string) string {
	if !ophttp.IsText(raw) {
		return "is not text"
	}
	*to = ophttp.Text(raw)
	if !isWord(*to, most, also) {
		return "is not allowed"
	}
	return ""
}

func setLevel(to *store.Level, raw []byte) string {
	if !ophttp.IsText(raw) {
		return "is not text"
	}
	switch *to = store.Level(ophttp.Text(raw)); *to {
	case store.High, store.Normal, store.Low:
		return ""
	}
	return "is not a priority"
}

func setDecimal(to *float64, raw []byte, least, most float64) (wrong string) {
	*to, wrong = decimal(raw, least, most)
	return wrong
}

func setWhole[N int | int64](to *N, raw []byte, least, most int64) string {
	n, wrong := whole(raw, least, most)
	*to = N(n)
	return wrong
}

// setSeconds reads a number of seconds from 0 to most.
func setSeconds(to *time.Duration, raw []byte, most float64) string {
	v, wrong := decimal(raw, 0, most)
	*to = time.Duration(math.Round(v*1000)) * time.Millisecond
	return wrong
}

// setNames reads a list of 1 to most different words.
func setNames(to *[]string, raw []byte, most, longest int, also string) string {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return "is not a list"
	}
	if len(items) == 0 || len(items) > most {
		return fmt.Sprintf("has %d elements", len(items))
	}
	words := make([]string, len(items))
	for i, item := range items {
		if wrong := setWord(&words[i], item, longest, also); wrong != "" {
			return fmt.Sprintf("has an element, the %dth, that %s", i+1, wrong)
		}
		if slices.Contains(words[:i], words[i]) {
			return "has " + words[i] + " twice"
		}
	}
	*to = words
	return ""
}

// specFields returns the fields of a group; null is the same as leaving one out.
func (s *Server) specFields() []field[store.GroupSpec] {
	type spec = store.GroupSpec
	fields := []field[spec]{
		{"id", ruleGroup, func(g *spec, raw []byte) string { return setGroupID(&g.ID, raw) }, true},
		{"tenant", ruleWord, func(g *spec, raw []byte) string { return setWord(&g.Tenant, raw, maxTenant, "") }, true},
		{"type", ruleRun, func(g *spec, raw []byte) string { return s.setType(&g.Type, raw) }, true},
		{"priority", ruleLevel, func(g *spec, raw []byte) string { return setLevel(&g.Level, raw) }, true},
		{"weight", ruleWeight, func(g *spec, raw []byte) string { return setDecimal(&g.Weight, raw, 0.01, 100) }, false},
		{"base_priority", ruleBase, func(g *spec, raw []byte) string { return setWhole(&g.BasePriority, raw, -1e12, 1e12) }, false},
		{"rate", ruleRate, func(g *spec, raw []byte) string { return setDecimal(&g.Rate, raw, 0, maxRate) }, false},
		{"concurrency", ruleSlots, func(g *spec, raw []byte) string { return setWhole(&g.Concurrency, raw, 0, 1e6) }, false},
		{"aggregate", `"count", "concat", "sum:a.b" (or min, max, mean), or {"op":"sum","field":"a.b"}`, func(g *spec, raw []byte) string {
			canonical, err := s.o.ParseAggregate(raw)
			if err != nil {
				return strings.TrimPrefix(err.Error(), "aggregate: ")
			}
			g.Aggregate = string(canonical)
			return ""
		}, false},
		{"failure_tolerance", `a count such as 10, or a share of the jobs such as "5%"`, func(g *spec, raw []byte) (wrong string) {
			g.Tolerance, wrong = tolerance(raw)
			return wrong
		}, false},
		{"stop_at", ruleStop, func(g *spec, raw []byte) (wrong string) {
			g.StopAt, wrong = stopAt(raw)
			return wrong
		}, false},
		{"results", "all, failures (outcomes of jobs that succeed are not kept) or none", func(g *spec, raw []byte) string {
			switch g.Results = store.Results(ophttp.Text(raw)); g.Results {
			case allResults:
				g.Results = store.AllResults
			case store.FailureResults, store.NoResults:
			default:
				return "is not a choice of outcomes"
			}
			return ""
		}, true},
		{"callback_url", "an http:// or https:// URL of at most 2048 characters, without user, password and fragment", func(g *spec, raw []byte) (wrong string) {
			if g.CallbackURL, wrong = callback(raw); wrong != "" {
				return wrong
			}
			if s.o.CheckCallback != nil {
				if err := s.o.CheckCallback(g.CallbackURL); err != nil {
					return err.Error()
				}
			}
			return ""
		}, true},
		{"start", "early (jobs run as they come) or sealed (none before the seal)", func(g *spec, raw []byte) string {
			if !ophttp.IsText(raw) {
				return "is not text"
			}
			start := ophttp.Text(raw)
			if g.StartSealed = start == "sealed"; !g.StartSealed && start != "early" {
				return "is not a way to start"
			}
			return ""
		}, true},
		{"start_at", ruleMoment + "; no job starts before", func(g *spec, raw []byte) (wrong string) {
			g.StartAt, wrong = moment(raw)
			return wrong
		}, true},
		{"expires_at", ruleMoment + "; jobs that have not started by then end as dead", func(g *spec, raw []byte) (wrong string) {
			g.ExpiresAt, wrong = moment(raw)
			return wrong
		}, true},
		{"quiet_hours", ruleQuiet, func(g *spec, raw []byte) string { return setQuiet(&g.Quiet, raw) }, false},
		{"after", `a list of 1 to 20 ids of groups, which have to end first`, func(g *spec, raw []byte) string {
			var ids []string
			if wrong := setWords(&ids, raw, store.MaxAfter); wrong != "" {
				return wrong
			}
			for _, id := range ids {
				if !isWord(id, maxMadeID, ":") {
					return "has an entry that is not the id of a group"
				}
			}
			g.After = strings.Join(ids, " ")
			return ""
		}, false},
		{"when", "on_success (each of after has completed), on_failure (one has not) or on_end", func(g *spec, raw []byte) string {
			if !ophttp.IsText(raw) {
				return "is not text"
			}
			switch g.When = store.When(ophttp.Text(raw)); g.When {
			case store.OnSuccess, store.OnFailure, store.OnEnd:
				return ""
			}
			return "is not a condition"
		}, true},
		{"split", "a whole number from 1 to the number of shards that are open for new groups", func(g *spec, raw []byte) string { return setWhole(&g.Split, raw, 1, store.MaxShards) }, false},
		{"expected", "a whole number of jobs from 1 to 1000000000000", func(g *spec, raw []byte) string { return setWhole(&g.ExpectedJobs, raw, 1, 1e12) }, false},
		{"labels", ruleLabels, func(g *spec, raw []byte) string { return setLabels(&g.Labels, raw) }, false},
		{"unique", ruleUnique, func(g *spec, raw []byte) string { return setUnique(&g.Unique, raw) }, false},
	}
	return orNull(fields)
}

const ruleLabels = `an object of at most 16 labels, as {"campaign":"spring"}: keys of 1 to 63 of a-z 0-9 . _ -, values of text up to 255 bytes`

func setLabels(to *store.Labels, raw []byte) string {
	var values map[string]string
	if raw[0] != '{' || json.Unmarshal(raw, &values) != nil {
		return "is not an object of texts"
	}
	seen, twice := map[string]bool{}, ""
	ophttp.Members(raw, func(name, _ []byte) bool {
		if seen[string(name)] {
			twice = string(name)
		}
		seen[string(name)] = true
		return twice == ""
	})
	if twice != "" {
		return fmt.Sprintf("has the label %q twice", ophttp.Shorten(twice))
	}
	if len(values) > store.MaxLabels {
		return fmt.Sprintf("has %d labels", len(values))
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if wrong := store.CheckLabel(key, values[key]); wrong != "" {
			return wrong
		}
	}
	*to = store.LabelsOf(values)
	return ""
}

// orNull lets null mean the same as leaving a field out.
func orNull[T any](fields []field[T]) []field[T] {
	for i := range fields {
		set := fields[i].set
		fields[i].set = func(to *T, raw []byte) string {
			if ophttp.IsNull(raw) {
				return ""
			}
			return set(to, raw)
		}
	}
	return fields
}

// setType reads the type of a job, which must have a handler.
func (s *Server) setType(to *string, raw []byte) string {
	if wrong := setWord(to, raw, maxType, alsoInType); wrong != "" {
		return wrong
	}
	if s.o.AllowType != nil && !s.o.AllowType(*to) {
		return "has no handler here: switch its processor on"
	}
	return ""
}

// complete sets defaults and adds a fault for each missing field.
func complete(g *store.GroupSpec, faults []ophttp.Fault) []ophttp.Fault {
	missing := func(name, value, allowed string) {
		if value == "" && !slices.ContainsFunc(faults, func(f ophttp.Fault) bool { return f.Path == name }) {
			faults = append(faults, ophttp.Fault{Path: name, Problem: "is missing", Allowed: allowed})
		}
	}
	missing("tenant", g.Tenant, ruleWord)
	missing("type", g.Type, ruleRun)
	if g.Level == "" {
		g.Level = store.Normal
	}
	if g.Weight == 0 {
		g.Weight = 1
	}
	return faults
}

func tolerance(raw []byte) (t store.Tolerance, wrong string) {
	switch {
	case ophttp.IsNumber(raw):
		t.Count, wrong = whole(raw, 0, 1e12)
		return t, wrong
	case ophttp.IsText(raw):
		share, percent := strings.CutSuffix(strings.TrimSpace(ophttp.Text(raw)), "%")
		share = strings.TrimSpace(share)
		if percent && json.Valid([]byte(share)) && share != "" {
			t.Percent, wrong = decimal([]byte(share), 0, 100)
			t.Share = true
			return t, wrong
		}
	}
	return t, "is neither a count nor a share"
}

const ruleStop = `a count from 1 on, or a share of the jobs from "0.001%" to "100%": as many failed or dead jobs pause the group`

func stopAt(raw []byte) (t store.Tolerance, wrong string) {
	if t, wrong = tolerance(raw); wrong == "" && t.Count == 0 && t.Percent < 0.001 {
		wrong = "stops the group before its first failure; leave it out, or null, for none"
	}
	return t, wrong
}

// toleranceJSON returns t in the form that tolerance reads.
func toleranceJSON(t store.Tolerance) bulktype.Tolerance {
	if t.Share {
		return bulktype.Tolerance(strconv.FormatFloat(t.Percent, 'f', -1, 64) + "%")
	}
	return bulktype.Tolerance(strconv.FormatInt(t.Count, 10))
}

func callback(raw []byte) (link, wrong string) {
	if !ophttp.IsText(raw) {
		return "", "is not text"
	}
	link = ophttp.Text(raw)
	u, err := url.Parse(link)
	switch {
	case len(link) > 2048:
		return "", "is too long"
	case err != nil || !u.IsAbs() || u.Hostname() == "" || u.Opaque != "":
		return "", "is not an absolute URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "has a scheme that is not called back"
	case u.User != nil || u.Fragment != "":
		return "", "has a user or a fragment"
	}
	return link, ""
}

// patchFields are the fields of a group that can be changed; null sets the default of a new group.
var patchFields = []field[store.Patch]{
	{"weight", ruleWeight, func(p *store.Patch, raw []byte) string {
		return setOr(&p.Weight, raw, 1, func(to *float64) string { return setDecimal(to, raw, 0.01, 100) })
	}, false},
	{"rate", ruleRate, func(p *store.Patch, raw []byte) string {
		return setOr(&p.Rate, raw, 0, func(to *float64) string { return setDecimal(to, raw, 0, maxRate) })
	}, false},
	{"priority", ruleLevel, func(p *store.Patch, raw []byte) string {
		return setOr(&p.Level, raw, store.Normal, func(to *store.Level) string { return setLevel(to, raw) })
	}, true},
	{"concurrency", ruleSlots, func(p *store.Patch, raw []byte) string {
		return setOr(&p.Concurrency, raw, 0, func(to *int64) string { return setWhole(to, raw, 0, 1e6) })
	}, false},
	{"base_priority", ruleBase, func(p *store.Patch, raw []byte) string {
		return setOr(&p.BasePriority, raw, 0, func(to *int64) string { return setWhole(to, raw, -1e12, 1e12) })
	}, false},
	{"stop_at", ruleStop + "; null for none", func(p *store.Patch, raw []byte) string {
		return setOr(&p.StopAt, raw, store.Tolerance{}, func(to *store.Tolerance) (wrong string) {
			*to, wrong = stopAt(raw)
			return wrong
		})
	}, false},
	{"start_at", ruleMoment + "; null: now", func(p *store.Patch, raw []byte) string { return setMoment(&p.StartAt, raw) }, true},
	{"quiet_hours", ruleQuiet + "; null: none", func(p *store.Patch, raw []byte) string {
		return setOr(&p.Quiet, raw, calendar.Quiet{}, func(to *calendar.Quiet) string { return setQuiet(to, raw) })
	}, false},
	{"expires_at", ruleMoment + "; null: never", func(p *store.Patch, raw []byte) string { return setMoment(&p.ExpiresAt, raw) }, true},
}

func setOr[T any](to **T, raw []byte, otherwise T, set func(*T) string) string {
	*to = &otherwise
	if ophttp.IsNull(raw) {
		return ""
	}
	return set(*to)
}
