package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/anteroom/anteroom/internal/config"
)

// Where every room names its hosts and there is no default_origin, other hosts are refused: the gateway has to know that
// none was given.
func TestNoDefaultOriginStaysNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	text := `
tokens: {keys: [{id: k1, alg: HS256, secret: "0pX2vRk7Q9-mZt4LwYb8NcUe1HsJdAfG"}]}
origins: [{id: shop, servers: ["http://127.0.0.1:9"]}]
rooms: [{id: sale, hosts: ["shop.example"]}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	o, err := gatewayOptions(cfg, &store{}, nil, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if o.DefaultOrigin != "" || o.Rooms[0].Origin != "shop" {
		t.Errorf("default_origin %q, the room's %q", o.DefaultOrigin, o.Rooms[0].Origin)
	}
}

func TestNeedRestart(t *testing.T) {
	old, next := &config.Config{Listen: ":8080"}, &config.Config{Listen: ":8081"}
	next.Store.Prefix = "other"
	next.Log.Access = true // changes at once
	if got := needRestart(old, next); !slices.Equal(got, []string{"listen", "store"}) {
		t.Fatalf("%q", got)
	}
	if got := needRestart(old, old); got != nil {
		t.Fatalf("%q", got)
	}
}
