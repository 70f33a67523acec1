package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/anteroom/anteroom/internal/freeport"
)

// prometheusOf starts a real Prometheus that scrapes the targets five times a second and evaluates the rules of files, and returns its address.
func prometheusOf(t testing.TB, targets []string, rules ...string) string {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("prometheus is not installed")
		}
		t.Skip("prometheus is not installed")
	}
	dir, addr := tempDir(t), freeport.Address(t)
	config := filepath.Join(dir, "prometheus.yml")
	text, _ := json.Marshal(map[string]any{ // JSON is YAML
		"global":         map[string]string{"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
		"rule_files":     rules,
		"scrape_configs": []any{map[string]any{"job_name": "shop", "static_configs": []any{map[string]any{"targets": targets}}}},
	})
	write(t, config, string(text))
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return addr
}

// A low score from Prometheus slows a room whose origin looks healthy, and a high score lets the rate recover.
func TestAdaptive_UsesPrometheusScore(t *testing.T) {
	t.Parallel()
	var health atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "shop_health %d\n", health.Load())
	}))
	t.Cleanup(target.Close)
	site := newOrigin(t, nil)
	const password = "a-word-that-is-hidden"
	g := start(t, setup{origin: site.URL, rooms: []string{room(fmt.Sprintf(
		"admission: {strategy: adaptive, rate: 20, min_rate: 2, max_rate: 40, prometheus: {url: 'http://ann:%s@%s', query: 'min(shop_health)'}}",
		password, prometheusOf(t, []string{target.Listener.Addr().String()})))}})
	g.secret(password)
	state := func(want string, score float64) bool {
		var r struct {
			Adaptive struct {
				State string
				Score *float64
			}
		}
		a := adminOf(t, g).get("rooms/sale").want(http.StatusOK)
		return json.Unmarshal([]byte(a.body), &r) == nil && r.Adaptive.State == want && r.Adaptive.Score != nil && *r.Adaptive.Score == score
	}
	until(t, "its word counts", func() bool { return state("unhealthy", 0) })
	until(t, "the rate is cut", func() bool { v, ok := metric(t, g, "anteroom_rate_limit"); return ok && v < 19 })
	health.Store(1)
	until(t, "and so it does when all is well", func() bool { return state("healthy", 1) })
}
