package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/snippet"
)

// snippetOf runs gateway snippet with a configuration.
func snippetOf(t *testing.T, config string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, faults bytes.Buffer
	code = cli.Run(newRoot(nil), append([]string{"snippet", "--config", file}, args...), &out, &faults)
	return code, out.String(), faults.String()
}

// TestSnippet_IsWhatTheDocsShow runs the command of each page of docs/integrations with the configuration of the page.
func TestSnippet_IsWhatTheDocsShow(t *testing.T) {
	page := regexp.MustCompile("(?s)```yaml\n(.*?)```\n\nThe proxy, printed by `gateway snippet ([^`]*)`:\n\n```[a-z]+\n(.*?)```")
	for _, proxy := range snippet.Proxies() {
		t.Run(proxy, func(t *testing.T) {
			text, err := os.ReadFile("../../docs/integrations/" + proxy + ".md")
			if err != nil {
				t.Fatal(err)
			}
			m := page.FindStringSubmatch(string(text))
			if m == nil {
				t.Fatal("the page shows no configuration with its command")
			}
			args := strings.Fields(strings.Replace(m[2], " --config gateway.yaml", "", 1))
			if args[0] != proxy {
				t.Errorf("the page shows the command for %s", args[0])
			}
			code, got, faults := snippetOf(t, m[1], args...)
			if code != 0 || got != m[3] {
				t.Errorf("exit code %d, stderr %q, stdout:\n%s\nthe page has:\n%s", code, faults, got, m[3])
			}
			if proxy != "nginx" && proxy != "haproxy" && proxy != "caddy" {
				isYAML(t, got)
			}
			lines := 0
			changed, _, _ := strings.Cut(got, "# Your site:")
			changed, _, _ = strings.Cut(changed, "location / {") // which a site has
			for line := range strings.Lines(changed) {
				if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
					lines++
				}
			}
			if lines > 15 {
				t.Errorf("%d lines, want 15 or fewer", lines)
			}
		})
	}
}

// isYAML fails unless a text is a sequence of YAML documents.
func isYAML(t *testing.T, text string) {
	t.Helper()
	documents := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document any
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
}

func TestSnippet_NamesSettingsThatDoNotFit(t *testing.T) {
	const room = "rooms: [{id: sale, hosts: [shop.example]}]\n"
	check := func(dialect string) string {
		return "listen: :8080\ncheck: {listen: \":8085\", trusted: [127.0.0.1/32], dialect: " + dialect + "}\n" + room
	}
	for name, row := range map[string]struct {
		config, args, want string
	}{
		"another dialect":     {check("caddy"), "nginx", `check.dialect: "caddy" does not describe requests as nginx does; set it to nginx`},
		"no checks":           {room + "origins: [{id: shop, servers: [\"http://127.0.0.1:9000\"]}]\n", "nginx", "check.listen: is empty"},
		"a proxy not trusted": {strings.Replace(check("nginx"), "127.0.0.1/32", "10.0.0.0/8", 1), "nginx", "trusted_proxies: lacks 10.0.0.0/8 of check.trusted"},
		"another header":      {check("nginx") + "trusted_header: X-Real-IP\n", "nginx", "trusted_header: \"X-Real-IP\""},
		"deny without a page": {strings.Replace(check("haproxy"), "dialect", "deny: 503, dialect", 1), "haproxy", "check.deny: 503"},
		"PROXY protocol":      {check("nginx") + "proxy_protocol: v2\n", "nginx", "proxy_protocol: \"v2\""},
		"a random port":       {strings.Replace(check("nginx"), ":8085", "127.0.0.1:0", 1), "nginx", `check.listen: "127.0.0.1:0" does not name the port`},
		"an unknown room":     {check("nginx"), "nginx --room other", `--room: no room has the id "other"`},
		"an unknown proxy":    {check("nginx"), "apache", `there is no configuration for "apache"; use one of nginx, traefik`},
		"no open mode":        {check("traefik"), "traefik --open", "--open: Traefik's forwardAuth refuses"},
		"no Lua":              {check("nginx"), "nginx --lua", "--lua: nginx loads no Lua file"},
		"an address":          {check("nginx"), "nginx --check 10.0.0.5", `--check: "10.0.0.5" is not an address`},
		"an address in code":  {check("nginx"), "nginx --check 10.0.0.5;:80", `--check: "10.0.0.5;:80" is not an address`},
		"an origin":           {check("nginx"), "nginx --origin https://shop", `--origin: "https://shop" is not an address such as http://host:port`},
		"verify elsewhere":    {check("nginx"), "nginx --verify /p.pem", "--verify: only haproxy can verify"},
		"verify without keys": {check("haproxy"), "haproxy --verify /p.pem", "tokens.keys: the active key is not of alg ES256"},
		"verify, no origin":   {check("haproxy"), "haproxy --verify /p.pem", "origins: is empty"},
		"verify and open":     {check("haproxy"), "haproxy --verify /p.pem --open", "--verify: sends no checks"},
		"verify bound":        {check("haproxy") + "tokens: {bind: ua}\n", "haproxy --verify /p.pem", `tokens.bind: "ua"`},
		"verify, a path":      {check("haproxy"), "haproxy --verify /p(1).pem", "--verify: \"/p(1).pem\" is not the path"},
		"two addresses":       {check("traefik"), "traefik --check 10.0.0.5:80 --check 10.0.0.6:80", "--check: traefik takes one address"},
	} {
		code, out, faults := snippetOf(t, row.config, strings.Fields(row.args)...)
		if code != 2 || out != "" || !strings.Contains(faults, row.want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q", name, code, out, faults, row.want)
		}
	}
}

