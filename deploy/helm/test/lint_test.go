package chart

import (
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// TestLint is helm lint --strict, with the chart's own values and with those of each example.
func TestLint(t *testing.T) {
	version := &chartutil.KubeVersion{Version: "v" + kubernetes, Major: "1", Minor: "30"}
	for _, e := range append(examples(t), example{name: "defaults", values: map[string]any{}}) {
		t.Run(e.name, func(t *testing.T) {
			result := lint.AllWithKubeVersion(chartDir, e.values, namespace, version)
			if len(result.Messages) == 0 {
				t.Fatal("lint said nothing at all; it says of this chart that it has no icon")
			}
			for _, m := range result.Messages {
				if m.Severity >= support.WarningSev {
					t.Error(m)
				}
			}
		})
	}
}
