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
	"github.com/anteroom/anteroom/internal/short"
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
	for name, o := range map[string]options{
		// With this seed Redis is stopped once for more than 5 s.
		"one Redis": {store: "redis", duration: 11 * time.Second, seed: 20, rate: 30, burst: 15, maxActive: 90},
		// With this one a master is killed and another is stopped.
		"sentinels": {store: "sentinels", duration: 24 * time.Second, seed: 20, rate: 8, burst: 6, maxActive: 40},
	} {
		t.Run(name, func(t *testing.T) {
			if o.store == "sentinels" {
				short.Skip(t, "fails over for half a minute")
			}
			o.gateway, o.gateways, o.drain, o.visitors = program, 4, 20*time.Second, 250
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
			if r.Admitted == 0 || r.Kills == 0 || o.store == "redis" && (r.Long == 0 || r.Short == 0) || o.store == "sentinels" && r.Failed < 2 {
				t.Errorf("nothing was tried: %+v", r)
			}
		})
	}
}
