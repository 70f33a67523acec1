package chart

import (
	"strings"
	"testing"
)

// TestRefusals renders values that the schema accepts and that cannot work together. Each error names the value and the way out.
func TestRefusals(t *testing.T) {
	for _, row := range []struct{ name, example, values, want string }{
		{"several gateways without a key", "redis", `gateway: {tokenKeys: []}`,
			"gateway.tokenKeys is empty, and 3 gateways must sign with the same key"},
		{"gateways that scale without a key", "sentinel", `gateway: {tokenKeys: []}`,
			"gateway.tokenKeys is empty, and gateways that scale must sign with the same key"},
		{"several gateways with a generated key", "trial", `gateway: {replicas: 2}`,
			"kubectl create secret generic anteroom-keys"},
		{"one gateway without a key", "trial", `generateSecrets: false`, "or for a trial set generateSecrets=true"},
		{"no active key", "sentinel", `gateway: {tokenKeys: [{id: a, secret: {name: a, key: a}}, {id: b, secret: {name: a, key: b}}]}`,
			"gateway.tokenKeys: 0 of 2 keys are active; use exactly one"},
		{"two active keys", "sentinel", `gateway: {tokenKeys: [{id: a, active: true, secret: {name: a, key: a}}, {id: b, active: true, secret: {name: a, key: b}}]}`,
			"gateway.tokenKeys: 2 of 2 keys are active"},
		{"two keys of one id", "sentinel", `gateway: {tokenKeys: [{id: a, active: true, secret: {name: a, key: a}}, {id: a, secret: {name: a, key: b}}]}`,
			`gateway.tokenKeys: the id "a" appears twice`},
		{"two operators of one name", "redis", `gateway: {adminTokens: [{name: a, secret: {name: a, key: a}}, {name: a, secret: {name: a, key: b}}]}`,
			`gateway.adminTokens: the name "a" appears twice`},
		{"two files of one path", "bulkworker", `bulkworker: {secretFiles: [{path: a, secret: {name: a, key: a}}, {path: a, secret: {name: a, key: b}}]}`,
			`bulkworker.secretFiles: the path "a" appears twice`},
		{"no operator", "redis", `gateway: {adminTokens: []}`, "gateway.adminTokens is empty"},
		{"no store", "redis", `store: {url: ""}`, "store.url is empty"},
		{"two stores", "redis", `valkey: {enabled: true}`, "more than one is set"},
		{"a password in the URL", "redis", `store: {url: "redis://:secret@redis:6379"}`, "store.url holds credentials"},
		{"a sentinel's password in the URL", "sentinel", `store: {url: "redis-sentinel://a/m?sentinel_password=x"}`, "store.url holds credentials"},
		{"a user without a password", "redis", `store: {passwordSecret: {name: ""}}`, `store.username is "anteroom" without a password`},
		{"a sentinel's password for a cluster", "cluster", `store: {sentinelPasswordSecret: {name: a}}`, "store.url is not redis-sentinel://"},
		{"a client certificate without a Secret", "cluster", `store: {tls: {secret: ""}}`, "store.tls.secret is empty"},
		{"authorities beside a whole URL", "bulkworker", `store: {tls: {secret: a}}`, "store.tls is not used with store.urlSecret"},
		{"Valkey without a password", "trial", `generateSecrets: false`, "valkey.passwordSecret.name is empty"},
		{"Valkey without a limit", "trial", `valkey: {resources: {limits: {memory: null}}}`, "valkey.resources.limits.memory is missing"},
		{"no origin", "redis", `gateway: {config: {origins: []}}`, "gateway.config.origins is empty"},
		{"nothing at all", "redis", `gateway: {enabled: false}`, "there is nothing to install"},
		{"an external traffic policy for ClusterIP", "sentinel", `gateway: {service: {externalTrafficPolicy: Local}}`,
			`gateway.service.externalTrafficPolicy is "Local"`},
		{"ranges without a load balancer", "sentinel", `gateway: {service: {loadBalancerSourceRanges: [10.0.0.0/8]}}`, "the ranges would not be enforced"},
		{"a second store URL", "redis", `gateway: {secretSettings: [{setting: store.url, secret: {name: a, key: b}}]}`, "gateway.secretSettings: store.url is set by the chart; use store.urlSecret"},
		{"a second operator", "cluster", `bulkworker: {secretSettings: [{setting: admin.token, secret: {name: a, key: b}}]}`, "use bulkworker.adminToken"},
		{"one setting twice", "redis", `gateway: {secretSettings: [{setting: log.level, secret: {name: a, key: b}}, {setting: log.level, secret: {name: a, key: c}}]}`,
			`gateway.secretSettings: the setting "log.level" appears twice`},
		{"an Ingress without trusted proxies", "sentinel", `gateway: {config: {trusted_proxies: null}}`, "gateway.config.trusted_proxies is not set"},
		{"an Ingress without hosts", "sentinel", `gateway: {ingress: {hosts: []}}`, "gateway.ingress.hosts is empty"},
		{"an Ingress without a path for polls", "sentinel", `gateway: {ingress: {hosts: [{host: a.example, paths: [/sale]}]}}`, "add /.waiting-room"},
		{"maxReplicas below minReplicas", "sentinel", `gateway: {autoscaling: {maxReplicas: 1}}`, "gateway.autoscaling.minReplicas is 3, more than maxReplicas (1)"},
		{"maxReplicas of the bulk worker below minReplicas", "bulkworker", `bulkworker: {autoscaling: {maxReplicas: 1}}`, "bulkworker.autoscaling.minReplicas is 2"},
		{"a bulk worker without a token", "bulkworker", `bulkworker: {adminToken: {name: ""}}`, "bulkworker.adminToken.name is empty"},
		{"a network policy without origins", "sentinel", `networkPolicy: {origins: []}`, "networkPolicy.origins is empty"},
		{"checks of nobody", "check", `gateway: {check: {trusted: []}}`, "gateway.check.trusted is empty"},
		{"checks of everybody", "check", `gateway: {check: {trusted: ["10.0.0.0/8", "::/0"]}}`, "gateway.check.trusted: ::/0 is every address"},
		{"checks in the configuration", "redis", `gateway: {config: {check: {listen: ":8081"}}}`, "gateway.config.check is set by the chart; remove it, and use gateway.check"},
		{"checks in a Secret", "redis", `gateway: {secretSettings: [{setting: check.trusted, secret: {name: a, key: b}}]}`, "check.trusted is set by the chart; use gateway.check"},
		{"another dialect than the integration's", "check", `gateway: {check: {dialect: envoy}}`, `gateway.check.dialect is "envoy", which has an effect only over HTTP and without an integration; remove it`},
		{"a dialect over gRPC", "check", `gateway: {check: {integration: "", protocol: GRPC, dialect: envoy}}`, `gateway.check.dialect is "envoy", which has an effect only over HTTP`},
		{"gRPC for a proxy that has none", "check", `gateway: {check: {integration: traefik, protocol: GRPC}}`, "gateway.check.protocol is GRPC, and traefik asks over HTTP only"},
		{"a refusal that is none", "check", `gateway: {check: {deny: 301}}`, "gateway.check.deny is 301, which is not the status of a refusal"},
		{"checks without a dialect", "check", `gateway: {check: {integration: ""}}`, "gateway.check.integration and gateway.check.dialect are both empty"},
		{"a status that nginx does not send", "check", `gateway: {check: {integration: nginxGatewayFabric, deny: 429}}`, "gateway.check.deny is 429, which nginx does not send to visitors; set 401 or 403"},
		{"a status that Envoy does not send", "check", `gateway: {check: {protocol: HTTP, deny: 503}}`, "set 302, 303, 307 or 400 to 499"},
		{"passes whose renewal is lost", "check", `gateway: {check: {protocol: HTTP}, config: {rooms: [{id: a, session: {renew: server}}, {id: b}]}}`, "session.renew of b is true, but over HTTP envoyGateway sends no renewed pass"},
		{"an integration without checks", "redis", `gateway: {check: {integration: traefik}}`, "gateway.check.integration is traefik, and gateway.check.enabled is false"},
		{"a proxy that cannot fail open", "check", `gateway: {check: {integration: traefik, failOpen: true}}`, "gateway.check.failOpen has an effect with gateway.check.integration=envoyGateway only"},
		{"headers for a proxy that sends all", "check", `gateway: {check: {integration: traefik, headers: [X-Kind]}}`, "gateway.check.headers has an effect with"},
		{"headers over gRPC", "check", `gateway: {check: {headers: [X-Kind]}}`, "gateway.check.headers has an effect with"},
		{"targets of a filter", "check", `gateway: {check: {integration: traefik, targetRefs: [{kind: HTTPRoute, name: a}]}}`, "gateway.check.targetRefs has an effect with"},
		{"a policy for nothing", "check", `gateway: {route: {backend: {name: ""}}}`, "gateway.check.targetRefs is empty, so nothing would be checked"},
		{"a filter without a route", "check", `gateway: {check: {integration: gatewayAPI}, route: {backend: {name: ""}}}`, "whose filter is part of the HTTPRoute"},
		{"a route around the check", "check", `gateway: {check: {integration: "", dialect: envoy}}`, `gateway.route.backend.name is "shop", and nothing would ask the check`},
		{"Traefik without rooms", "check", `gateway: {check: {integration: traefik}, config: {rooms: []}}`, "gateway.config.rooms is empty, but Traefik"},
		{"an Ingress to gateways without an origin", "check", `gateway: {ingress: {enabled: true, hosts: [{host: a.example}]}}`, "the path / of a.example leads to gateways without an origin"},
		{"a network policy without the proxies", "check", `networkPolicy: {proxies: []}`, "networkPolicy.proxies is empty"},
		{"a network policy without the origins beside checks", "check", `gateway: {config: {origins: [{id: a, servers: ["http://a"]}]}}`, "networkPolicy.origins is empty"},
		{"a backend without checks", "redis", `gateway: {tls: {secret: ""}, config: {trusted_proxies: []}, route: {enabled: true, parentRefs: [{name: a}], backend: {name: shop}}}`,
			"the gateways forward to gateway.config.origins; remove gateway.route.backend"},
		{"a backend without a route", "sentinel", `gateway: {route: {backend: {name: shop}}}`, `gateway.route.backend.name is "shop", and`},
		{"a route without a Gateway", "check", `gateway: {route: {parentRefs: []}}`, "gateway.route.parentRefs is empty"},
		{"a route to TLS", "check", `gateway: {tls: {secret: cert}}`, "gateway.tls.secret is set, and a Gateway sends plain HTTP"},
		{"a route without trusted proxies", "check", `gateway: {config: {trusted_proxies: null}}`, "gateway.route.enabled is true: all visitors would have the Gateway's address"},
		{"a network policy without the store", "sentinel", `networkPolicy: {store: []}`, "networkPolicy.store is empty"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := tryRender(t, override(t, row.example, row.values))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v; want %s", err, row.want)
			}
		})
	}
}

// TestAllRefusalsAtOnce checks that one error lists everything that is missing.
func TestAllRefusalsAtOnce(t *testing.T) {
	_, err := tryRender(t, map[string]any{})
	for _, want := range []string{"4 problems with the values", "store.url", "gateway.config.origins", "gateway.tokenKeys", "gateway.adminTokens"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s", err, want)
		}
	}
}

// TestReleaseNames renders release names that helm accepts and that are not valid names of a Service.
func TestReleaseNames(t *testing.T) {
	for _, name := range []string{"2nd-sale", "sale.eu"} {
		_, err := renderAs(t, name, override(t, "redis", ""))
		if err == nil || !strings.Contains(err.Error(), "fullnameOverride is empty, and the release makes it") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := renderAs(t, name, override(t, "redis", `fullnameOverride: sale`)); err != nil {
			t.Errorf("%s with a fullnameOverride: %v", name, err)
		}
	}
}
