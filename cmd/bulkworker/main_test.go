package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/sqltest"
)

// The program is this test binary under another name, for scripts and for tests that start it.
func TestMain(m *testing.M) {
	testscript.Main(sqltest.Servers{M: m}, map[string]func(){"bulkworker": main})
}

func TestCommands_Alone(t *testing.T) {
	good := redistest.Server(t)
	gone := redistest.Server(t)
	gone.Kill()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("STORE", good.URL())
			env.Setenv("GONE_STORE", gone.URL())
			return nil
		},
	})
}