func TestSnippet_PrintsHostsAndCookiesOfRooms(t *testing.T) {
	const config = `listen: "0.0.0.0:8080"
check: {listen: "[::]:8085", trusted: [127.0.0.1/32], dialect: traefik, grpc: "10.0.0.5:8091"}
rooms: [{id: sale, hosts: [shop.example, "*.shop.example"]}, {id: beta, hosts: [beta.example]}]
`
	for args, want := range map[string][]string{
		"traefik": {"Host(`shop.example`) || HostRegexp(`^.+\\\\.shop\\\\.example$`) || Host(`beta.example`)",
			"[__Host-wr_sale_pass, wr_sale_pass, __Host-wr_beta_pass, wr_beta_pass]", "http://127.0.0.1:8085/.waiting-room/check", "http://127.0.0.1:8080"},
		"envoy":                               {"grpc_service: {envoy_grpc: {cluster_name: room_check}", "room_check (10.0.0.5:8091)"},
		"envoy-gateway --check anteroom:8091": {"grpc: {backendRefs: [{name: anteroom, port: 8091}]}"},
		"traefik --room beta":                 {"rule: \"Host(`beta.example`)\"", "[__Host-wr_beta_pass, wr_beta_pass]"},
		"traefik --visitors 10.0.0.5:80":      {"{url: \"http://10.0.0.5:80\"}"},
		"traefik --origin http://[::1]:9000":  {"{url: \"http://[::1]:9000\"}"},
	} {
		code, out, faults := snippetOf(t, config, strings.Fields(args)...)
		for _, text := range want {
			if code != 0 || !strings.Contains(out, text) {
				t.Errorf("%s lacks %s: %d %s\n%s", args, text, code, faults, out)
			}
			isYAML(t, out)
		}
	}
}

// TestSnippet_ListsFieldsOfChecks checks the proxies that send only listed fields with a check: a field that the gateway reads and that is not
// listed would be lost without an error.
func TestSnippet_ListsFieldsOfChecks(t *testing.T) {
	const config = "listen: :8080\ntrusted_proxies: [10.0.0.0/8]\ncheck: {listen: \":8085\", trusted: [10.0.0.0/8], dialect: gateway-api}\nrooms: [{id: sale, hosts: [shop.example], session: {renew: server}}]\n"
	for _, proxy := range []string{"envoy-gateway", "gateway-api"} {
		_, out, faults := snippetOf(t, config, proxy)
		fields := strings.FieldsFunc(out, func(c rune) bool { return strings.ContainsRune(" ,[]", c) })
		for _, field := range []string{
			"cookie", "accept", "accept-language", "user-agent", "origin", "upgrade", "sec-fetch-dest", "sec-fetch-mode", "sec-purpose", "access-control-request-method",
			"x-forwarded-for", "x-forwarded-proto", "x-waiting-room-pass", "x-waiting-room-token", "x-waiting-room-permit",
			"x-http-method-override", "x-http-method", "x-method-override",
		} {
			if !slices.Contains(fields, field) {
				t.Errorf("%s does not send %s: %s%s", proxy, field, out, faults)
			}
		}
	}
}

// TestSnippet_VerifiesPassesOfOneRoom checks which rooms --verify refuses, because HAProxy cannot apply their rules to requests with a pass.
func TestSnippet_VerifiesPassesOfOneRoom(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key.pem")
	var out, faults bytes.Buffer
	if code := cli.Run(newRoot(nil), []string{"keys", "generate", "--alg", "ES256"}, &out, &faults); code != 0 {
		t.Fatal(faults.String())
	}
	if err := os.WriteFile(key, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	config := func(rooms string) string {
		return "listen: :8080\norigins: [{id: site, servers: [\"http://127.0.0.1:9000\"]}]\ntokens: {keys: [{id: k1, alg: ES256, private_key_file: " + key + "}]}\nrooms: [" + rooms + "]\n"
	}
	for rooms, want := range map[string]string{
		"{id: sale, hosts: [shop.example]}":                                                    "",
		"{id: sale, hosts: [shop.example]}, {id: beta, hosts: [beta.example]}":                 "",
		"{id: sale, hosts: [shop.example]}, {id: beta, hosts: [shop.example], paths: [/beta]}": "rooms: beta has the host shop.example",
		"{id: sale, hosts: [shop.example]}, {id: beta, hosts: [\"*.example\"]}":                "rooms: beta has the host *.example",
		"{id: sale, hosts: [shop.example], session: {renew: server}}":                          "session.renew: server",
		"{id: sale, hosts: [shop.example], guard: {requests_per_session: 100/10s}}":            "guard.requests_per_session",
		"{id: sale, hosts: [shop.example], permits: [{paths: [/pay], methods: [POST]}]}":       "has permits",
		"{id: other, hosts: [other.example]}":                                                  `--room: no room has the id "sale"`,
	} {
		code, out, faults := snippetOf(t, config(rooms), "haproxy", "--room", "sale", "--verify", "/etc/haproxy/pass.pem")
		if want == "" && (code != 0 || !strings.Contains(out, `jwt_verify("ES256","/etc/haproxy/pass.pem")`)) || want != "" && (code != 2 || !strings.Contains(faults, want)) {
			t.Errorf("%s: exit code %d, %s%s, want %q", rooms, code, out, faults, want)
		}
	}
}
