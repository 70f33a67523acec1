package chart

import (
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// TestLint runs helm lint --strict with the chart's own values and with those of each example.
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

// TestKubernetesVersions checks the minimum of 1.30: an older API server refuses the sleep of preStop in the middle of an installation.
func TestKubernetesVersions(t *testing.T) {
	for version, fits := range map[string]bool{
		"v1.29.15": false, "v1.30.0": true, "v1.30.4-eks-a1b2c3d": true, "v1.31.0-gke.100": true, "v1.36.2": true,
	} {
		if got := chartutil.IsCompatibleRange(loadChart(t).Metadata.KubeVersion, version); got != fits {
			t.Errorf("Kubernetes %s is accepted: %t; want %t", version, got, fits)
		}
	}
}
