//go:build !race

package store_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestModel_MatchesDocumentedFigures runs the scenarios of docs/congestion.md against the model, on a virtual clock. The figures do not depend on the machine,
// and the document must have exactly these. The test runs on one goroutine: the race detector would find nothing and take a minute.
func TestModel_MatchesDocumentedFigures(t *testing.T) {
	doc, err := os.ReadFile("../../docs/congestion.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, c := range Scenarios(1) {
		clock := NewClock()
		m := newModel(c.Settings, clock.Now, func(int64) float64 { return 0.5 })
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
