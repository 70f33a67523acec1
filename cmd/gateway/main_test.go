package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gateway": main})
}

func TestCommands_FollowTheScripts(t *testing.T) {
	good := redistest.Server(t)
	evicting := redistest.Server(t, "--maxmemory-policy", "allkeys-lru")
	gone := redistest.Server(t)
	gone.Kill()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("STORE", good.URL())
			env.Setenv("EVICTING_STORE", evicting.URL())
			env.Setenv("GONE_STORE", gone.URL())
			return nil
		},
	})
}
