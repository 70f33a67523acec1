package main

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/internal/config"
)

// TestStoreOptions_TellTheMetrics checks that the store reports its calls and the waits of refused jobs to the metrics.
func TestStoreOptions_TellTheMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := storeOptions(&config.Bulk{}, nil, bulk.NewMetrics(registry, ""))
	o.Observe("jobs_pull", time.Millisecond, nil)
	o.Refused(7 * time.Second)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"bulk_action_store_script_seconds": .001, "bulk_action_refused_wait_seconds": 7} {
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
		if i < 0 || families[i].GetMetric()[0].GetHistogram().GetSampleSum() != want {
			t.Errorf("%s does not have %v s", name, want)
		}
	}
}
