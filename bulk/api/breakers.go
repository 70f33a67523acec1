package api

import (
	"net/http"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

func okBreakers(w http.ResponseWriter, who identity, open []store.OpenBreaker, away store.Away) error {
	views := []bulktype.Breaker[timestamp]{}
	for _, b := range open {
		if b.Tenant != "" && !who.sees(b.Tenant) {
			continue
		}
		v := bulktype.Breaker[timestamp]{Processor: b.Type, Tenant: b.Tenant, State: "probing", OpenedAt: at(b.Opened), ProbeAt: at(b.Until), Probes: b.Probes,
			Failures: b.Failures, Answers: b.Answers, FailedAt: at(b.Failed), Code: b.Code}
		if !b.Until.IsZero() {
			v.State = "open"
		}
		views = append(views, v)
	}
	return ophttp.OK(w, bulktype.Breakers[timestamp]{Breakers: views, Away: bulktype.Away{Shards: away}})
}

func (s tenantRoutes) showBreakers(w http.ResponseWriter, r *http.Request, who identity) error {
	if err := noQuery(r); err != nil {
		return err
	}
	open, away, err := s.store.Breakers(r.Context())
	if err != nil {
		return err
	}
	return okBreakers(w, who, open, away)
}

type breakerName struct{ processor, tenant string }

var breakerFields = []field[breakerName]{
	{"processor", ruleType, func(n *breakerName, raw []byte) string { return setWord(&n.processor, raw, maxType, alsoInType) }, true},
	{"tenant", ruleWord, func(n *breakerName, raw []byte) string { return setWord(&n.tenant, raw, maxTenant, "") }, true},
}

// liftBreaker closes a breaker, so that the jobs it held back start. It takes the operators' token.
func (s tenantRoutes) liftBreaker(w http.ResponseWriter, r *http.Request, who identity) error {
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
	open, away, err := s.store.LiftBreaker(r.Context(), name.processor, name.tenant)
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "breaker lifted", "who", who.name, "processor", name.processor, "tenant", name.tenant)
	return okBreakers(w, who, open, away)
}
