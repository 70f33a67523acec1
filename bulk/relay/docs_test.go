package relay

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTable_IsDocumented(t *testing.T) {
	doc := read(t, "../../docs/outbox.md")
	for _, database := range []string{"postgres", "mysql"} {
		text, err := Table(database, "outbox")
		if err != nil || !strings.Contains(doc, "```sql\n"+text+"```") {
			t.Errorf("docs/outbox.md lacks the table for %s: %v\n%s", database, err, text)
		}
	}
	for _, name := range []string{"x; DROP TABLE y", "", "a.b.c", "a b"} {
		if _, err := Table("postgres", name); err == nil {
			t.Errorf("%q is a name of a table", name)
		}
	}
	if _, err := Table("oracle", "outbox"); err == nil || !strings.Contains(err.Error(), "postgres, mysql or mariadb") {
		t.Error(err)
	}
}

func TestMetrics_AreDocumented(t *testing.T) {
	reg := prometheus.NewRegistry()
	NewMetrics(reg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	doc := read(t, "../../docs/metrics.md")
	for _, f := range families {
		labels := "–"
		if l := f.GetMetric()[0].GetLabel(); len(l) > 0 {
			labels = "`" + l[0].GetName() + "`"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()), labels); !strings.Contains(doc, row) {
			t.Errorf("docs/metrics.md lacks %s", row)
		}
	}
	if n := strings.Count(doc, "\n| `bulk_relay_"); n != len(families) {
		t.Errorf("docs/metrics.md has %d metrics of relays, there are %d", n, len(families))
	}
}
