package webhook

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission/outbox"
)

func TestMetrics_AreDocumented(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	m.show([]Endpoint{{Name: "hook"}}, &outbox.Work{})
	m.deliveries.WithLabelValues("hook", "retry").Inc()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		labels := map[string]string{"anteroom_webhook_deliveries_total": "`webhook`, `outcome`", "anteroom_webhook_sender": "–"}[f.GetName()]
		if labels == "" {
			labels = "`webhook`"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()), labels); !strings.Contains(string(page), row) {
			t.Errorf("docs/metrics.md lacks %s", row)
		}
	}
	if n := strings.Count(string(page), "\n| `anteroom_webhook_"); n != len(families) {
		t.Errorf("docs/metrics.md has %d metrics of webhooks, there are %d", n, len(families))
	}
}
