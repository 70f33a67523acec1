package main

import (
	"net/http"
	"net/http/httptest"
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
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" || r.Header.Get("webhook-signature") == "" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("no"))
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("thanks"))
	}))
	t.Cleanup(receiver.Close)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("RECEIVER", receiver.URL)
			env.Setenv("STORE", good.URL())
			env.Setenv("EVICTING_STORE", evicting.URL())
			env.Setenv("GONE_STORE", gone.URL())
			return nil
		},
	})
}
