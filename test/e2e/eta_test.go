package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A gateway uses a model and keeps it when the file is replaced by a broken one. Its history is exported while it serves, and the
// estimators are tested with the export.
func TestEstimates(t *testing.T) {
	t.Parallel()
	model, err := os.ReadFile("../../eta/example.json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(tempDir(t), "model.json")
	write(t, file, string(model))
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{fmt.Sprintf(
		"{id: sale, admission: {rate: 0.01, burst: 1}, eta: {estimator: model, model_file: %q, model_max_age: 0s, time_zone: Europe/Berlin}}", file)}})
	o, c := adminOf(t, g), newClient(t, g)
	c.get(g, "/").want(http.StatusOK)
	waiting := newClient(t, g).join(g)
	if waiting.ETA == nil {
		t.Errorf("who waits is told nothing: %+v", waiting)
	}
	until(t, "the store has the minute", func() bool {
		code, out, stderr := command(t, nil, "eta", "export", "--config", g.config, "--room", "sale", "--since", "10m")
		var m struct {
			Room  string
			At    time.Time
			Joins int
			Rate  float64
		}
		line, _, _ := strings.Cut(out, "\n")
		if code != 0 {
			t.Fatalf("export: %d %s", code, stderr)
		}
		return json.Unmarshal([]byte(line), &m) == nil && m.Room == "sale" && m.At.Second() == 0 && m.Joins >= 1 && m.Rate == 0.01
	})
	metrics := o.ask(http.MethodGet, "/metrics", "").body
	if !strings.Contains(metrics, `anteroom_eta_fallback{reason="missing",room="sale"} 0`) {
		t.Error("whether the model is used is not among the metrics")
	}

	write(t, file, "{}")
	code, _, stderr := command(t, nil, "check-config", "--config", g.config)
	if code != 2 || !strings.Contains(stderr, "rooms[0].eta.model_file") || !strings.Contains(stderr, "eta-train") {
		t.Errorf("check-config of a broken model: %d %s", code, stderr)
	}
	g.signal(syscall.SIGHUP)
	until(t, "the broken model is refused", func() bool {
		return strings.Contains(g.text(), "cannot reload the configuration") && strings.Contains(g.text(), "model_file")
	})

	var history strings.Builder
	for m := range 12 {
		fmt.Fprintf(&history, `{"room":"sale","at":"2026-03-02T10:%02d:00Z","joins":600,"admissions":600,"abandoned":0,"waiting":1500,"rate":10,"wait_p50_seconds":150,"wait_p90_seconds":151}`+"\n", m)
	}
	recorded := filepath.Join(tempDir(t), "history.ndjson")
	write(t, recorded, history.String())
	code, out, stderr := command(t, nil, "eta", "backtest", recorded, "--json", "--estimator", "window,fixed")
	if code != 0 || !strings.Contains(out, `"sale":"sale","estimator":"window"`) || strings.Count(out, "\n") != 2 {
		t.Errorf("backtest: %d %s%s", code, out, stderr)
	}
	for _, args := range [][]string{{"--estimator", "oracle"}, {"--seeds", "0"}, {"--sale", "none"}, {"--weights", "25=1"}, {"--time-zone", "Nowhere/At"}} {
		if code, _, stderr := command(t, nil, append([]string{"eta", "backtest"}, args...)...); code != 2 || !strings.Contains(stderr, args[0]) {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
}
