package chart

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
)

// helm upgrade --reuse-values renders with the defaults of the old chart. A chart that lacks a newer default is refused before anything
// changes, with its name; docs/kubernetes.md has the way out. An operator's own values of the old chart are enough with the new defaults.
func TestUpgrade_ReusedDefaultsAreRefusedByName(t *testing.T) {
	own := examples(t)[0].values
	c := loadChart(t)
	old := maps.Clone(c.Values)
	metrics, ok := old["metrics"].(map[string]any)
	if !ok {
		t.Fatalf("metrics is a %T", old["metrics"])
	}
	metrics = maps.Clone(metrics)
	delete(metrics, "dashboards") // a later addition
	old["metrics"] = metrics
	c.Values = chartutil.CoalesceTables(maps.Clone(own), old)
	if _, err := chartutil.ToRenderValues(c, map[string]any{}, chartutil.ReleaseOptions{Name: releaseName, Namespace: namespace, IsUpgrade: true}, chartutil.DefaultCapabilities); err == nil || !strings.Contains(err.Error(), "missing property 'dashboards'") {
		t.Errorf("with the defaults of an old chart: %v", err)
	}
	if _, err := tryRender(t, own); err != nil {
		t.Errorf("with the defaults of this chart: %v", err)
	}
	page := read(t, filepath.Join(root, "docs", "kubernetes.md"))
	if !strings.Contains(page, "`--reset-then-reuse-values`") || !strings.Contains(page, "missing property") {
		t.Error("docs/kubernetes.md does not name --reset-then-reuse-values as the way out")
	}
}
