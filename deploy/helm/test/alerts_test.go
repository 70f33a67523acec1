package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAlerts_FireWhenTheyShould checks all rules with promtool, and runs those of the bulk worker on series that must and must not fire them.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is not installed")
		}
		t.Skip("promtool is not installed")
	}
	for _, args := range [][]string{
		{"check", "rules", filepath.Join(chartDir, "files", "alerts-gateway.yaml"), filepath.Join(chartDir, "files", "alerts-bulkworker.yaml")},
		{"test", "rules", filepath.Join("testdata", "alerts-bulkworker.yaml")},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args[0], err, out)
		}
	}
}
