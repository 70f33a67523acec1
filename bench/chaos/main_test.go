package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
)

// The gateways are built with the race detector.
func TestRun_KeepsPromisesDuringFaults(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gateway")
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", program, "./cmd/gateway")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=1") // the race detector is in C
	// make test has compiled the packages with these.
	if flags, set := os.LookupEnv("RACE_GOFLAGS"); set {
		build.Env = append(build.Env, "GOFLAGS="+flags)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// With this seed Redis is stopped once for more than 5 s.
	o := options{gateway: program, gateways: 4, duration: 11 * time.Second, drain: 20 * time.Second, seed: 20, visitors: 250, rate: 30, burst: 15, maxActive: 90}
	var r report
	if err := rig.Do(t.Context(), io.Discard, func(in *rig.Run) { r = run(in, o) }); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.print(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	if len(r.Broken) > 0 {
		t.Errorf("not kept: %q", r.Broken)
	}
	if r.Admitted == 0 || r.Kills == 0 || r.Long == 0 || r.Short == 0 {
		t.Errorf("nothing was tried: %+v", r)
	}
}
