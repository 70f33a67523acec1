package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/remote"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	maxLease = 512 // characters

	ruleCode  = "1 to 64 of a-z 0-9 _"
	ruleAfter = "a number of seconds from 0 to 86400 with at most three decimal places"
	ruleLease = "the lease of a job, as POST /v1/work/lease returned it"
)

// verdict is the verdict of one job as it is sent.
type verdict struct {
	remote.Verdict
	failure  bulk.Failure
	text     string
	name     string
	hasLease bool
	given    []string // fields that not every verdict has
}

// failing are the verdicts of a run that did not succeed.
var failing = map[string]bulk.Kind{"retry": bulk.KindRetry, "failed": bulk.KindPermanent, "busy": bulk.KindBusy, "busy_group": bulk.KindBusyGroup}

const (
	doneVerdict     = "done"
	returnedVerdict = "returned"
	ruleVerdict     = "done, retry, failed, busy, busy_group or returned"
	ruleFailing     = "retry, failed, busy or busy_group"
)

var verdictFields = []field[verdict]{
	{"lease", ruleLease, func(v *verdict, raw []byte) (wrong string) {
		v.hasLease = true
		v.Lease, wrong = handle(raw)
		return wrong
	}, false},
	{"verdict", ruleVerdict, func(v *verdict, raw []byte) string {
		if !ophttp.IsText(raw) {
			return "is not text"
		}
		v.name = ophttp.Text(raw)
		if _, fails := failing[v.name]; !fails && v.name != doneVerdict && v.name != returnedVerdict {
			return "is not a verdict"
		}
		return ""
	}, false},
	{"result", "any JSON", func(v *verdict, raw []byte) string {
		v.Result = raw
		v.given = append(v.given, "result")
		return ""
	}, false},
	{"code", ruleCode, func(v *verdict, raw []byte) string {
		v.given = append(v.given, "code")
		wrong := setWord(&v.failure.Code, raw, 64, "")
		if wrong == "" && strings.ContainsFunc(v.failure.Code, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') }) {
			wrong = "is not allowed"
		}
		return wrong
	}, false},
	{"error", "text", func(v *verdict, raw []byte) string {
		v.given = append(v.given, "error")
		if !ophttp.IsText(raw) {
			return "is not text"
		}
		v.text = ophttp.Text(raw)
		return ""
	}, false},
	{"retry_after", ruleAfter, func(v *verdict, raw []byte) string {
		v.given = append(v.given, "retry_after")
		return setSeconds(&v.failure.After, raw, bulk.MaxAfter.Seconds())
	}, false},
	{"down", "true or false", func(v *verdict, raw []byte) string {
		v.given = append(v.given, "down")
		if string(raw) != "true" && string(raw) != "false" {
			return "is not true or false"
		}
		v.failure.Down = string(raw) == "true"
		return ""
	}, false},
	{"duration_ms", "a whole number of milliseconds from 0 to 86400000", func(v *verdict, raw []byte) string {
		var ms int64
		wrong := setWhole(&ms, raw, 0, 86_400_000)
		v.Took = max(time.Duration(ms)*time.Millisecond, time.Microsecond)
		return wrong
	}, false},
}

// check returns the faults of fields that contradict the verdict, and sets its failure.
func (v *verdict) check(path string) (faults []ophttp.Fault) {
	kind, fails := failing[v.name]
	if !v.hasLease {
		faults = append(faults, ophttp.Fault{Path: path + ".lease", Problem: "is missing", Allowed: ruleLease})
	}
	for _, name := range v.given {
		switch {
		case name == "result" && v.name != doneVerdict:
			faults = append(faults, ophttp.Fault{Path: path + "." + name, Problem: "belongs to the verdict done, and this is " + v.name, Allowed: "none"})
		case name != "result" && !fails:
			faults = append(faults, ophttp.Fault{Path: path + "." + name, Problem: "belongs to the verdicts " + ruleFailing + ", and this is " + v.name, Allowed: "none"})
		case name == "retry_after" && kind == bulk.KindPermanent:
			faults = append(faults, ophttp.Fault{Path: path + "." + name, Problem: "is given for a job that is not tried again; use the verdict retry", Allowed: "none"})
		}
	}
	if fails {
		f := v.failure
		f.Kind, f.Err = kind, errors.New(v.text)
		if f.Code == "" {
			f.Code = "error"
			if kind == bulk.KindBusy || kind == bulk.KindBusyGroup {
				f.Code = "busy"
			}
		}
		v.Failure = &f
	}
	v.Returned = v.name == returnedVerdict
	return faults
}

