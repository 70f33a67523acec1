package bulk

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/tracing"
)

// gathered reads all metrics, as name{label="value",…}.
func gathered(t testing.TB, m *Metrics) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(m.collectors...)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			key := strings.TrimPrefix(f.GetName(), namespace+"_")
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				all[key] = s.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				all[key] = s.GetGauge().GetValue()
			default:
				all[key] = float64(s.GetHistogram().GetSampleCount())
			}
		}
	}
	return all
}

func value(t testing.TB, m *Metrics, key string) float64 {
	t.Helper()
	v, ok := gathered(t, m)[key]
	if !ok {
		t.Fatalf("there is no %s", key)
	}
	return v
}

// same compares the named metrics.
func same(t *testing.T, m *Metrics, want map[string]float64) {
	t.Helper()
	got := gathered(t, m)
	for _, key := range keys(want) {
		if v, ok := got[key]; !ok || v != want[key] {
			t.Errorf("%s is %v (there: %t), want %v", key, v, ok, want[key])
		}
	}
}

func TestMetrics_CountEvents(t *testing.T) {
	m := NewMetrics(nil, "v1")
	m.know([]string{"webhook"})
	m.attach(newPool(4, 6))
	m.Enqueued(7)
	m.ObserveStore("bulk_pull", time.Millisecond, nil)
	m.ObserveStore("bulk_pull", time.Millisecond, errAway)
	m.pulled(store.Pulled{})
	m.pulled(store.Pulled{Jobs: make([]store.Leased, 2), Fetched: 9, ToReady: 4, ToNonReady: 3, Dropped: 2})
	m.dispatched(store.Dispatch{Moved: 1, Recovered: 2, Dead: 3, Skipped: 4, Woken: 5})
	m.ran("webhook", &store.Ack{Code: "timeout", Took: time.Second}, "")
	m.acked("webhook", store.AckDead)
	m.acked("what a submitter wrote", store.AckDone)
	m.Concluded(store.Failed, 1)
	m.callback("retry")
	m.Refused(3 * time.Second)
	m.depths(0, store.Depths{Groups: map[store.Level]int64{store.High: 2}, Pending: 10, Ready: 11, NonReady: 12, InFlight: 13, ActiveTenants: 14,
		GatedGroups: 15, Jain: .5, RateAccuracy: .9, MaxCongestion: "high", MaxBackoff: 90 * time.Second, BackoffLimit: 120 * time.Second, AvgThrottles: 1.5, SavedSpins: 99,
		Types:    map[string]store.TypeLimits{"webhook": {TypeLimit: store.TypeLimit{Rate: 14.5, Concurrency: 3}, Running: 2}},
		Breakers: []store.OpenBreaker{{Type: "webhook"}, {Type: "webhook", Tenant: "acme"}, {Type: "webhook", Tenant: "beta"}, {Type: "fax", Tenant: "acme"}}}, time.Now())
	same(t, m, map[string]float64{
		"enqueued_total": 7, "dequeued_total": 2, "fetched_total": 9, "fetch_empty_total": 1,
		`fetch_admitted_total{verdict="ready"}`: 4, `fetch_admitted_total{verdict="non_ready"}`: 3, `fetch_admitted_total{verdict="rejected"}`: 2,
		"dispatch_moved_total": 1, "dispatch_recovered_total": 2, "dispatch_dead_total": 3, "dispatch_skipped_total": 4, "dispatch_woken_total": 5,
		`job_seconds{type="webhook"}`: 1, `job_timeouts_total{type="webhook"}`: 1, `job_runs_total{type="webhook",verdict="dead"}`: 1,
		`job_runs_total{type="other",verdict="success"}`: 1, `groups_ended_total{status="failed"}`: 1, `callbacks_total{verdict="retry"}`: 1,
		`store_script_seconds{script="bulk_pull"}`: 2, `store_errors_total{script="bulk_pull"}`: 1,
		`queue_groups{level="high"}`: 2, `queue_groups{level="low"}`: 0, "pending_jobs": 10, "ready_jobs": 11, "non_ready_jobs": 12, "in_flight_jobs": 13,
		"active_tenants": 14, "gated_groups": 15, "fairness_jain": .5, "rate_accuracy_ratio": .9, "congestion_level": 3,
		"congestion_backoff_seconds": 90, "congestion_backoff_limit_seconds": 120, "throttles_per_job": 1.5, "refused_wait_seconds": 1, "saved_spins_total": 99,
		`processor_rate_limit{type="webhook"}`: 14.5, `processor_concurrency_limit{type="webhook"}`: 3, `processor_in_flight{type="webhook"}`: 2,
		`breaker_open{type="webhook"}`: 1, `breaker_open_tenants{type="webhook"}`: 2, `breaker_open_tenants{type="other"}`: 1,
		"workers": 4, "workers_active": 0, "workers_idle": 4, "acks_waiting": 0, "acks_waiting_limit": 10,
	})
}

// TestMetrics_AreDocumented compares docs/metrics.md with what is registered: names, types, labels.
func TestMetrics_AreDocumented(t *testing.T) {
	m := NewMetrics(nil, "")
	m.attach(newPool(1, 1))
	m.depths(0, store.Depths{Types: map[string]store.TypeLimits{"webhook": {TypeLimit: store.TypeLimit{Rate: 1, Concurrency: 1}}}}, time.Now())
	m.up(0, true)
	m.up(1, true) // some metrics exist only with several shards
	m.ObserveStore("bulk_pull", 0, nil)
	m.steered(&steered{})
	reg := prometheus.NewRegistry()
	reg.MustRegister(m.collectors...)
	tracing.NewMetrics(reg, namespace)
	lifecycle.NewLoads(reg, namespace)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		labels := "–"
		for i, l := range f.GetMetric()[0].GetLabel() {
			if i == 0 {
				labels = ""
			} else {
				labels += ", "
			}
			labels += "`" + l.GetName() + "`"
		}
		got = append(got, fmt.Sprintf("%s %s %s", f.GetName(), strings.ToLower(f.GetType().String()), labels))
	}
	file, err := os.Open("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	row := regexp.MustCompile("^\\| `(" + namespace + "_[a-z_]+)` \\| ([a-z]+) \\| ([^|]+) \\|")
	var want []string
	for s := bufio.NewScanner(file); s.Scan(); {
		if c := row.FindStringSubmatch(s.Text()); c != nil {
			labels := strings.Split(c[3], ", ")
			slices.Sort(labels)
			want = append(want, fmt.Sprintf("%s %s %s", c[1], c[2], strings.Join(labels, ", ")))
		}
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("../lua/*.lua")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, s := range scripts { // the values of the label
		if name := strings.TrimSuffix(filepath.Base(s), ".lua"); !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("not in docs/metrics.md: the script %s", name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("not in docs/metrics.md: %s", g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("in docs/metrics.md only: %s", w)
		}
	}
}
