package api

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

func congestionOf(c store.Congestion) congestionView {
	return congestionView{
		Tenant: c.Tenant, Level: cmp.Or(c.Level, calm), NonReady: c.NonReady, Pending: c.Pending, InFlight: c.InFlight, Concurrency: c.Concurrency, Rate: tidy(c.Rate),
		Backoff: tidy(c.Backoff.Seconds()), ThrottlesPerJob: tidy(c.AvgThrottles), Finished: c.Finished, Estimate: tidy(c.Estimate.Seconds()), At: at(c.At),
	}
}

var levelNames = []string{calm, "low", "moderate", "high", "critical"}

func summarize(tenants []congestionView) bulktype.CongestionSummary {
	sum := bulktype.CongestionSummary{Tenants: len(tenants), Level: calm}
	var finished int64
	var throttles float64
	for _, t := range tenants {
		if slices.Index(levelNames, t.Level) > slices.Index(levelNames, sum.Level) {
			sum.Level = t.Level
		}
		sum.NonReady += t.NonReady
		sum.Pending += t.Pending
		sum.InFlight += t.InFlight
		sum.Backoff = max(sum.Backoff, t.Backoff)
		finished += t.Finished
		throttles += t.ThrottlesPerJob * float64(t.Finished)
	}
	if finished > 0 {
		sum.ThrottlesPerJob = tidy(throttles / float64(finished))
	}
	return sum
}

func (s tenantRoutes) congestion(w http.ResponseWriter, r *http.Request, who identity) error {
	if err := noQuery(r); err != nil {
		return err
	}
	seen, away, err := s.store.Congestion(r.Context(), "")
	if err != nil {
		return err
	}
	tenants := make([]congestionView, 0, len(seen))
	for _, c := range seen {
		if who.sees(c.Tenant) {
			tenants = append(tenants, congestionOf(c))
		}
	}
	return ophttp.OK(w, bulktype.Congestions[timestamp]{Summary: summarize(tenants), Tenants: tenants, Away: bulktype.Away{Shards: away}})
}

// tenantOf returns the tenant in the path.
func tenantOf(r *http.Request, who identity) (string, error) {
	name := r.PathValue("tenant")
	if !isWord(name, maxTenant, "") {
		return "", ophttp.NewProblem(http.StatusNotFound, string(store.CodeNotFound), "%q is not the name of a tenant; use %s", ophttp.Shorten(name), ruleWord)
	}
	return name, who.forTenant(name)
}

var historyFields = []field[int64]{
	{"minutes", "a whole number from 1 to 1440", func(m *int64, raw []byte) string { return setWhole(m, raw, 1, 1440) }, false},
}

func (s tenantRoutes) history(w http.ResponseWriter, r *http.Request, who identity) error {
	tenant, err := tenantOf(r, who)
	if err != nil {
		return err
	}
	minutes := int64(60)
	if err := readQuery(r, historyFields, &minutes); err != nil {
		return err
	}
	past, away, err := s.store.History(r.Context(), tenant, s.o.Now().Add(-time.Duration(minutes)*time.Minute))
	if err != nil {
		return err
	}
	points := make([]congestionView, len(past))
	for i, c := range past {
		c.Tenant = tenant
		points[i] = congestionOf(c)
	}
	return ophttp.OK(w, bulktype.History[timestamp]{Tenant: tenant, History: points, Away: bulktype.Away{Shards: away}})
}

func (s tenantRoutes) showLimits(w http.ResponseWriter, r *http.Request, _ identity) error {
	if err := noQuery(r); err != nil {
		return err
	}
	l, away, err := s.store.Limits(r.Context())
	if err != nil {
		return err
	}
	return okLimits(w, l, away)
}

func okLimits(w http.ResponseWriter, l store.Limits, away store.Away) error {
	v := bulktype.Limits{Global: tidy(l.Global), PerTenant: tidy(l.PerTenant), Burst: tidy(l.Burst), Live: l.Live, Adaptive: l.Adaptive, Away: bulktype.Away{Shards: away}}
	for name, of := range l.Types {
		if of.Rate > 0 || of.Concurrency > 0 || of.Live {
			if v.Processors == nil {
				v.Processors = map[string]bulktype.ProcessorLimits{}
			}
			v.Processors[name] = bulktype.ProcessorLimits{Rate: tidy(of.Rate), Concurrency: of.Concurrency, InFlight: of.Running, Live: of.Live}
		}
	}
	return ophttp.OK(w, v)
}

var limitsFields = []field[store.LimitsPatch]{
	{"global", "a number from 0.001 to 1000000 a second with at most three decimal places, or null: as configured", func(p *store.LimitsPatch, raw []byte) string {
		p.GlobalGiven = true
		return setOrNil(&p.Global, raw, 0.001)
	}, false},
	{"per_tenant", "a number from 0 (a guaranteed share, no cap) to 1000000 a second with at most three decimal places, or null: as configured", func(p *store.LimitsPatch, raw []byte) string {
		p.PerTenantGiven = true
		return setOrNil(&p.PerTenant, raw, 0)
	}, false},
	{"processors", "an object of job types, each with rate, concurrency or both", func(p *store.LimitsPatch, raw []byte) string {
		if raw[0] != '{' {
			return "is not an object"
		}
		p.Types = map[string]store.TypeLimitPatch{}
		wrong := ""
		ophttp.Members(raw, func(name, value []byte) bool {
			wrong = setProcessor(p.Types, string(name), value)
			return wrong == ""
		})
		return wrong
	}, false},
}

