package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/congestion"
)

// snapshotTenants is how many tenants get a snapshot a second; with more of them, each gets one less often.
const snapshotTenants = 20

// Snapshot records the congestion of tenants with jobs, at most once a second, whichever process calls.
func (s rateStore) Snapshot(ctx context.Context) error {
	_, err := s.run(ctx, "stats_snapshot", snapshotTenants)
	return err
}

// Congestion returns the congestion of the tenants with groups, by name; with a name, of that tenant only.
func (s rateStore) Congestion(ctx context.Context, tenant string) ([]Congestion, error) {
	names := []string{tenant}
	if tenant == "" {
		var err error
		if names, err = s.tenantNames(ctx); err != nil {
			return nil, err
		}
	}
	var out []Congestion
	for part := range slices.Chunk(names, 200) {
		args := make([]any, len(part))
		for i, n := range part {
			args[i] = n
		}
		r, err := s.run(ctx, "tenant_read", args...)
		if err != nil {
			return nil, err
		}
		for i, name := range part {
			v := list(r.at(i))
			if len(v) == 0 {
				continue
			}
			out = append(out, s.congestion(name, v.int(5), v.int(6), v.int(3), v.int(7), v.int(8), v.int(9), v.int(10), v.int(11)))
			out[len(out)-1].Concurrency = v.int(16)
		}
	}
	if tenant != "" && len(out) == 0 {
		return nil, refuse(CodeNotFound, "tenant %q: it has no groups and no settings", tenant)
	}
	return out, nil
}

func (s rateStore) congestion(name string, refused, open, inFlight, rate, wait, mean, jobs, at int64) Congestion {
	base := s.conf.Load().BaseBackoff
	c := Congestion{
		Tenant: name, NonReady: refused, InFlight: inFlight, Pending: max(0, open-refused-inFlight), Rate: float64(rate) / 1000,
		Backoff: duration(wait), AvgThrottles: float64(mean) / 1e6, Finished: jobs, At: micros(at),
	}
	c.Level = congestion.Level(c.Backoff, base)
	c.Estimate = congestion.Estimate(refused, c.Rate)
	return c
}

// tenantNames returns the known tenants, sorted.
func (s rateStore) tenantNames(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*s.o.Timeout)
	defer cancel()
	return s.fields(ctx, keyTenants)
}

