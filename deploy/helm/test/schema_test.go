package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
)

// override returns the values of an example, with others on top.
func override(t *testing.T, name, text string) map[string]any {
	t.Helper()
	i := slices.IndexFunc(examples(t), func(e example) bool { return e.name == name })
	if i < 0 {
		t.Fatalf("there is no example %s", name)
	}
	return chartutil.CoalesceTables(parseValues(t, text), examples(t)[i].values)
}

// TestSchemaRefuses checks that rendering fails for a misspelt name, a value of another type, and a secret in a ConfigMap.
// The error names the value.
func TestSchemaRefuses(t *testing.T) {
	for _, row := range []struct{ values, place string }{
		// Misspelt, at each depth.
		{`gatway: {enabled: true}`, "gatway"},
		{`gateway: {replica: 3}`, "replica"},
		{`gateway: {replicaCount: 3}`, "replicaCount"},
		{`gateway: {autoscaling: {maxReplica: 3}}`, "maxReplica"},
		{`gateway: {service: {typ: LoadBalancer}}`, "typ"},
		{`gateway: {ingress: {hosts: [{host: a.example, path: /}]}}`, "path"},
		{`gateway: {ingress: {tls: [{secret: a}]}}`, "secret"},
		{`gateway: {tolerations: [{keys: a}]}`, "keys"},
		{`gateway: {resources: {limit: {memory: 1Gi}}}`, "limit"},
		{`gateway: {resources: {limits: {mem: 1Gi}}}`, "mem"},
		{`gateway: {affinity: {podAntiAfinity: {}}}`, "podAntiAfinity"},
		{`gateway: {tokenKeys: [{kid: k1, secret: {name: a, key: b}}]}`, "kid"},
		{`gateway: {tokenKeys: [{id: k1, secret: {secretName: a, key: b}}]}`, "secretName"},
		{`gateway: {tokenKeys: [{id: k1}]}`, "secret"},
		{`gateway: {adminTokens: [{name: a, rol: read, secret: {name: a, key: b}}]}`, "rol"},
		{`gateway: {secretFiles: [{file: a, secret: {name: a, key: b}}]}`, "file"},
		{`gateway: {spread: {zone: ScheduleAnyway}}`, "zone"},
		{`bulkworker: {admintoken: {name: a}}`, "admintoken"},
		{`bulkworker: {apiTokens: [{name: a, tenants: [b], secret: {name: a, key: b}, maxWeight: 2}]}`, "maxWeight"},
		{`bulkworker: {apiTokens: [{name: a, tenants: [b], secret: {name: a, key: b}, max_priority: highest}]}`, "max_priority"},
		{`bulkworker: {apiTokens: [{name: a, tenants: [b], secret: {name: a, key: b}, max_groups: -1}]}`, "max_groups"},
		{`store: {URL: "redis://a"}`, "URL"},
		{`store: {tls: {secretName: a}}`, "secretName"},
		{`valkey: {persistent: {size: 1Gi}}`, "persistent"},
		{`networkPolicy: {origins: [{from: []}]}`, "from"},
		{`gateway: {check: {grpcs: true}}`, "grpcs"},
		{`gateway: {check: {targetRefs: [{kind: HTTPRoute, names: a}]}}`, "names"},
		{`gateway: {route: {parentRefs: [{gateway: a}]}}`, "gateway"},
		{`gateway: {route: {backend: {service: a}}}`, "service"},
		{`networkPolicy: {visitors: [{namespace: a}]}`, "namespace"},
		{`networkPolicy: {dns: [{ipBlock: {cird: 10.0.0.0/8}}]}`, "cird"},
		{`metrics: {serviceMonitors: {enabled: true}}`, "serviceMonitors"},
		{`image: {tags: v1}`, "tags"},
		// In the programs' configuration.
		{`gateway: {config: {room: []}}`, "room"},
		{`gateway: {config: {rooms: [{id: a, admision: {rate: 1}}]}}`, "admision"},
		{`gateway: {config: {rooms: [{id: a, admission: {rates: 1}}]}}`, "rates"},
		{`gateway: {config: {rooms: [{id: a, page: {titel: x}}]}}`, "titel"},
		{`gateway: {config: {origins: [{id: a, server: "http://a"}]}}`, "server"},
		{`gateway: {config: {limits: {headrs: 1}}}`, "headrs"},
		{`bulkworker: {config: {rate: {globl: 1}}}`, "globl"},
		{`bulkworker: {config: {processors: {webhook: {uri: "http://a"}}}}`, "uri"},
		// Of another type, or out of range.
		{`gateway: {replicas: "3"}`, "replicas"},
		{`gateway: {replicas: 2.5}`, "replicas"},
		{`gateway: {enabled: "yes"}`, "enabled"},
		{`gateway: {podAnnotations: {a: 1}}`, "podAnnotations"},
		{`gateway: {service: {type: ExternalName}}`, "type"},
		{`gateway: {service: {port: 70000}}`, "port"},
		{`gateway: {check: {integration: envoy}}`, "integration"},
		{`gateway: {check: {dialect: apisix}}`, "dialect"},
		{`gateway: {check: {trusted: [10.0.0.1]}}`, "trusted"},
		{`gateway: {check: {timeout: 0s}}`, "timeout"},
		{`gateway: {check: {targetRefs: [{kind: Ingress, name: a}]}}`, "kind"},
		{`gateway: {route: {requestTimeout: 1 minute}}`, "requestTimeout"},
		{`gateway: {route: {hostnames: ["https://a.example"]}}`, "hostnames"},
		{`gateway: {maxSurge: 0}`, "maxSurge"},
		{`gateway: {maxSurge: "0%"}`, "maxSurge"},
		{`gateway: {resources: {limits: {memory: 1GB}}}`, "memory"},
		{`gateway: {resources: {limits: {memory: 0.5Gi}}}`, "memory"},
		{`gateway: {spread: {zones: sometimes}}`, "zones"},
		{`gateway: {config: {rooms: {id: a}}}`, "rooms"},
		{`gateway: {config: {rooms: [{id: a, admission: {rate: "10"}}]}}`, "rate"},
		{`gateway: {config: {rooms: [{id: a, admission: {rate: -1}}]}}`, "rate"},
		{`gateway: {config: {rooms: [{id: a, admission: {rate: 0.0001}}]}}`, "rate"},
		{`gateway: {config: {rooms: [{id: a, admission: {max_active: 1.5}}]}}`, "max_active"},
		{`gateway: {config: {rooms: [{id: a, admission: {strategy: leaky}}]}}`, "strategy"},
		{`gateway: {config: {rooms: [{id: a, queue: {absence: 600}}]}}`, "absence"},
		{`gateway: {config: {rooms: [{id: a, queue: {absence: 10 minutes}}]}}`, "absence"},
		{`gateway: {config: {limits: {header: 16kb}}}`, "header"},
		{`gateway: {config: {trusted_proxies: [10.0.0.1]}}`, "trusted_proxies"},
		{`gateway: {config: {trusted_proxies: 10.0.0.0/8}}`, "trusted_proxies"},
		{`gateway: {config: {on_store_error: ignore}}`, "on_store_error"},
		{`bulkworker: {config: {worker: {count: "5"}}}`, "count"},
		{`store: {url: "http://redis"}`, "url"},
		{`image: {digest: "sha256:abc"}`, "digest"},
		{`gateway: {tls: {secret: "Shop_TLS"}}`, "secret"},
		{`gateway: {adminTokens: [{name: "../a", secret: {name: a, key: b}}]}`, "name"},
		{`gateway: {secretFiles: [{path: "../keys/k1", secret: {name: a, key: b}}]}`, "path"},
		// Settings of the chart.
		{`gateway: {podLabels: {app.kubernetes.io/name: a}}`, "app.kubernetes.io/name"},
		{`gateway: {config: {listen: ":80"}}`, "listen"},
		{`gateway: {config: {admin: {listen: ":9091"}}}`, "admin"},
		{`gateway: {config: {shutdown_timeout: 10s}}`, "shutdown_timeout"},
		{`gateway: {config: {tls: {cert_file: a}}}`, "cert_file"},
		{`gateway: {config: {store: {dir: /data}}}`, "dir"},
		{`bulkworker: {config: {listen: ":80"}}`, "listen"},
		{`bulkworker: {config: {worker: {shutdown_grace: 10s}}}`, "shutdown_grace"},
		// Secrets in a ConfigMap.
		{`gateway: {config: {store: {url: "redis://:a@b"}}}`, "url"},
		{`gateway: {config: {tokens: {keys: [{id: a, secret: b}]}}}`, "keys"},
		{`gateway: {config: {admin: {token: a}}}`, "admin"},
		{`gateway: {config: {rooms: [{id: a, admission: {prometheus: {url: "http://a:b@c"}}}]}}`, "url"},
		{`bulkworker: {config: {admin: {token: a}}}`, "admin"},
		{`bulkworker: {config: {api_tokens: []}}`, "api_tokens"},
		{`bulkworker: {config: {processors: {email: {smtp: "smtp://a:b@c"}}}}`, "smtp"},
		{`bulkworker: {config: {processors: {webhook: {url: "https://a:b@c/"}}}}`, "url"},
		{`bulkworker: {config: {processors: {webhook: {headers: {Authorization: Bearer x}}}}}`, "Authorization"},
		{`bulkworker: {config: {processors: {webhook: {headers: {x-api-key: x}}}}}`, "x-api-key"},
	} {
		t.Run(row.values, func(t *testing.T) {
			t.Parallel()
			_, err := tryRender(t, override(t, "redis", row.values))
			if err == nil || !strings.Contains(err.Error(), "don't meet the specifications") || !strings.Contains(err.Error(), row.place) {
				t.Errorf("%v; want a refusal by the schema that names %s", err, row.place)
			}
		})
	}
}