var processorFields = []field[store.TypeLimitPatch]{
	{"rate", "a number from 0.001 to 1000000 a second with at most three decimal places, 0 for no limit, or null: as configured", func(p *store.TypeLimitPatch, raw []byte) string {
		p.RateGiven = true
		return setOrNil(&p.Rate, raw, 0)
	}, false},
	{"concurrency", "a whole number from 1 to 1000000, 0 for no limit, or null: as configured", func(p *store.TypeLimitPatch, raw []byte) string {
		p.ConcurrencyGiven = true
		if ophttp.IsNull(raw) {
			return ""
		}
		p.Concurrency = new(int64)
		return setWhole(p.Concurrency, raw, 0, store.MaxTypeConcurrency)
	}, false},
}

// setProcessor reads the limits of one processor.
func setProcessor(types map[string]store.TypeLimitPatch, name string, raw []byte) string {
	switch _, twice := types[name]; {
	case !isWord(name, maxType, alsoInType):
		return "has " + ophttp.Shorten(name) + ", which is not a job type; use " + ruleType
	case twice:
		return "has " + name + " twice"
	case raw[0] != '{':
		return "has " + name + ", which is not an object"
	}
	var p store.TypeLimitPatch
	for _, f := range decode(processorFields, raw, &p) {
		return "has " + name + "." + f.Path + ", which " + f.Problem + "; allowed: " + f.Allowed
	}
	types[name] = p
	return ""
}

func setOrNil(to **float64, raw []byte, least float64) string {
	if ophttp.IsNull(raw) {
		return ""
	}
	*to = new(float64)
	return setDecimal(*to, raw, least, maxRate)
}

func (s tenantRoutes) patchLimits(w http.ResponseWriter, r *http.Request, who identity) error {
	if err := who.forAll(); err != nil {
		return err
	}
	var p store.LimitsPatch
	if err := readFields(r, limitsFields, false, &p); err != nil {
		return err
	}
	l, err := s.store.SetLimits(r.Context(), p)
	if err != nil {
		return err
	}
	if !p.GlobalGiven && !p.PerTenantGiven && len(p.Types) == 0 {
		return okLimits(w, l, nil)
	}
	s.log.InfoContext(r.Context(), "limits changed", "who", who.name, "global", l.Global, "per_tenant", l.PerTenant, "live", l.Live, "processors", slices.Sorted(maps.Keys(p.Types)))
	return okLimits(w, l, nil)
}

func okTenant(w http.ResponseWriter, t store.Tenant, away store.Away) error {
	return ophttp.OK(w, bulktype.Tenant{
		Tenant: t.Name, Weight: t.Weight, Rate: tidy(t.Rate), Concurrency: t.Concurrency, Groups: t.Groups, InFlight: t.InFlight, Served: t.Served, Away: bulktype.Away{Shards: away},
	})
}

func (s tenantRoutes) showTenant(w http.ResponseWriter, r *http.Request, who identity) error {
	name, err := tenantOf(r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	t, away, err := s.store.Tenant(r.Context(), name)
	if err != nil {
		return err
	}
	return okTenant(w, t, away)
}

var tenantFields = []field[store.Tenant]{
	{"weight", ruleWeight + ", or null: 1", func(t *store.Tenant, raw []byte) string {
		t.Weight = 0
		if ophttp.IsNull(raw) {
			return ""
		}
		return setDecimal(&t.Weight, raw, 0.01, 100)
	}, false},
	{"rate", "a number from 0.001 to 1000000 a second with at most three decimal places, or 0 or null: as configured", func(t *store.Tenant, raw []byte) string {
		t.Rate = 0
		if ophttp.IsNull(raw) {
			return ""
		}
		return setDecimal(&t.Rate, raw, 0, maxRate)
	}, false},
	{"concurrency", ruleSlots + ", or null: 0", func(t *store.Tenant, raw []byte) string {
		t.Concurrency = 0
		if ophttp.IsNull(raw) {
			return ""
		}
		return setWhole(&t.Concurrency, raw, 0, 1e6)
	}, false},
}

// patchTenant takes the operators' token: a tenant must not raise its own share.
func (s tenantRoutes) patchTenant(w http.ResponseWriter, r *http.Request, who identity) error {
	name, err := tenantOf(r, who)
	if err == nil {
		err = who.forAll()
	}
	if err != nil {
		return err
	}
	body, err := readObject(r, false)
	if err != nil {
		return err
	}
	if faults := decode(tenantFields, body, &store.Tenant{}); len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	s.tenants.Lock()
	defer s.tenants.Unlock()
	t, _, err := s.store.Tenant(r.Context(), name)
	if refusedWith(err, store.CodeNotFound) {
		t, err = store.Tenant{}, nil // operators may set up a tenant before it submits anything
	}
	if err != nil {
		return err
	}
	decode(tenantFields, body, &t) // without faults, as above
	t.Name = name
	if t, err = s.store.SetTenant(r.Context(), t); err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "tenant changed", "who", who.name, "tenant", name, "weight", t.Weight, "rate", t.Rate, "concurrency", t.Concurrency)
	return okTenant(w, t, nil)
}
