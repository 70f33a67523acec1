package gateway

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// After SIGHUP a ca_file with new content is used, although the configuration is unchanged. A broken file leaves the old content in
// force.
func TestReload_ReadsCAFile(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	t.Cleanup(secure.Close)
	dir := t.TempDir()
	other, err := os.ReadFile(certificate(t, dir, "other").CertFile)
	if err != nil {
		t.Fatal(err)
	}
	right := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	file := filepath.Join(dir, "ca.pem")
	put := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(other)
	site := originAt("shop", secure.URL)
	site.ConnectTimeout = 10 * time.Second
	site.TLS.CAFile = file
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{site}})
	b.call("GET /").code(t, 502)
	put([]byte("no certificate"))
	if err := b.Reload(b.o); err == nil || !strings.Contains(err.Error(), "tls.ca_file") {
		t.Errorf("a broken file: %v", err)
	}
	put(right)
	b.call("GET /").code(t, 502)
	if err := b.Reload(b.o); err != nil {
		t.Fatal(err)
	}
	b.call("GET /").code(t, 200)
	before := b.state.Load().origins["shop"].Origin
	if err := b.Reload(b.o); err != nil || b.state.Load().origins["shop"].Origin != before {
		t.Errorf("an origin that is the same was made anew (%v)", err)
	}
}

func TestMetrics_OfOrigin(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}})
	b.call("GET /").code(t, 200)
	want := strings.ReplaceAll(`
# HELP anteroom_upstream_connections Connections to a server.
# TYPE anteroom_upstream_connections gauge
anteroom_upstream_connections{origin="shop",server="URL",state="idle"} 1
anteroom_upstream_connections{origin="shop",server="URL",state="in_use"} 0
# HELP anteroom_upstream_connections_limit Highest number of connections to the origin in use.
# TYPE anteroom_upstream_connections_limit gauge
anteroom_upstream_connections_limit{origin="shop"} 100
# HELP anteroom_upstream_queue Requests that wait for a connection to the origin.
# TYPE anteroom_upstream_queue gauge
anteroom_upstream_queue{origin="shop"} 0
# HELP anteroom_upstream_queue_limit Highest number of requests that wait for a connection to the origin.
# TYPE anteroom_upstream_queue_limit gauge
anteroom_upstream_queue_limit{origin="shop"} 4096
# HELP anteroom_upstream_server_up 1 while the server may receive requests.
# TYPE anteroom_upstream_server_up gauge
anteroom_upstream_server_up{origin="shop",server="URL"} 1
`, "URL", s.URL)
	eventually(t, "the figures are those of one request", func() bool {
		err := testutil.GatherAndCompare(b.reg, strings.NewReader(want), "anteroom_upstream_connections", "anteroom_upstream_connections_limit",
			"anteroom_upstream_queue", "anteroom_upstream_queue_limit", "anteroom_upstream_server_up")
		return err == nil
	})
}

// docs/metrics.md lists the metrics of a gateway: names, types, labels.
func TestMetricsAreDocumented(t *testing.T) {
	s := newSite(t, "shop", nil)
	p := policy(50)
	p.Rate = 50_000
	p.Budgeted, p.Budget = true, admission.Budget{Origin: "shop", Rate: 100_000, Burst: 100_000, Weight: 1000, Weights: 1000}
	p.Strategy, p.Origin, p.MinRate, p.MaxRate = admission.StrategyAdaptive, "shop", 1000, 50_000
	p.Adaptive = admission.Adaptive{TargetP95: time.Minute, MaxErrorRate: 1}
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: p}},
	})
	eventually(t, "the room holds a lease", func() bool {
		use, _ := b.core.BudgetUse("shop")
		return use.Granted > 0
	})
	before := b.queue("sale").Snapshot().Seq
	eventually(t, "the room has it", func() bool { return b.queue("sale").Snapshot().Seq > before+2 })
	eventually(t, "a visitor is admitted", func() bool { return b.call("GET /", asJSON).status == 200 }) // leases are short
	eventually(t, "the origin is judged", func() bool {
		for range 20 {
			b.call("GET /", asJSON)
		}
		at := b.core.Room("sale", p).Steering()
		return at != nil && at.Level == adaptive.Healthy && b.queue("sale").Snapshot().Target > 0
	})
	eventually(t, "the room is known", func() bool { return b.queue("sale").Snapshot().Known })
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		labels := []string{}
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		if len(labels) == 0 {
			labels = []string{"–"}
		}
		got = append(got, fmt.Sprintf("%s %s %s", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", ")))
	}
	file, err := os.Open("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	row := regexp.MustCompile("^\\| `(" + "anteroom" + "_[a-z_]+)` \\| ([a-z]+) \\| ([^|]+) \\|")
	var want []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if c := row.FindStringSubmatch(lines.Text()); c != nil {
			labels := strings.Split(c[3], ", ")
			slices.Sort(labels)
			want = append(want, fmt.Sprintf("%s %s %s", c[1], c[2], strings.Join(labels, ", ")))
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("not in docs/metrics.md: %s", g)
		}
	}
}
