package chart

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayapi "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const (
	visitors = releaseName + "-anteroom-gateway"
	checks   = releaseName + "-anteroom-gateway-checks"
)

// checkSettings is the section check of a rendered configuration.
type checkSettings struct {
	Listen, GRPC, Dialect string
	Trusted               []string
	Deny                  int
}

func settingsOfChecks(t *testing.T, r *release) checkSettings {
	t.Helper()
	var config struct{ Check checkSettings }
	if err := yaml.Unmarshal([]byte(configMap(t, r, "gateway.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	return config.Check
}

// renewed is a room for proxies that send no renewed pass to visitors.
const renewed = `config: {rooms: [{id: sale, session: {renew: server}}]}`

// TestIntegrations renders each integration: which object asks the check, what the HTTPRoute of the site has, and in which dialect the
// gateway reads checks.
func TestIntegrations(t *testing.T) {
	const site = releaseName + "-anteroom-site"
	for _, row := range []struct{ integration, protocol, dialect, object, filter string }{
		{"envoyGateway", "", "", "SecurityPolicy " + checks + " for HTTPRoute " + site, ""},
		{"envoyGateway", "HTTP", "gateway-api", "SecurityPolicy " + checks + " for HTTPRoute " + site, ""},
		{"traefik", "", "traefik", "Middleware " + checks, "ExtensionRef traefik.io Middleware " + checks},
		{"gatewayAPI", "", "gateway-api", "", "ExternalAuth HTTP " + checks + ":8099"},
		{"gatewayAPI", "GRPC", "", "", "ExternalAuth GRPC " + checks + ":8099"},
		{"nginxGatewayFabric", "", "nginx", "SnippetsFilter " + checks, "ExtensionRef gateway.nginx.org SnippetsFilter " + checks},
	} {
		t.Run(row.integration+row.protocol, func(t *testing.T) {
			t.Parallel()
			r := render(t, override(t, "check", `gateway: {check: {port: 8099, integration: `+row.integration+`, protocol: "`+row.protocol+`"}, `+renewed+`}`))
			listen, grpc := ":8081", ""
			if row.dialect == "" {
				listen, grpc = grpc, listen
			}
			if got := settingsOfChecks(t, r); got.Dialect != row.dialect || got.Listen != listen || got.GRPC != grpc || !slices.Equal(got.Trusted, []string{"10.4.0.0/16"}) {
				t.Errorf("check is %+v; want the dialect %q", got, row.dialect)
			}
			if got := objectThatAsks(t, r); got != row.object {
				t.Errorf("%q asks the check; want %q", got, row.object)
			}
			if got := routesOf(t, r); got[site] != "/ "+row.filter+" -> shop:8080" || got[visitors] != "/.waiting-room  -> "+visitors+":80" || len(got) != 2 {
				t.Errorf("HTTPRoutes %q; want the filter %q", got, row.filter)
			}
			checkAddresses(t, r, 8099, grpc != "")
		})
	}
}

// objectThatAsks returns the kind, name and targets of the integration's own object.
func objectThatAsks(t *testing.T, r *release) string {
	t.Helper()
	var all []string
	for _, u := range of[*unstructured.Unstructured](r) {
		text := u.GetKind() + " " + u.GetName()
		targets, _, err := unstructured.NestedSlice(u.Object, "spec", "targetRefs")
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			ref := target.(map[string]any)
			text += fmt.Sprintf(" for %s %s", ref["kind"], ref["name"])
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// routesOf returns path, filter and backend of each HTTPRoute.
func routesOf(t *testing.T, r *release) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, route := range of[*gatewayapi.HTTPRoute](r) {
		rule := route.Spec.Rules[0]
		filter := ""
		for _, f := range rule.Filters {
			switch {
			case f.ExtensionRef != nil:
				filter = fmt.Sprintf("%s %s %s %s", f.Type, f.ExtensionRef.Group, f.ExtensionRef.Kind, f.ExtensionRef.Name)
			case f.ExternalAuth != nil:
				filter = fmt.Sprintf("%s %s %s:%d", f.Type, f.ExternalAuth.ExternalAuthProtocol, f.ExternalAuth.BackendRef.Name, *f.ExternalAuth.BackendRef.Port)
			}
		}
		if len(route.Spec.Rules) != 1 || len(rule.Matches) != 1 || len(rule.BackendRefs) != 1 || len(route.Spec.ParentRefs) == 0 {
			t.Fatalf("HTTPRoute %s: %+v", route.Name, route.Spec)
		}
		backend := rule.BackendRefs[0]
		all[route.Name] = fmt.Sprintf("%s %s -> %s:%d", *rule.Matches[0].Path.Value, filter, backend.Name, *backend.Port)
	}
	return all
}

// checkAddresses checks that every address of the check in a rendered object is that of a Service with the port.
func checkAddresses(t *testing.T, r *release, port int32, grpc bool) {
	t.Helper()
	if !slices.ContainsFunc(of[*core.Service](r), func(s *core.Service) bool {
		return s.Name == checks && len(s.Spec.Ports) == 1 && s.Spec.Ports[0].Port == port && s.Spec.Ports[0].TargetPort.StrVal == "check" &&
			(s.Spec.Ports[0].AppProtocol != nil && *s.Spec.Ports[0].AppProtocol == "kubernetes.io/h2c") == grpc
	}) {
		t.Fatalf("there is no Service %s with the port %d", checks, port)
	}
	host := fmt.Sprintf("%s.%s.svc:%d", checks, namespace, port)
	for _, u := range of[*unstructured.Unstructured](r) {
		switch u.GetKind() {
		case "Middleware":
			address, _, _ := unstructured.NestedString(u.Object, "spec", "forwardAuth", "address")
			if to, err := url.Parse(address); err != nil || to.Host != host || to.Path != "/.waiting-room/check" {
				t.Errorf("Traefik asks %s; want %s", address, host)
			}
		case "SnippetsFilter":
			if !strings.Contains(snippets(t, r)["http"], "server "+host+";") {
				t.Errorf("nginx does not ask %s:\n%s", host, snippets(t, r)["http"])
			}
		case "SecurityPolicy":
			refs, _, _ := unstructured.NestedSlice(u.Object, "spec", "extAuth", map[bool]string{true: "grpc", false: "http"}[grpc], "backendRefs")
			if len(refs) != 1 || refs[0].(map[string]any)["name"] != checks || refs[0].(map[string]any)["port"] != int64(port) {
				t.Errorf("Envoy asks %v; want %s:%d", refs, checks, port)
			}
		}
	}
}

// TestIntegrations_SendWhatTheCheckReads checks the lists of header fields of the proxies that send no others.
func TestIntegrations_SendWhatTheCheckReads(t *testing.T) {
	want := []string{
		"cookie", "accept", "accept-language", "user-agent", "sec-fetch-dest", "sec-purpose", "upgrade", "access-control-request-method",
		"x-forwarded-for", "x-forwarded-proto", "x-waiting-room-pass", "x-waiting-room-token", "x-waiting-room-permit", "x-http-method-override", "x-probe",
	}
	for _, integration := range []string{"envoyGateway", "gatewayAPI"} {
		r := render(t, override(t, "check", `gateway: {check: {headers: [X-Probe], protocol: HTTP, integration: `+integration+`}, `+renewed+`}`))
		var sent []string
		for _, u := range of[*unstructured.Unstructured](r) {
			sent, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "extAuth", "headersToExtAuth")
		}
		for _, route := range of[*gatewayapi.HTTPRoute](r) {
			for _, f := range route.Spec.Rules[0].Filters {
				sent = f.ExternalAuth.HTTPAuthConfig.AllowedRequestHeaders
			}
		}
		for _, header := range want {
			if !slices.Contains(sent, header) {
				t.Errorf("%s does not send %s", integration, header)
			}
		}
	}
}

// TestTraefik_CarriesTheCookiesOfAllRooms checks that a pass reaches the visitor, over TLS and without.
func TestTraefik_CarriesTheCookiesOfAllRooms(t *testing.T) {
	r := render(t, override(t, "check", `gateway: {check: {integration: traefik}, config: {rooms: [{id: sale}, {id: tickets}]}}`))
	got, _, _ := unstructured.NestedStringSlice(of[*unstructured.Unstructured](r)[0].Object, "spec", "forwardAuth", "addAuthCookiesToResponse")
	if want := []string{"__Host-wr_sale_pass", "wr_sale_pass", "__Host-wr_tickets_pass", "wr_tickets_pass"}; !slices.Equal(got, want) {
		t.Errorf("cookies %q; want %q", got, want)
	}
}

// TestChecksBesideOwnRoutes renders checks for a site that has its routes already: the chart only routes /.waiting-room/.
func TestChecksBesideOwnRoutes(t *testing.T) {
	r := render(t, override(t, "check", `gateway: {route: {backend: {name: ""}}, check: {targetRefs: [{kind: HTTPRoute, name: shop}]}}`))
	if got := routesOf(t, r); len(got) != 1 || got[visitors] != "/.waiting-room  -> "+visitors+":80" {
		t.Errorf("HTTPRoutes %q", got)
	}
	if got := objectThatAsks(t, r); got != "SecurityPolicy "+checks+" for HTTPRoute shop" {
		t.Error(got)
	}
}

// TestRouteWithoutChecks renders an HTTPRoute for gateways that forward the requests themselves, as an Ingress does.
func TestRouteWithoutChecks(t *testing.T) {
	r := render(t, override(t, "sentinel", `gateway: {ingress: {enabled: false}, route: {enabled: true, parentRefs: [{name: edge}], requestTimeout: ""}}`))
	if got := routesOf(t, r); len(got) != 1 || got[visitors] != "/  -> "+visitors+":80" {
		t.Errorf("HTTPRoutes %q", got)
	}
	if timeouts := of[*gatewayapi.HTTPRoute](r)[0].Spec.Rules[0].Timeouts; timeouts != nil {
		t.Errorf("timeouts %v", timeouts)
	}
	if got := settingsOfChecks(t, r); got.Listen != "" {
		t.Errorf("checks are answered: %+v", got)
	}
}

// TestCheckDeny_AgreesWithTheProgram compares which statuses the chart and the program accept in each dialect.
func TestCheckDeny_AgreesWithTheProgram(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"nginx", "traefik", "caddy", "envoy", "gateway-api", "haproxy", "GRPC"} {
		how := "dialect: " + dialect
		if dialect == "GRPC" {
			how = "protocol: GRPC"
		}
		own := `gateway: {` + renewed + `, route: {backend: {name: ""}}, check: {integration: "", ` + how + `, deny: `
		r := render(t, override(t, "check", own+`401}}`))
		m := mount(t, r, programs(r)[0])
		for _, deny := range []int{301, 302, 303, 307, 308, 400, 401, 403, 404, 429, 499, 500, 502, 503, 504, 599} {
			_, byChart := tryRender(t, override(t, "check", own+strconv.Itoa(deny)+`}}`))
			config := strings.Replace(m.here(configMap(t, r, "gateway.yaml")), "deny: 401", "deny: "+strconv.Itoa(deny), 1)
			file := filepath.Join(m.dir, "deny.yaml")
			write(t, file, config)
			out, byProgram := m.command(t, "check-config", "--config", file).CombinedOutput()
			if (byChart == nil) != (byProgram == nil) {
				t.Errorf("%s, deny %d: the chart: %v; the program: %v\n%s", dialect, deny, byChart, byProgram, out)
			}
			if byChart != nil && !strings.Contains(byChart.Error(), fmt.Sprintf("gateway.check.deny is %d", deny)) {
				t.Errorf("%s, deny %d: %v", dialect, deny, byChart)
			}
		}
	}
}

// TestChecksAreForProxies checks which peers a network policy admits to each port of the gateway.
func TestChecksAreForProxies(t *testing.T) {
	r := render(t, override(t, "check", `
networkPolicy:
  visitors: [{podSelector: {matchLabels: {who: visitors}}}]
  monitoring: [{podSelector: {matchLabels: {who: monitoring}}}]
  proxies: [{podSelector: {matchLabels: {who: proxies}}}]
`))
	got := make(map[int32]string)
	for _, rule := range of[*networking.NetworkPolicy](r)[0].Spec.Ingress {
		got[rule.Ports[0].Port.IntVal] += rule.From[0].PodSelector.MatchLabels["who"]
	}
	if want := map[int32]string{8080: "visitors", 9090: "monitoring", 8081: "proxies"}; !maps.Equal(got, want) {
		t.Errorf("the policy admits %v; want %v", got, want)
	}
}
