package config

import (
	"crypto/ed25519"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/settings"
)

// full uses every kind of setting away from its default.
const full = `
listen: "127.0.0.1:0"
trusted_proxies: []
limits: {header: 32KiB, target: 4096, headers: 50, idle: 90s}
default_origin: api
log: {access: false, access_sample: 0.25, format: text}
store: {prefix: "12"}
origins:
  - {id: shop, servers: ["http://127.0.0.1:9000", "http://127.0.0.1:9001"], max_body: 8MiB, preserve_host: false}
  - {id: api, servers: ["https://api.example"]}
rooms:
  - id: sale
    hosts: ["*.shop.example", "::1"]
    paths: [/sale, "~^/t/[0-9]+$"]
    admission: {rate: 0.125, burst: 1.5, max_active: 7, min_wait: 1h30m}
    session: {ttl: 2m, renew: false}
    bypass: [{methods: [GET], ips: [10.0.0.0/8, "fd00::/8"], headers: {X-Key: "true", X-Other: ""}}]
    page: {message: "yes: \"quoted\" # and\nmore", title: "123", languages: [ko, "no"]}
  - {id: "007", origin: shop, paths: [/vip], enabled: false}
`

func TestYAML_LoadsAgain(t *testing.T) {
	first, problems := loadText(t, full)
	wantProblems(t, problems)
	text, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	second, problems := loadText(t, string(text))
	wantProblems(t, problems)
	if !reflect.DeepEqual(normal(first), normal(second)) {
		t.Errorf("got another configuration back:\n%s", text)
	}
}

// normal makes absent and empty lists the same.
func normal(c *Config) []string {
	var values []string
	settings.Visit(c, func(path string, s Setting, v reflect.Value) {
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		values = append(values, path+"="+fmt.Sprint(v.Interface()))
	})
	return values
}

func TestYAML_MasksSecrets(t *testing.T) {
	const secret = "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU"
	for _, row := range []struct{ name, url, want string }{
		{"none", "redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"},
		{"password", "redis://ann:hunter2@127.0.0.1:6379/0", "redis://ann:***@127.0.0.1:6379/0"},
		{"password alone", "rediss://:hunter2@h", "rediss://:***@h"},
		{"sentinels", "redis-sentinel://ann:hunter2@h1:26379,h2:26379/m?sentinel_password=hunter2&tls=1",
			"redis-sentinel://ann:***@h1:26379,h2:26379/m?sentinel_password=***&tls=1"},
		{"escaped", "redis://ann:hunter2%40@h", "redis://ann:***@h"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg, problems := loadText(t, shop+"admin: {token: hunter2-and-longer}\nstore: {url: '"+row.url+"'}\ntokens: {keys: [{id: k, secret: "+secret+"}]}\n")
			wantProblems(t, problems)
			text, err := cfg.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), secret) {
				t.Errorf("a secret is printed:\n%s", text)
			}
			if !strings.Contains(string(text), "url: "+row.want+"\n") {
				t.Errorf("want url: %s in\n%s", row.want, text)
			}

			// A mask is never taken for a secret.
			_, problems = loadText(t, string(text))
			want := []string{"admin.token: is the mask that print-config writes", "tokens.keys[0].secret: is the mask that print-config writes"}
			if strings.Contains(row.url, "hunter2") {
				want = append(want, "store.url: holds the mask that print-config writes")
			}
			wantProblems(t, problems, want...)
		})
	}
}

func TestSigningKeys_AndBearersAreReadFromFiles(t *testing.T) {
	dir := files(t)
	cfg, problems := loadText(t, shop+strings.ReplaceAll(`
admin: {token: first-token-0123456789, tokens: [{name: ann, token_file: DIR/secret}, {name: bob, token_file: DIR/short, role: read}]}
tokens:
  keys:
    - {id: old, secret_file: DIR/secret}
    - {id: new, alg: EdDSA, private_key_file: DIR/ed25519.pem, active: true}
rooms: [{id: sale, page: {template_file: DIR/page.html}}]
`, "DIR", dir))
	wantProblems(t, problems)
	keys, err := cfg.SigningKeys()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || string(keys[0].Secret) != "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU" || keys[0].Active || len(keys[1].Key.(ed25519.PrivateKey)) != 64 || !keys[1].Active {
		t.Errorf("keys: %+v", keys)
	}
	bearers, err := cfg.Bearers()
	if err != nil {
		t.Fatal(err)
	}
	want := []Bearer{{"admin", "first-token-0123456789", "admin", nil}, {"ann", "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU", "admin", nil}, {"bob", "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1Ae", "viewer", nil}}
	if !reflect.DeepEqual(bearers, want) {
		t.Errorf("bearers: %+v", bearers)
	}
	wantFiles := []string{dir + "/secret", dir + "/short", dir + "/secret", dir + "/ed25519.pem", dir + "/page.html"}
	if got := cfg.Files(); !slices.Equal(got, wantFiles) {
		t.Errorf("files: %v", got)
	}

	cfg.Tokens.Keys = cfg.Tokens.Keys[:1]
	if keys, err := cfg.SigningKeys(); err != nil || !keys[0].Active {
		t.Errorf("a single key signs: %+v, %v", keys, err)
	}
	cfg.Tokens.Keys[0].SecretFile = dir + "/none"
	if _, err := cfg.SigningKeys(); err == nil || !strings.Contains(err.Error(), "tokens.keys[0].secret_file") {
		t.Errorf("a file that has gone: %v", err)
	}
	cfg.Admin.Tokens[1].TokenFile = dir + "/empty"
	if _, err := cfg.Bearers(); err == nil || !strings.Contains(err.Error(), "admin.tokens[1].token_file") {
		t.Errorf("a token that has gone: %v", err)
	}
}

// Every setting is described, and its tags fit together.
func TestSettings_AreDescribedAndTheirTagsFit(t *testing.T) {
	for _, row := range []struct {
		program  string
		settings []Setting
		live     []string
	}{
		{"gateway", Settings(), []string{"rooms[].enabled", "rooms[].admission.rate", "rooms[].admission.burst", "rooms[].admission.max_active",
			"rooms[].queue.method", "rooms[].queue.on_sold_out", "rooms[].session.ttl", "rooms[].page.message"}},
		{"bulkworker", BulkSettings(), []string{"rate.global", "rate.per_tenant"}},
	} {
		paths := make(map[string]bool)
		var live []string
		for _, s := range row.settings {
			if s.Name == "" || s.Name != strings.ToLower(s.Name) || strings.ContainsAny(s.Name, "-.[]") || strings.Contains(s.Name, "__") {
				t.Errorf("%s: no name for a setting", s.Path)
			}
			if !strings.HasSuffix(s.Doc, ".") {
				t.Errorf("%s: %q is not a sentence", s.Path, s.Doc)
			}
			if paths[s.Path] {
				t.Errorf("%s: twice", s.Path)
			}
			paths[s.Path] = true
			if len(s.Enum) > 0 && !slices.Contains(s.Enum, s.Default) {
				t.Errorf("%s: the default %q is none of %v", s.Path, s.Default, s.Enum)
			}
			if s.Live {
				live = append(live, s.Path)
			}
		}
		if !slices.Equal(live, row.live) {
			t.Errorf("live settings of %s: %v, want %v", row.program, live, row.live)
		}
	}
}
