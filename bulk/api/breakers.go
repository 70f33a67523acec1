package api

import (
	"net/http"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// breakerView is a breaker that holds jobs back.
type breakerView struct {
	Processor string     `json:"processor"`
	Tenant    string     `json:"tenant,omitempty"` // absent: the jobs of every tenant
	State     string     `json:"state"`            // open, or probing
	OpenedAt  *timestamp `json:"opened_at"`
	ProbeAt   *timestamp `json:"probe_at,omitempty"` // of open: when the next jobs start
	Probes    int64      `json:"probes"`             // jobs that its round of probes has
	Failures  int64      `json:"failures"`           // of answers, since shortly before it opened
	Answers   int64      `json:"answers"`
	FailedAt  *timestamp `json:"failed_at"`
	Code      string     `json:"code"` // of the last failure
}

func okBreakers(w http.ResponseWriter, who identity, open []store.OpenBreaker) error {
	views := []breakerView{}
	for _, b := range open {
		if b.Tenant != "" && !who.sees(b.Tenant) {
			continue
		}
		v := breakerView{Processor: b.Type, Tenant: b.Tenant, State: "probing", OpenedAt: at(b.Opened), ProbeAt: at(b.Until), Probes: b.Probes,
			Failures: b.Failures, Answers: b.Answers, FailedAt: at(b.Failed), Code: b.Code}
		if !b.Until.IsZero() {
			v.State = "open"
		}
		views = append(views, v)
	}
	return ophttp.OK(w, struct {
		Breakers []breakerView `json:"breakers"`
	}{views})
}

func (s *Server) showBreakers(w http.ResponseWriter, r *http.Request, who identity) error {
	if err := noQuery(r); err != nil {
		return err
	}
	open, err := s.store.Breakers(r.Context())
	if err != nil {
		return err
	}
	return okBreakers(w, who, open)
}

type breakerName struct{ processor, tenant string }

var breakerFields = []field[breakerName]{
	{"processor", ruleType, func(n *breakerName, raw []byte) string { return setWord(&n.processor, raw, maxType, alsoInType) }, true},
	{"tenant", ruleWord, func(n *breakerName, raw []byte) string { return setWord(&n.tenant, raw, maxTenant, "") }, true},
}

// liftBreaker is for operators: the jobs that a breaker holds back start again at once.
func (s *Server) liftBreaker(w http.ResponseWriter, r *http.Request, who identity) error {
	if err := who.forAll(); err != nil {
		return err
	}
	var name breakerName
	faults := decodeQuery(breakerFields, r.URL.Query(), &name)
	if name.processor == "" && len(faults) == 0 {
		faults = append(faults, ophttp.Fault{Path: "processor", Problem: "is missing", Allowed: ruleType})
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	open, err := s.store.LiftBreaker(r.Context(), name.processor, name.tenant)
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "breaker lifted", "who", who.name, "processor", name.processor, "tenant", name.tenant)
	return okBreakers(w, who, open)
}
