package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A few seconds of what make chaos does for a minute, with gateways that look for data races.
func TestChaos(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gateway")
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", program, "./cmd/gateway")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// This seed has a long silence of Redis within these seconds.
	o := options{gateway: program, gateways: 4, duration: 11 * time.Second, drain: 20 * time.Second, seed: 20, visitors: 250, rate: 30, burst: 15, maxActive: 90}
	r, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.print(&text, false); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	if len(r.Broken) > 0 {
		t.Errorf("not kept: %q", r.Broken)
	}
	if r.In == 0 || r.Kills == 0 || r.Long == 0 || r.Short == 0 {
		t.Errorf("nothing was tried: %+v", r)
	}
}