// TestSchemaIsClosed checks that every object of the schema refuses unknown names, except maps with free names.
func TestSchemaIsClosed(t *testing.T) {
	open := []string{"/properties/global"} // Helm's own; the chart does not use it
	for _, kind := range []string{"nodeAffinity", "podAffinity", "podAntiAffinity"} {
		open = append(open, "/$defs/affinity/properties/"+kind) // Kubernetes checks them
	}
	var schema map[string]any
	if err := json.Unmarshal(loadChart(t).Schema, &schema); err != nil {
		t.Fatal(err)
	}
	objects := 0
	var walk func(at string, node any)
	walk = func(at string, node any) {
		switch node := node.(type) {
		case map[string]any:
			if node["type"] == "object" {
				objects++
				if _, closed := node["additionalProperties"]; !closed && !slices.Contains(open, at) {
					t.Errorf("%s takes any name", at)
				}
			}
			for _, key := range slices.Sorted(maps.Keys(node)) {
				walk(at+"/"+key, node[key])
			}
		case []any:
			for _, item := range node {
				walk(at+"/-", item)
			}
		}
	}
	walk("", schema)
	if objects < 60 {
		t.Errorf("only %d objects were checked", objects)
	}
}

// TestNull checks that each value set to null is accepted, or refused by name, and breaks no template.
func TestNull(t *testing.T) {
	var walk func(tree map[string]any, wrap func(any) map[string]any)
	walk = func(tree map[string]any, wrap func(any) map[string]any) {
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			here := func(value any) map[string]any { return wrap(map[string]any{key: value}) }
			_, err := tryRender(t, chartutil.CoalesceTables(here(nil), override(t, "cluster", "")))
			if err != nil && !strings.Contains(err.Error(), "don't meet the specifications") && !strings.Contains(err.Error(), "problems with the values") {
				t.Errorf("%s: null: %v", key, err)
			}
			if below, ok := tree[key].(map[string]any); ok {
				walk(below, here)
			}
		}
	}
	walk(loadChart(t).Values, func(value any) map[string]any { return value.(map[string]any) })
}
