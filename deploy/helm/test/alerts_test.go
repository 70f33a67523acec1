package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAlerts_FireWhenTheyShould checks all rules with promtool, and runs them on series that must and must not fire them.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is not installed")
		}
		t.Skip("promtool is not installed")
	}
	for _, args := range [][]string{
		{"check", "rules", filepath.Join(chartDir, "files", "alerts-gateway.yaml"), filepath.Join(chartDir, "files", "alerts-bulkworker.yaml"),
			filepath.Join(chartDir, "files", "recording-gateway.yaml"), filepath.Join(chartDir, "files", "recording-bulkworker.yaml")},
		{"test", "rules", filepath.Join("testdata", "alerts-gateway.yaml")},
		{"test", "rules", filepath.Join("testdata", "alerts-bulkworker.yaml")},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args[0], err, out)
		}
	}
}

// TestAlerts_HaveRunbooks checks that each alert links to a heading of docs/runbooks.md, and each such heading has an alert.
func TestAlerts_HaveRunbooks(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "runbooks.md"))
	alert := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?annotations: \{.*?, runbook_url: "https://github.com/anteroom/anteroom/blob/main/docs/runbooks.md#(\w+)"\}\n`)
	n := 0
	for _, program := range []string{"gateway", "bulkworker"} {
		text := read(t, filepath.Join(chartDir, "files", "alerts-"+program+".yaml"))
		found := alert.FindAllStringSubmatch(text, -1)
		if all := strings.Count(text, "- alert: "); len(found) != all {
			t.Errorf("%s: %d of %d alerts have a runbook_url", program, len(found), all)
		}
		for _, f := range found {
			n++
			if f[2] != strings.ToLower(f[1]) || !strings.Contains(page, "\n### "+f[1]+"\n") {
				t.Errorf("alert %s links to #%s, which is not its heading in docs/runbooks.md", f[1], f[2])
			}
		}
	}
	if all := strings.Count(page, "\n### "); all != n {
		t.Errorf("docs/runbooks.md has %d headings, there are %d alerts", all, n)
	}
}

// TestDashboards_AreThoseOfGrafana checks that the chart's dashboards are the files of deploy/grafana.
func TestDashboards_AreThoseOfGrafana(t *testing.T) {
	for _, name := range []string{"sale", "fleet", "bulk"} {
		current(t, filepath.Join(chartDir, "files", "dashboard-"+name+".json"), read(t, filepath.Join(root, "deploy", "grafana", name+".json")))
	}
}
