package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/internal/config/configtest"
	"github.com/anteroom/anteroom/internal/short"
)

// tools/eta-train makes a model that the gateway takes, and that foresees waits better than the mean of what it learnt from.
func TestTraining_MakesAModelBetterThanTheMean(t *testing.T) {
	short.Skip(t, "needs scikit-learn, which make test installs")
	python, err := exec.Command("../../tools/need.sh", "--python").Output()
	if err != nil || len(bytes.TrimSpace(python)) == 0 {
		t.Fatalf("no Python has scikit-learn (%v); run tools/need.sh python3-sklearn", err)
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	// Window's waits come true in the morning, and take twice as long in the afternoon.
	example := func() (x eta.Example, off float64) {
		x[0], x[1] = math.Log(10+300*rng.Float64()), 24*rng.Float64()
		if x[1] > 12 {
			off = math.Ln2
		}
		return x, off + 0.05*rng.NormFloat64()
	}
	var lines bytes.Buffer
	mean := 0.0
	const examples = 1500
	for range examples {
		x, off := example()
		mean += off / examples
		line, err := json.Marshal(map[string]any{"x": x, "window_seconds": 100, "real_seconds": 100 * math.Exp(off)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s\n", line)
	}
	file := filepath.Join(dir, "model.json")
	train := exec.Command(strings.TrimSpace(string(python)), "../../tools/eta-train/train.py", "-", "--trees", "30", "--out", file)
	train.Stdin = &lines
	if out, err := train.CombinedOutput(); err != nil || !strings.Contains(string(out), "1500 examples") {
		t.Fatalf("%v\n%s", err, out)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	model, err := eta.ReadModel(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	byModel, byMean := 0.0, 0.0
	for range 500 {
		x, off := example()
		byModel += math.Abs(model.Predict(x) - off)
		byMean += math.Abs(mean - off)
	}
	if byModel > 0.3*byMean {
		t.Errorf("the model is wrong by %.3f, the mean by %.3f", byModel/500, byMean/500)
	}

	settings := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(settings, []byte("origins: [{id: shop, servers: [\"http://127.0.0.1:9\"]}]\nrooms: [{id: sale, eta: {estimator: model, model_file: "+file+"}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, out := newRoot(nil), &configtest.Output{}
	root.SetArgs([]string{"check-config", "--config", settings})
	root.SetOut(out)
	root.SetErr(out)
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasSuffix(out.String(), "ok\n") {
		t.Errorf("check-config: %v\n%s", err, out)
	}
}
