package bulktest_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/bulk/bulktest"
)

// TestSimulation runs the scenarios of docs/congestion.md on a virtual clock against the model. The figures do not depend on
// the machine: the document has to have them as they come out.
func TestSimulation(t *testing.T) {
	doc, err := os.ReadFile("../../docs/congestion.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, c := range Scenarios(1) {
		clock := NewClock()
		m := New(c.Settings, clock.Now, func(int64) float64 { return 0.5 })
		m.SharedCount = c.Shared
		began := time.Now()
		r, err := c.Run(context.Background(), m, clock)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if err := c.Judge(r); err != nil {
			t.Error(err)
		}
		t.Logf("%s: %d pulls, most starts of a tenant in any second %d, simulated in %v", c.Name, r.Pulls, r.TenantPeak, time.Since(began))
		rows = append(rows, c.Row(r))
	}
	table := Table(rows)
	t.Log("\n" + table)
	if !strings.Contains(string(doc), table) {
		t.Error("docs/congestion.md has another table; it should have the one above")
	}
}