// handle reads the lease of a job.
func handle(raw []byte) (h remote.Handle, wrong string) {
	if !ophttp.IsText(raw) {
		return h, "is not text"
	}
	if text := ophttp.Text(raw); len(text) <= maxLease {
		var err error
		if h, err = remote.ParseHandle(text); err == nil {
			return h, ""
		}
	}
	return h, "is not a lease that this API has returned"
}

// readVerdict returns a function that reads a verdict; without a verdict of its own it is otherwise. fails refuses done.
func readVerdict(otherwise string, fails bool) func(v *verdict, path string, raw []byte) []ophttp.Fault {
	return func(v *verdict, path string, raw []byte) []ophttp.Fault {
		if raw[0] != '{' {
			return []ophttp.Fault{{Path: path, Value: ophttp.Excerpt(raw), Problem: "is not a JSON object", Allowed: "an object with lease"}}
		}
		v.name = otherwise
		faults := decode(verdictFields, raw, v)
		for i := range faults {
			faults[i].Path = path + "." + faults[i].Path
		}
		if fails && v.name == doneVerdict {
			faults = append(faults, ophttp.Fault{Path: path + ".verdict", Problem: "is no failure; send it to POST /v1/work/ack", Allowed: ruleFailing})
		}
		if len(faults) > 0 {
			return faults
		}
		return v.check(path)
	}
}

var (
	ackFields  = listField("jobs", readVerdict(doneVerdict, false))
	failFields = listField("jobs", readVerdict("retry", true))
	heldFields = listField("leases", func(h *remote.Handle, path string, raw []byte) []ophttp.Fault {
		var wrong string
		if *h, wrong = handle(raw); wrong != "" {
			return []ophttp.Fault{{Path: path, Value: ophttp.Excerpt(raw), Problem: wrong, Allowed: ruleLease}}
		}
		return nil
	})
)

// end returns the handler that records verdicts.
func (s workRoutes) end(fields []field[list[verdict]]) handler {
	return func(w http.ResponseWriter, r *http.Request, who identity) error {
		items, release, err := readList(s.Server, r, who, fields)
		if err != nil {
			return err
		}
		defer release()
		verdicts := make([]remote.Verdict, len(items))
		for i := range items {
			verdicts[i] = items[i].Verdict
			if err := who.forTypes(verdicts[i].Lease.Type); err != nil {
				return err
			}
		}
		states, err := s.o.Work.End(r.Context(), verdicts, who.limited())
		if err != nil {
			return err
		}
		v := bulktype.LeaseStates{Jobs: make([]bulktype.LeaseState, len(states))}
		for i, state := range states {
			v.Jobs[i] = bulktype.LeaseState{ID: verdicts[i].Lease.JobID(), State: string(state)}
			if state == store.AckThrottled {
				v.Jobs[i].State = "busy"
			}
		}
		return ophttp.OK(w, v)
	}
}

// extend extends leases, and reports which jobs are to be stopped.
func (s workRoutes) extend(w http.ResponseWriter, r *http.Request, who identity) error {
	held, release, err := readList(s.Server, r, who, heldFields)
	if err != nil {
		return err
	}
	defer release()
	for i := range held {
		if err := who.forTypes(held[i].Type); err != nil {
			return err
		}
	}
	states, err := s.o.Work.Extend(r.Context(), held, who.limited())
	if err != nil {
		return err
	}
	v := bulktype.LeaseStates{Jobs: make([]bulktype.LeaseState, len(states)), LeaseSeconds: tidy(s.o.Work.LeaseFor().Seconds())}
	for i, state := range states {
		v.Jobs[i] = bulktype.LeaseState{ID: held[i].JobID(), State: map[store.LeaseState]string{
			store.LeaseLost: "lost", store.LeaseHeld: "held", store.LeaseCalled: "cancelled"}[state]}
	}
	return ophttp.OK(w, v)
}
