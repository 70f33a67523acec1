package main

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/token"
)

// If every room names its hosts and there is no default_origin, the gateway refuses other hosts. So a missing default_origin must stay
// empty.
func TestOptions_KeepAMissingDefaultOrigin(t *testing.T) {
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

// Without tokens.keys the tokens are signed with the key of the embedded store.
func TestKeys_OfTheEmbeddedStore(t *testing.T) {
	s := &store{keyID: "own", keyText: []byte("0pX2vRk7Q9-mZt4LwYb8NcUe1HsJdAfG")}
	sign := func(keys ...config.Key) string {
		t.Helper()
		ring, _, _, err := s.keys(&config.Config{Tokens: config.Tokens{Issuer: "anteroom", Keys: keys}})
		if err != nil {
			t.Fatal(err)
		}
		return string(ring.AppendPass(nil, &token.Pass{Room: "sale"}))
	}
	configured := config.Key{ID: "own", Alg: "HS256", Secret: string(s.keyText), Active: true}
	if got, want := sign(), sign(configured); got != want {
		t.Errorf("%s, and of the same key, configured, %s", got, want)
	}
}

// Ids of accounts' places are derived with the active key, wherever it is in the list; the other keys find earlier places. Ids that do
// not outlive a change of keys use the first key.
func TestKeys_OfAccountsBeginWithTheActiveOne(t *testing.T) {
	keys := func(list ...config.Key) (first string, accounts []string) {
		t.Helper()
		_, id, all, err := (&store{}).keys(&config.Config{Tokens: config.Tokens{Issuer: "anteroom", Keys: list}})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range all {
			accounts = append(accounts, string(k))
		}
		return string(id), accounts
	}
	k1 := config.Key{ID: "k1", Alg: "HS256", Secret: "0pX2vRk7Q9-mZt4LwYb8NcUe1HsJdAfG"}
	k2 := config.Key{ID: "k2", Alg: "HS256", Secret: "Kx8vTq2Lw9-ZpR4mYb7NcUe1HsJdAfG0"}
	old, _ := keys(k1)
	next, _ := keys(k2)
	first, accounts := keys(k1, config.Key{ID: k2.ID, Alg: k2.Alg, Secret: k2.Secret, Active: true})
	if first != old || !slices.Equal(accounts, []string{next, old}) {
		t.Error("the second is active, and does not come first")
	}
	if first, accounts = keys(config.Key{ID: k1.ID, Alg: k1.Alg, Secret: k1.Secret, Active: true}, k2); first != old || !slices.Equal(accounts, []string{old, next}) {
		t.Error("the first is active, and does not come first")
	}
}

// docs/config.md names every setting that keepFixed can name.
func TestKeepFixed_IsInTheDocs(t *testing.T) {
	var old, next config.Config
	next.Listen, next.Check.Listen, next.Check.GRPC, next.Admin.Listen = "1", "2", "3", "4"
	next.Admin.TwoPerson = []string{"reset"}
	next.Admin.OIDC.Issuer, next.Admin.OIDC.ClientID, next.Admin.OIDC.RedirectURL = "5", "6", "7"
	next.Store.URL, next.Limits.Header, next.ShutdownTimeout = "8", 9, 10
	next.Log.Level, next.Log.Format = "debug", "text"
	names := keepFixed(&old, &next)
	if len(names) != 13 {
		t.Fatalf("%q", names)
	}
	data, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		setting, rest, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(rest, "on a restart") {
			continue
		}
		for _, name := range names {
			if field, ok := strings.CutPrefix(name, "admin.oidc."); ok {
				name = field
			}
			if !strings.Contains(setting, "`"+name+"`") {
				t.Errorf("docs/config.md does not list %s among the settings that need a restart", name)
			}
		}
		return
	}
	t.Error("docs/config.md has no row of settings that need a restart")
}

func TestKeepFixed_KeepsWhatNeedsARestart(t *testing.T) {
	old, next := &config.Config{Listen: ":8080"}, &config.Config{Listen: ":8081"}
	next.Store.Prefix = "other"
	next.Log.Access = true // changes at once
	if got := keepFixed(old, next); !slices.Equal(got, []string{"listen", "store"}) {
		t.Fatalf("%q", got)
	}
	next = &config.Config{Listen: ":8080", TLS: config.TLS{CertFile: "cert.pem", KeyFile: "key.pem"}, DefaultOrigin: "shop"}
	if got := keepFixed(old, next); !slices.Equal(got, []string{"tls"}) || next.TLS != old.TLS || next.DefaultOrigin != "shop" {
		t.Fatalf("TLS is turned on: %q, %+v", got, next)
	}
	old.Check = config.Check{Listen: "127.0.0.1:1", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Deny: 403}
	next.Check = config.Check{}
	if got := keepFixed(old, next); !slices.Equal(got, []string{"check.listen"}) || next.Check.Deny != 403 || len(next.Check.Trusted) != 1 {
		t.Errorf("without the check section: %v, %+v", got, next.Check)
	}
	next.Check = config.Check{Listen: "127.0.0.1:1", Deny: 401}
	if got := keepFixed(old, next); got != nil || next.Check.Deny != 401 {
		t.Errorf("with another status: %v, %+v", got, next.Check)
	}
	if got := keepFixed(old, old); got != nil {
		t.Fatalf("%q", got)
	}
}