// History returns a tenant's snapshots since then, oldest first.
func (s rateStore) History(ctx context.Context, tenant string, since time.Time) ([]Congestion, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	members, err := s.o.Client.ZRangeByLex(ctx, s.keys[keyHistory], &redis.ZRangeBy{
		Min: fmt.Sprintf("[%s/%016d", tenant, max(0, since.UnixMicro())), Max: "(" + tenant + "0",
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	out := make([]Congestion, 0, len(members))
	for _, m := range members {
		_, text, _ := strings.Cut(m, "/")
		w := strings.Fields(text)
		if len(w) != 8 {
			return nil, fmt.Errorf("history of %q: %q", tenant, m)
		}
		n := func(i int) int64 { return asInt(w[i]) }
		out = append(out, s.congestion(tenant, n(1), n(2), n(3), n(4), n(5), n(6), n(7), n(0)))
	}
	return out, nil
}

// Limits returns the rates in force.
func (s rateStore) Limits(ctx context.Context) (Limits, error) {
	l, _, err := s.rates(ctx, "")
	return l, err
}

// SetLimits changes the rates in the patch for every process.
func (s rateStore) SetLimits(ctx context.Context, p LimitsPatch) (Limits, error) {
	value := func(f *float64) any {
		if f == nil {
			return ""
		}
		return strconv.FormatInt(thousandths(*f), 10)
	}
	var fields []any
	for _, f := range []struct {
		name  string
		given bool
		rate  *float64
	}{{"global", p.GlobalGiven, p.Global}, {"per_tenant", p.PerTenantGiven, p.PerTenant}} {
		if !f.given {
			continue
		}
		if r := f.rate; r != nil && (*r < 0 || *r > 1e6 || (*r > 0 && *r < 0.001)) {
			return Limits{}, refuse(CodeInvalid, "rate %v: use 0, or 0.001 to 1000000 jobs a second", *r)
		}
		fields = append(fields, f.name, value(f.rate))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Types)) {
		if !typeName.MatchString(name) {
			return Limits{}, refuse(CodeInvalid, "processors: %q is not a job type; use 1 to 64 of A-Z a-z 0-9 . _ : / -", name)
		}
		more, err := p.Types[name].fields(name)
		if err != nil {
			return Limits{}, err
		}
		fields = append(fields, more...)
	}
	l, _, err := s.rates(ctx, "", fields...)
	return l, err
}

// Tenant returns a tenant.
func (s rateStore) Tenant(ctx context.Context, name string) (Tenant, error) {
	_, t, err := s.rates(ctx, name)
	return t, err
}

// SetTenant changes a tenant's weight (0: 1), rate (0: as configured) and concurrency.
func (s rateStore) SetTenant(ctx context.Context, t Tenant) (Tenant, error) {
	if t.Weight == 0 {
		t.Weight = 1
	}
	switch {
	case !tenantID.MatchString(t.Name):
		return Tenant{}, refuse(CodeInvalid, "tenant %q: use 1 to 64 letters, digits and . _ -", t.Name)
	case t.Weight < 0.01 || t.Weight > 100:
		return Tenant{}, refuse(CodeInvalid, "weight %v: use 0.01 to 100", t.Weight)
	case t.Rate < 0 || t.Rate > 1e6 || (t.Rate > 0 && t.Rate < 0.001):
		return Tenant{}, refuse(CodeInvalid, "rate %v: use 0.001 to 1000000 jobs a second, or 0 for the configured rate", t.Rate)
	case t.Concurrency < 0 || t.Concurrency > 1e6:
		return Tenant{}, refuse(CodeInvalid, "concurrency %d: use 1 to 1000000, or 0 for no limit of its own", t.Concurrency)
	}
	_, t, err := s.rates(ctx, t.Name, "weight", thousandths(t.Weight), "rate", thousandths(t.Rate), "conc", t.Concurrency)
	return t, err
}

func (s rateStore) rates(ctx context.Context, tenant string, fields ...any) (Limits, Tenant, error) {
	var r reply
	for from, calls := int64(0), 0; from >= 0 && calls < 1000; from, calls = r.int(9), calls+1 {
		args := append([]any{tenant, from}, fields...)
		if from > 0 {
			args = args[:2] // the settings are set; the next steps open gates
		}
		var err error
		if r, err = s.run(ctx, "rates_set", args...); err != nil {
			return Limits{}, Tenant{}, err
		}
		if r.refusal() != "" {
			break
		}
	}
	if r.refusal() != "" {
		return Limits{}, Tenant{}, refuse(CodeNotFound, "tenant %q: it has no groups and no settings", tenant)
	}
	rate := func(i int) float64 { return float64(r.int(i)) / 1000 }
	var types map[string]TypeLimits
	if tenant == "" {
		var err error
		if types, err = s.typeLimits(ctx, r.string(12)); err != nil {
			return Limits{}, Tenant{}, err
		}
	}
	return Limits{Global: rate(0), PerTenant: rate(1), Burst: rate(2), Live: r.int(3) == 1, Adaptive: r.int(10) == 1, Types: types},
		Tenant{Name: tenant, Weight: rate(4), Rate: rate(5), Concurrency: r.int(11), Groups: r.int(6), InFlight: r.int(7), Served: r.int(8)}, nil
}

// Depths returns the counts for metrics.
func (s rateStore) Depths(ctx context.Context) (Depths, error) {
	r, err := s.run(ctx, "queue_read")
	if err != nil {
		return Depths{}, err
	}
	d := Depths{
		Groups:  map[Level]int64{High: r.int(0), Normal: r.int(1), Low: r.int(2)},
		Pending: r.int(3), Ready: r.int(4), NonReady: r.int(5), InFlight: r.int(6), ActiveTenants: r.int(7), GatedGroups: r.int(8),
		Jain: float64(r.int(9)) / 1e6, RateAccuracy: float64(r.int(10)) / 1e6, MaxBackoff: duration(r.int(11)),
		AvgThrottles: float64(r.int(12)) / 1e6, SavedSpins: r.int(13), OpenGroups: r.int(14),
		Unserved: r.int(15), UnservedTypes: strings.Fields(r.string(16)),
	}
	for i, level := range []Level{High, Normal, Low} {
		if ms := r.int(19 + i); ms >= 0 && len(r) > 19+i {
			if d.Oldest == nil {
				d.Oldest = map[Level]time.Duration{}
			}
			d.Oldest[level] = time.Duration(ms) * time.Millisecond
		}
	}
	conf := s.conf.Load()
	d.BackoffLimit = conf.MaxBackoff
	d.MaxCongestion = congestion.Level(d.MaxBackoff, conf.BaseBackoff)
	if d.Types, err = s.typeLimits(ctx, r.string(17)); err != nil {
		return Depths{}, err
	}
	if r.int(18) > 0 {
		if d.Breakers, err = s.Breakers(ctx); err != nil {
			return Depths{}, err
		}
	}
	return d, nil
}

// Ping returns an error unless the store replies and its layout fits.
func (s *shard) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	if err := s.o.Client.Ping(ctx).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return s.Prepare(ctx)
}
