package config

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// files returns a directory with what settings may name; DIR in a row stands for it.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	putPEM := func(name, kind string, der []byte, err error) {
		if err != nil {
			t.Fatal(err)
		}
		put(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for _, name := range []string{"tls", "other"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		putPEM(name+".crt", "CERTIFICATE", der, err)
		der, err = x509.MarshalPKCS8PrivateKey(key)
		putPEM(name+".key", "PRIVATE KEY", der, err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	putPEM("ed25519.pem", "PRIVATE KEY", der, err)
	for name, curve := range map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		putPEM(name+".pem", "PRIVATE KEY", der, err)
		der, err = x509.MarshalECPrivateKey(key)
		putPEM(name+"-sec1.pem", "EC PRIVATE KEY", der, err)
		parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}})
		put(name+"-openssl.pem", append(parameters, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...))
	}
	putPEM("encrypted.pem", "ENCRYPTED PRIVATE KEY", []byte("secret"), nil)
	put("twice.pem", []byte(strings.Repeat(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), 2)))
	put("secret", []byte("Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU\n"))
	put("short", []byte("Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1Ae\n"))
	put("empty", nil)
	put("fields", []byte("# of the collector\n\nAuthorization: Bearer a:b\r\nx-team:shop\n"))
	put("page.html", []byte("<h1>{{.Title}}</h1>"))
	put("broken.html", []byte("<h1>{{.Title</h1>"))
	return dir
}

const goodKey = `{id: k1, secret: "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU"}`

func TestValidate_ReportsEachProblem(t *testing.T) {
	dir := files(t)
	two := `origins: [{id: shop, servers: ["http://127.0.0.1:9000"]}, {id: api, servers: ["https://api.example:8443"]}]` + "\n"
	room := func(settings string) string { return shop + "rooms: [{id: sale, " + settings + "}]" }
	const captcha = "provider: turnstile, site_key: k, secret_file: DIR/secret"
	origin := func(settings string) string { return "origins: [{id: shop, " + settings + "}]" }
	key := func(settings string) string { return shop + "tokens: {keys: [" + settings + "]}" }
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		{"nothing but an origin", shop, nil},
		{"no origin", "listen: ':8080'", []string{"origins: there is no site to protect"}},

		// Checks of other proxies, which have the origins.
		{"checks over HTTP", "check: {listen: '127.0.0.1:8090', trusted: [10.0.0.0/8]}", nil},
		{"checks over gRPC", "check: {grpc: '127.0.0.1:8091', trusted: [10.0.0.0/8], deny: 503}", nil},
		{"checks over both", "check: {listen: '127.0.0.1:8090', grpc: '127.0.0.1:8091', trusted: [10.0.0.0/8]}", nil},
		{"an address for gRPC without a port", "check: {grpc: localhost, trusted: [10.0.0.0/8]}", []string{"check.grpc: "}},
		{"gRPC without proxies", "check: {grpc: '127.0.0.1:8091'}", []string{"check.trusted: is empty"}},
		{"gRPC for everybody", "check: {grpc: '127.0.0.1:8091', trusted: ['::/0']}", []string{"check.trusted[0]: ::/0 contains every address"}},
		{"proxies without checks", shop + "check: {trusted: [10.0.0.0/8]}", []string{"check.trusted: has no effect without check.listen or check.grpc"}},
		{"a redirect over gRPC", "check: {grpc: '127.0.0.1:8091', trusted: [10.0.0.0/8], deny: 303}", nil},
		{"a redirect over gRPC that caches keep", "check: {grpc: '127.0.0.1:8091', trusted: [10.0.0.0/8], deny: 301}", []string{"check.deny: 301 is not the status of a denial"}},
		{"a status for gRPC that nginx cannot send", "check: {listen: '127.0.0.1:8090', grpc: '127.0.0.1:8091', trusted: [10.0.0.0/8], deny: 503}", []string{"check.deny: 503 does not reach visitors through nginx"}},
		{"an error through Envoy", "check: {listen: '127.0.0.1:8090', dialect: envoy, trusted: [10.0.0.0/8], deny: 503}", []string{"check.deny: 503 does not reach visitors through envoy"}},

		// Addresses.
		{"listen on everything", shop + "listen: ':0'", nil},
		{"listen on IPv6", shop + "listen: '[::1]:8080'", nil},
		{"listen without a port", shop + "listen: '127.0.0.1'", []string{`listen: "127.0.0.1" is not a listen address`}},
		{"listen on a service name", shop + "listen: ':http'", []string{`listen: ":http" is not a listen address`}},
		{"listen beyond the ports", shop + "listen: ':65536'", []string{`listen: ":65536" has no valid port`}},
		{"listen on a path", shop + "listen: 'a/b:80'", []string{`listen: "a/b:80" has no valid host`}},
		{"admin on the same port", shop + "listen: ':9090'", []string{`admin.listen: "127.0.0.1:9090" is the port of listen`}},
		{"admin on the same port elsewhere", shop + "listen: '127.0.0.2:9090'", nil},

		// Operators.
		{"admin open to others", shop + "admin: {listen: ':9090'}", []string{`admin.token: is missing; ":9090" can be reached from other machines`}},
		{"admin open with a token", shop + "admin: {listen: ':9090', token: a-long-enough-token}", nil},
		{"admin open with tokens", shop + "admin: {listen: ':9090', tokens: [{name: ann, token_file: DIR/secret}]}", nil},
		{"admin on localhost", shop + "admin: {listen: 'localhost:9090'}", nil},
		{"admin on ::1", shop + "admin: {listen: '[::1]:9090'}", nil},
		{"admin on loopback's net", shop + "admin: {listen: '127.8.9.1:9090'}", nil},
		{"token with a blank", shop + "admin: {token: 'a b'}", []string{"admin.token: holds characters"}},
		{"token file that is not there", shop + "admin: {tokens: [{token_file: DIR/none}]}", []string{`admin.tokens[0].token_file: "DIR/none" cannot be read: no such file`}},
		{"token file that is a directory", shop + "admin: {tokens: [{token_file: DIR}]}", []string{`admin.tokens[0].token_file: "DIR" is not a regular file`}},
		{"empty token file", shop + "admin: {tokens: [{token_file: DIR/empty}]}", []string{`admin.tokens[0].token_file: "DIR/empty" is empty`}},
		{"tokens without file, of one name, of no role", shop + "admin: {tokens: [{name: a, role: root}, {name: a, token_file: DIR/secret}]}",
			[]string{"admin.tokens[0].token_file: is missing", `admin.tokens[1].name: "a" is there already`, `admin.tokens[0].role: "root" is not known; use viewer, operator, admin, facts, read or write`}},

		// Traces.
		{"a collector", shop + "tracing: {otlp_endpoint: 'https://otlp.example/v1/traces', sample: 1, headers_file: DIR/fields}", nil},
		{"a collector that is no URL", shop + "tracing: {otlp_endpoint: '127.0.0.1:4318'}", []string{`tracing.otlp_endpoint: "127.0.0.1:4318" is not an address`}},
		{"a collector with a password", shop + "tracing: {otlp_endpoint: 'http://ann:hunter2@127.0.0.1:4318'}", []string{"tracing.otlp_endpoint: has credentials before its host"}},
		{"a collector with a query", shop + "tracing: {otlp_endpoint: 'http://127.0.0.1:4318/?a=1'}", []string{`tracing.otlp_endpoint: "http://127.0.0.1:4318/?a=1" has a query`}},
		{"a share above one", shop + "tracing: {sample: 1.5}", []string{"tracing.sample: "}},
		{"header fields that are none", shop + "tracing: {headers_file: DIR/secret}", []string{`tracing.headers_file: "DIR/secret": line 1 is not a header field`}},
		{"header fields that are not there", shop + "tracing: {headers_file: DIR/none}", []string{`tracing.headers_file: "DIR/none" cannot be read`}},

		// TLS.
		{"a pair", shop + "tls: {cert_file: DIR/tls.crt, key_file: DIR/tls.key, client_ca_file: DIR/other.crt}", nil},
		{"certificate alone", shop + "tls: {cert_file: DIR/tls.crt}", []string{"tls.key_file: is missing"}},
		{"key alone", shop + "tls: {key_file: DIR/tls.key}", []string{"tls.cert_file: is missing"}},
		{"not a pair", shop + "tls: {cert_file: DIR/tls.crt, key_file: DIR/other.key}", []string{`tls.cert_file: "DIR/tls.crt" and "DIR/other.key" are not a pair`}},
		{"client authorities without TLS", shop + "tls: {client_ca_file: DIR/tls.crt}", []string{"tls.client_ca_file: needs tls.cert_file"}},
		{"client authorities that are none", shop + "tls: {cert_file: DIR/tls.crt, key_file: DIR/tls.key, client_ca_file: DIR/secret}",
			[]string{`tls.client_ca_file: "DIR/secret" holds no PEM certificate`}},
		{"PROXY protocol", shop + "proxy_protocol: any\ntrusted_proxies: [10.0.0.0/8]", nil},
		{"PROXY protocol from nobody", shop + "proxy_protocol: v2\ntrusted_proxies: []", []string{`proxy_protocol: "v2" is taken from trusted_proxies only, which is empty`}},
		{"PROXY protocol of no version", shop + "proxy_protocol: v3", []string{`proxy_protocol: "v3" is not known; use none, v1, v2 or any`}},
		{"a header of the proxy's own", shop + "trusted_header: CF-Connecting-IP\ntrusted_proxies: [192.0.2.0/24]", nil},
		{"Forwarded", shop + "trusted_header: forwarded", nil},
		{"the usual header from nobody", shop + "trusted_header: X-Forwarded-For\ntrusted_proxies: []", nil},
		{"a header from nobody", shop + "trusted_header: X-Real-IP\ntrusted_proxies: []", []string{`trusted_header: "X-Real-IP" is believed from trusted_proxies only, which is empty`}},
		{"a header that is none", shop + "trusted_header: 'X Real IP'", []string{`trusted_header: "X Real IP" is not a header name`}},
		{"no header", shop + "trusted_header: ''", []string{`trusted_header: "" is not a header name`}},
		{"two headers", shop + "trusted_header: 'X-Forwarded-For, Forwarded'", []string{`trusted_header: "X-Forwarded-For, Forwarded" is not a header name`}},
		{"a header that CGI reads in two ways", shop + "trusted_header: X_Real_IP", []string{`trusted_header: "X_Real_IP" is not a header name`}},
		{"a header that names no address", shop + "trusted_header: X-Forwarded-Proto", []string{`trusted_header: "X-Forwarded-Proto" does not name the visitor's address`}},
		{"a header of the request's own", shop + "trusted_header: Host", []string{`trusted_header: "Host" does not name the visitor's address`}},

		// The store.
		{"redis", shop + "store: {url: 'redis://127.0.0.1:6379/0'}\ntokens: {keys: [" + goodKey + "]}", nil},
		{"sentinels", shop + "store: {url: 'redis-sentinel://u:p@h1:26379,h2/master/0?tls=1'}\ntokens: {keys: [" + goodKey + "]}", nil},
		{"cluster", shop + "store: {url: 'redis-cluster://h1:6379,h2:6379'}\ntokens: {keys: [" + goodKey + "]}", nil},
		{"socket", shop + "store: {url: 'unix:///run/redis.sock?db=1'}\ntokens: {keys: [" + goodKey + "]}", nil},
		{"redis without a key", shop + "store: {url: 'redis://127.0.0.1:6379/0'}", []string{"tokens.keys: is empty; with a store.url every gateway needs the same key, so make one with: gateway keys generate"}},
		{"store of another kind", shop + "store: {url: 'memcached://127.0.0.1'}\ntokens: {keys: [" + goodKey + "]}", []string{"store.url: memcached://127.0.0.1: it has an unknown scheme"}},
		{"store without scheme", shop + "store: {url: '127.0.0.1:6379'}\ntokens: {keys: [" + goodKey + "]}", []string{"store.url: 127.0.0.1:6379: it is not a URL"}},
		{"store without host", shop + "store: {url: 'redis://'}\ntokens: {keys: [" + goodKey + "]}", []string{"store.url: redis://: it names no host"}},
		{"two hosts for one redis", shop + "store: {url: 'redis://h1:1,h2:2'}\ntokens: {keys: [" + goodKey + "]}", []string{"store.url: redis://h1:1,h2:2: it names 2 hosts"}},
		{"password with an @", shop + "store: {url: 'redis://ann:hunter2@x@h:70000'}\ntokens: {keys: [" + goodKey + "]}", []string{"store.url: redis://ann:***@h:70000: it has a bad port"}},
		{"prefix", shop + "store: {prefix: 'a{b}'}", []string{`store.prefix: "a{b}" is not a prefix`}},
		{"timeout", shop + "store: {timeout: 0s}", []string{"store.timeout: 0s is too small; use at least 1ms"}},
		{"no directory", shop + "store: {dir: ''}", []string{"store.dir: is empty"}},

		// Keys.
		{"one key is active by itself", key(goodKey), nil},
		{"secret from a file", key("{id: k, secret_file: DIR/secret}"), nil},
		{"Ed25519", key("{id: k, alg: EdDSA, private_key_file: DIR/ed25519.pem}"), nil},
		{"31 bytes", key("{id: k, secret: Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1Ae}"), []string{"tokens.keys[0].secret: has 31 bytes; use at least 32"}},
		{"31 bytes in a file", key("{id: k, secret_file: DIR/short}"), []string{"tokens.keys[0].secret_file: has 31 bytes"}},
		{"no secret", key("{id: k}"), []string{"tokens.keys[0].secret: is missing; make one with: gateway keys generate"}},
		{"two secrets", key("{id: k, secret: x, secret_file: DIR/secret}"), []string{"tokens.keys[0].secret_file: is given beside secret"}},
		{"secret for EdDSA", key("{id: k, alg: EdDSA, secret: x}"), []string{"tokens.keys[0].secret: belongs to HS256"}},
		{"EdDSA without a file", key("{id: k, alg: EdDSA}"), []string{"tokens.keys[0].private_key_file: is missing; make one with: gateway keys generate --alg EdDSA"}},
		{"private key for HS256", key("{id: k, private_key_file: DIR/ed25519.pem}"), []string{"tokens.keys[0].private_key_file: belongs to ES256 and EdDSA"}},
		{"ES256", key("{id: k, alg: ES256, private_key_file: DIR/p256.pem}"), nil},
		{"ES256, SEC 1", key("{id: k, alg: ES256, private_key_file: DIR/p256-sec1.pem}"), nil},
		{"ES256 as openssl ecparam writes it", key("{id: k, alg: ES256, private_key_file: DIR/p256-openssl.pem}"), nil},
		{"another curve", key("{id: k, alg: ES256, private_key_file: DIR/p384.pem}"), []string{`tokens.keys[0].private_key_file: "DIR/p384.pem" holds a key of the curve P-384; use a PEM block`}},
		{"another curve, SEC 1", key("{id: k, alg: ES256, private_key_file: DIR/p384-sec1.pem}"), []string{`tokens.keys[0].private_key_file: "DIR/p384-sec1.pem" holds a key of the curve P-384`}},
		{"Ed25519 for ES256", key("{id: k, alg: ES256, private_key_file: DIR/ed25519.pem}"), []string{`tokens.keys[0].private_key_file: "DIR/ed25519.pem" holds another kind of key; use a PEM block PRIVATE KEY (PKCS #8) or EC PRIVATE KEY`}},
		{"SEC 1 for EdDSA", key("{id: k, alg: EdDSA, private_key_file: DIR/p256-sec1.pem}"), []string{`tokens.keys[0].private_key_file: "DIR/p256-sec1.pem": use a PEM block PRIVATE KEY (PKCS #8) with an Ed25519 key`}},
		{"an encrypted key", key("{id: k, alg: ES256, private_key_file: DIR/encrypted.pem}"), []string{`tokens.keys[0].private_key_file: "DIR/encrypted.pem" is encrypted; decrypt it with: openssl pkey`}},
		{"two private keys", key("{id: k, alg: EdDSA, private_key_file: DIR/twice.pem}"), []string{`tokens.keys[0].private_key_file: "DIR/twice.pem" holds more than one PEM block`}},
		{"secret for ES256", key("{id: k, alg: ES256, secret: x}"), []string{"tokens.keys[0].secret: belongs to HS256, and alg is ES256"}},
		{"ES256 without a file", key("{id: k, alg: ES256}"), []string{"tokens.keys[0].private_key_file: is missing; make one with: gateway keys generate --alg ES256"}},
		{"another kind of key", key("{id: k, alg: EdDSA, private_key_file: DIR/tls.key}"), []string{`tokens.keys[0].private_key_file: "DIR/tls.key" holds another kind of key`}},
		{"a certificate for a key", key("{id: k, alg: EdDSA, private_key_file: DIR/tls.crt}"), []string{`tokens.keys[0].private_key_file: "DIR/tls.crt": use a PEM block PRIVATE KEY`}},
		{"no active key", key("{id: a, secret_file: DIR/secret}, {id: b, secret_file: DIR/secret}"), []string{"tokens.keys: 0 of 2 keys are active; use exactly one"}},
		{"two active keys", key("{id: a, secret_file: DIR/secret, active: true}, {id: b, secret_file: DIR/secret, active: true}"), []string{"tokens.keys: 2 of 2 keys are active"}},
		{"same key id", key("{id: a, secret_file: DIR/secret, active: true}, {id: a, secret_file: DIR/secret}"), []string{`tokens.keys[1].id: "a" is there already`}},
		{"key id", key("{id: 'a b', secret_file: DIR/secret}"), []string{`tokens.keys[0].id: "a b" is not a key id`}},
		{"algorithm", key("{id: a, alg: none}"), []string{`tokens.keys[0].alg: "none" is not known; use HS256, ES256 or EdDSA`}},

		// Origins.
		{"two servers", origin(`servers: ["http://a:1", "https://[::1]:2", "http://c"]`), nil},
		{"no server", origin("servers: []"), []string{"origins[0].servers: is empty"}},
		{"server without scheme", origin("servers: [a:1]"), []string{`origins[0].servers[0]: "a:1" is not a server`}},
		{"server with a path", origin("servers: ['http://a/b']"), []string{`origins[0].servers[0]: "http://a/b" has a path or query; requests keep their own, so use http://a`}},
		{"server with a password", origin("servers: ['http://u:hunter2@a']"), []string{"origins[0].servers[0]: holds a user name or password"}},
		{"server with port 0", origin("servers: ['http://a:0']"), []string{`origins[0].servers[0]: "http://a:0" has no valid port`}},
		{"server twice", origin("servers: ['http://a', 'http://a']"), []string{`origins[0].servers[1]: "http://a" is there already`}},
		{"authorities", origin("servers: ['https://a'], tls: {ca_file: DIR/secret, server_name: 'a b'}"),
			[]string{`origins[0].tls.ca_file: "DIR/secret" holds no PEM certificate`, `origins[0].tls.server_name: "a b" is not a host name`}},
		{"health", origin("servers: ['http://a'], health: {path: '/healthz?deep=1', interval: 1s}"), nil},
		{"health without a slash", origin("servers: ['http://a'], health: {path: healthz}"), []string{`origins[0].health.path: "healthz" is not a path`}},
		{"health with a blank", origin("servers: ['http://a'], health: {path: '/a b'}"), []string{`origins[0].health.path: "/a b" is not a path`}},
		{"default origin", two + "default_origin: api", nil},
		{"unknown default origin", two + "default_origin: web", []string{`default_origin: "web" is not an origin; use shop or api`}},
		{"same origin id", "origins: [{id: a, servers: ['http://a']}, {id: a, servers: ['http://b']}]", []string{`origins[1].id: "a" is the id of origins[0] already`}},

		// Rooms: ids and origins.
		{"longest id", shop + "rooms: [{id: " + strings.Repeat("a", 63) + "}]", nil},
		{"id beyond that", shop + "rooms: [{id: " + strings.Repeat("a", 64) + "}]", []string{"rooms[0].id: "}},
		{"id with capitals", shop + "rooms: [{id: Sale}]", []string{`rooms[0].id: "Sale" is not an id`}},
		{"id with a dash first", shop + "rooms: [{id: -a}]", []string{`rooms[0].id: "-a" is not an id`}},
		{"no id", shop + "rooms: [{}]", []string{"rooms[0].id: is missing"}},
		{"same id", shop + "rooms: [{id: a, paths: [/a]}, {id: a, paths: [/b]}]", []string{`rooms[1].id: "a" is the id of rooms[0] already; ids are unique`}},
		{"unknown origin", room("origin: web"), []string{`rooms[0].origin: "web" is not an origin; use shop`}},
		{"no origin among several", two + "rooms: [{id: a}]", []string{"rooms[0].origin: is missing, and there are several origins; use shop or api"}},
		{"no origin but a default", two + "default_origin: api\nrooms: [{id: a}]", nil},

		// Rooms: hosts and paths.
		{"hosts", room("hosts: [shop.example, '*.Shop.example', '*', localhost, 127.0.0.1, '::1', '[::1]', xn--bcher-kva.example]"), nil},
		{"no host", room("hosts: []"), []string{"rooms[0].hosts: is empty"}},
		{"star in the middle", room("hosts: ['a.*.example']"), []string{`rooms[0].hosts[0]: "a.*.example": use * alone or as the first label`}},
		{"star within a label", room("hosts: ['*a.example']"), []string{`rooms[0].hosts[0]: "*a.example": use * alone or as the first label`}},
		{"host with a port", room("hosts: ['a.example:80']"), []string{`rooms[0].hosts[0]: "a.example:80": use the host without scheme and port`}},
		{"host as a URL", room("hosts: ['https://a.example']"), []string{`rooms[0].hosts[0]: "https://a.example": use the host without scheme and port`}},
		{"host in its own letters", room("hosts: [bücher.example]"), []string{`rooms[0].hosts[0]: "bücher.example": use the name as browsers send it, in punycode`}},
		{"host with a blank", room("hosts: ['a b']"), []string{`rooms[0].hosts[0]: "a b" is not a host`}},
		{"paths", room("paths: [/, /sale, /Sale/VIP/, '~^/t/[0-9]+$', /tickets/café]"), nil},
		{"no path", room("paths: []"), []string{"rooms[0].paths: is empty"}},
		{"relative path", room("paths: [sale]"), []string{`rooms[0].paths[0]: "sale" is not a path`}},
		{"path with dots", room("paths: [/a/../b]"), []string{`rooms[0].paths[0]: "/a/../b" has empty or dot segments, which no request keeps; use /b`}},
		{"path with empty segments", room("paths: [//a]"), []string{`rooms[0].paths[0]: "//a" has empty or dot segments`}},
		{"escaped path", room("paths: ['/%73ale']"), []string{`rooms[0].paths[0]: "/%73ale": use the decoded path`}},
		{"path with a query", room("paths: ['/a?b']"), []string{`rooms[0].paths[0]: "/a?b": use the decoded path`}},
		{"path as a glob", room("paths: ['/a/*']"), []string{`rooms[0].paths[0]: "/a/*": use the decoded path, without ? # * % ; and backslash; for patterns use ~regex`}},
		{"reserved path", room("paths: [/.Waiting-Room/x]"), []string{`rooms[0].paths[0]: "/.Waiting-Room/x" is reserved`}},
		{"like the reserved path", room("paths: [/.waiting-rooms]"), nil},
		{"broken expression", room("paths: ['~(']"), []string{`rooms[0].paths[0]: "~(" does not compile`}},
		{"empty expression", room("paths: ['~']"), []string{`rooms[0].paths[0]: "~" has no expression`}},
		{"same place", shop + "rooms: [{id: a, paths: [/sale]}, {id: b, paths: [/x, /SALE/]}]", []string{"rooms[1].paths: /SALE/ on host * belongs to rooms[0]"}},
		{"same path on other hosts", shop + "rooms: [{id: a, hosts: [a.example]}, {id: b, hosts: [b.example]}]", nil},
		{"longer path", shop + "rooms: [{id: a, paths: [/]}, {id: b, paths: [/sale]}]", nil},
		{"same path twice in one room", room("paths: [/a, /a/]"), nil},

		// Rooms: policy.
		{"no admission", room("admission: {rate: 0}"), nil},
		{"burst below one", room("admission: {burst: 0.5}"), []string{"rooms[0].admission.burst: 0.5 never admits a whole visitor"}},
		{"burst of nothing", room("admission: {burst: 0}"), []string{"rooms[0].admission.burst: 0 never admits"}},
		{"rate beyond reason", room("admission: {rate: 1000001}"), []string{"rooms[0].admission.rate: 1000001 is too large; use at most 1000000"}},
		{"negative rate", room("admission: {rate: -1}"), []string{"rooms[0].admission.rate: -1: is negative; use 0 or more"}},
		{"a switch for a word", room("guard: {proof_of_work: true}"), []string{"rooms[0].guard.proof_of_work: true: is not known; use none, auto or always"}},
		{"two words for one", shop + "tokens: {bind: [ip, ua]}", []string{"tokens.bind: use a single value: none, ip or ua"}},
		{"least above most", room("admission: {min_rate: 60}"), []string{"rooms[0].admission.min_rate: 60 is more than max_rate (50)"}},
		{"adaptive", room("admission: {strategy: adaptive, shadow: true, prometheus: {url: 'http://ann:hunter2@127.0.0.1:9091', query: min(up)}}"), nil},
		{"adaptive from nothing", room("admission: {strategy: adaptive, min_rate: 0}"), []string{"rooms[0].admission.min_rate: is 0: at a rate of 0 no request shows the origin's health"}},
		{"adaptive from outside", room("admission: {strategy: adaptive, rate: 3}"), []string{"rooms[0].admission.rate: 3, with which an adaptive room begins, is not within min_rate (5) and max_rate (50)"}},
		{"a query of nobody", room("admission: {strategy: adaptive, prometheus: {query: up}}"), []string{"rooms[0].admission.prometheus.url: is empty, and query is not"}},
		{"a server without a query", room("admission: {strategy: adaptive, prometheus: {url: 'http://127.0.0.1:9091'}}"), []string{"rooms[0].admission.prometheus.query: is empty, and url is not"}},
		{"a server that is none", room("admission: {strategy: adaptive, prometheus: {url: 'ann:hunter2@127.0.0.1', query: up}}"), []string{"rooms[0].admission.prometheus.url: is not an address"}},
		{"strategies", room("admission: {strategy: leaky_bucket, min_wait: 5s, head_window: 100}"), nil},
		{"short absence", room("queue: {absence: 2m59s}"), []string{"rooms[0].queue.absence: 2m59s is too small; use at least 3m"}},
		{"shortest absence", room("queue: {absence: 3m}"), nil},
		{"no claim window", room("queue: {claim_window: 0s}"), []string{"rooms[0].queue.claim_window: 0s is too small; use at least 1s"}},
		{"renewal of another kind", room("session: {renew: sometimes}"), []string{`rooms[0].session.renew: "sometimes" is not known; use true, false or server`}},
		{"renewal by number", room("session: {renew: 1}"), []string{`rooms[0].session.renew: 1: is not known; use true, false or server`}},
		{"ttl too short for the gateways", room("session: {ttl: 3s, renew: server}"), []string{"rooms[0].session.ttl: 3s is too small with session.renew: server; use at least 4s"}},
		{"session above its limit", room("session: {ttl: 13h}"), []string{"rooms[0].session.max: 12h is less than session.ttl (13h)"}},
		{"weight", room("weight: 0"), []string{"rooms[0].weight: 0 is too small; use at least 0.001"}},
		{"burst of no budget", "origins: [{id: shop, servers: ['http://127.0.0.1:9000'], budget: {burst: 5}}]", []string{"origins[0].budget.burst: there is no budget without budget.rate"}},
		{"budget that admits nobody", "origins: [{id: shop, servers: ['http://127.0.0.1:9000'], budget: {rate: 5, burst: 0.5}}]", []string{"origins[0].budget.burst: 0.5 never admits a whole visitor"}},
		{"poll budget", room("poll_budget: 0"), []string{"rooms[0].poll_budget: 0 is too small; use at least 1"}},
		{"words", room("on_store_error: maybe, compat: akamai, queue: {method: lifo}"),
			[]string{`rooms[0].on_store_error: "maybe" is not known; use wait, open, closed or local`, `rooms[0].compat: "akamai" is not known`, `rooms[0].queue.method: "lifo" is not known`}},
		{"on_store_error of its own", room("on_store_error: local"), nil},

		// Rooms: bypass, CORS, page.
		{"bypass", room("bypass: [{paths: [/static, '~\\.css$'], methods: [GET], ips: [10.0.0.0/8], user_agents: [Googlebot], headers: {X-Key: v}}]"), nil},
		{"bypass of everything", room("bypass: [{}]"), []string{"rooms[0].bypass[0]: has no condition and would let everyone past"}},
		{"permits", room("permits: [{paths: [/seatmap, '~/buy$'], methods: [POST], forward: true}, {methods: [DELETE]}], guard: {permits_per_session: 5/1s}"), nil},
		{"permits for everything", room("permits: [{}]"), []string{"rooms[0].permits[0]: has no condition, so every request of the room would need a permit; give paths or methods"}},
		{"bad permits", room("permits: [{paths: [x, '~('], methods: [post]}], guard: {permits_per_session: '5'}"), []string{
			`rooms[0].permits[0].paths[0]: "x" is not a path`, `rooms[0].permits[0].paths[1]: "~(`, `rooms[0].permits[0].methods[0]: "post" is not a method`,
			`rooms[0].guard.permits_per_session: "5": use a number, a slash and a time`}},
		{"bad bypass", room("bypass: [{paths: [x], methods: [get], user_agents: [' '], headers: {'a b': c}}]"), []string{
			`rooms[0].bypass[0].paths[0]: "x" is not a path`, `rooms[0].bypass[0].methods[0]: "get" is not a method`,
			"rooms[0].bypass[0].user_agents[0]: is empty", `rooms[0].bypass[0].headers: "a b" is not a header name`}},
		{"CORS", room("cors_origins: ['https://a.example', 'http://127.0.0.1:3000']"), nil},
		{"bad CORS", room("cors_origins: ['*', 'https://a.example/', 'a.example', 'https://A.example', 'https://*.example']"), []string{
			`rooms[0].cors_origins[0]: "*" is not an origin`, `rooms[0].cors_origins[1]: `, `rooms[0].cors_origins[2]: `, `rooms[0].cors_origins[3]: `, `rooms[0].cors_origins[4]: `}},
		{"estimates", room("eta: {estimator: hourly, time_zone: Europe/Berlin, weights: '0=1 12=2', seconds_per_place: 0.25}"), nil},
		{"estimates by nobody", room("eta: {estimator: oracle}"), []string{`rooms[0].eta.estimator: "oracle" is not known`}},
		{"estimates nowhere", room("eta: {estimator: hourly, time_zone: Berlin}"), []string{`rooms[0].eta.time_zone: "Berlin" is not a time zone; use a name such as Europe/Berlin`}},
		{"estimates without a model", room("eta: {estimator: model}"), []string{"rooms[0].eta.model_file: is missing, and estimator is model"}},
		{"estimates of negative time", room("eta: {seconds_per_place: -1, model_max_age: -1s}"), []string{"rooms[0].eta.seconds_per_place: -1 is too small", `rooms[0].eta.model_max_age: "-1s": is negative`}},
		{"page", room("page: {status: 503, template_file: DIR/page.html, languages: [en, ko], message: Hi, frame_ancestors: \"'self' https://a.example\"}"), nil},
		{"redirecting page", room("page: {status: 302}"), []string{"rooms[0].page.status: a response with status 302 cannot carry a page"}},
		{"page without a body", room("page: {status: 204}"), []string{"rooms[0].page.status: a response with status 204 cannot carry a page"}},
		{"page of no status", room("page: {status: 99}"), []string{"rooms[0].page.status: 99 is too small"}},
		{"broken template", room("page: {template_file: DIR/broken.html}"), []string{`rooms[0].page.template_file: "DIR/broken.html" does not parse`}},
		{"no template", room("page: {template_file: DIR/none.html}"), []string{`rooms[0].page.template_file: "DIR/none.html" cannot be read`}},
		{"languages", room("page: {languages: [en, english language, EN]}"), []string{`rooms[0].page.languages[1]: "english language" is not a language tag`, `rooms[0].page.languages[2]: "EN" is there already`}},
		{"long message", room("page: {message: '" + strings.Repeat("é", 1001) + "'}"), []string{"rooms[0].page.message: has 1001 characters; use at most 1000"}},
		{"frames that end the directive", room("page: {frame_ancestors: \"'self'; script-src *\"}"), []string{"rooms[0].page.frame_ancestors: "}},

		{"a status for clients of Cloudflare", room("compat: cloudflare, compat_status: 200"), nil},
		{"a status without those clients", room("compat_status: 200"), []string{"rooms[0].compat_status: 200 is for compat: cloudflare; set compat, or leave compat_status out"}},
		{"a status without a body", room("compat: cloudflare, compat_status: 204"), []string{"rooms[0].compat_status: a response with status 204 cannot carry JSON"}},
		{"a status that redirects", room("compat: cloudflare, compat_status: 302"), []string{"rooms[0].compat_status: a response with status 302 cannot carry JSON"}},
		{"a status of no class", room("compat: cloudflare, compat_status: 100"), []string{"rooms[0].compat_status: a response with status 100 cannot carry JSON"}},
		{"a negative status", room("compat: cloudflare, compat_status: -1"), []string{"rooms[0].compat_status: -1 is too small"}},

		// Accounts, and requests of a session.
		{"one place for whom", room("identity: {one_place: true}"), []string{"rooms[0].identity.one_place: needs an account; give header, or jwt_claim and jwks_url"}},
		{"a claim without keys", room("identity: {jwt_claim: sub}"), []string{`rooms[0].identity.jwks_url: is missing: without keys the claim "sub" cannot be checked`}},
		{"keys without a claim", room("identity: {jwks_url: 'https://a.example/jwks'}"), []string{"rooms[0].identity.jwt_claim: is missing: it names the claim"}},
		{"a cookie without a claim", room("identity: {jwt_cookie: session}"), []string{"rooms[0].identity.jwt_claim: is missing, and jwt_cookie"}},
		{"keys from a file", room("identity: {jwt_claim: sub, jwks_url: /etc/jwks.json}"), []string{"rooms[0].identity.jwks_url: is not an address"}},
		{"an account that is an address", "trusted_header: X-User\n" + room("identity: {one_place: true, header: x-user}"), []string{`rooms[0].identity.header: "x-user" is trusted_header`}},
		{"a header that nobody may set", "trusted_proxies: []\n" + room("identity: {one_place: true, header: X-User}"), []string{"rooms[0].identity.header: is believed from trusted_proxies only, and that is empty"}},
		{"a header of another meaning", room("identity: {header: X-Forwarded-For}"), []string{`rooms[0].identity.header: "X-Forwarded-For" has another meaning`}},
		{"no header", room("identity: {header: 'X User'}"), []string{`rooms[0].identity.header: "X User" is not a header name`}},
		{"a cookie of no name", room("identity: {jwt_claim: sub, jwks_url: 'https://a.example/jwks', jwt_cookie: 'a=b'}"), []string{`rooms[0].identity.jwt_cookie: "a=b" is not a cookie name`}},
		{"a cookie of ours", room("identity: {jwt_claim: sub, jwks_url: 'https://a.example/jwks', jwt_cookie: __Host-wr_sale_pass}"), []string{`rooms[0].identity.jwt_cookie: "__Host-wr_sale_pass" is a cookie of the gateway`}},
		{"an address for an account", room("identity: {header: X-Real-IP}"), []string{`rooms[0].identity.header: "X-Real-IP" has another meaning`}},
		{"a network smaller than its addresses", room("guard: {joins_per_ip: '5/1m,1/1h'}"), []string{`rooms[0].guard.joins_per_ip: "5/1m,1/1h": the limit of a network is smaller than the limit of one address`}},
		{"a network that is slower in the long run", room("guard: {joins_per_ip: '20/1m,500/1h'}"), nil},
		{"a network of a shorter time", room("guard: {joins_per_ip: '100/1h,50/1m'}"), nil},
		{"a login nowhere", room("identity: {login_url: 'javascript:alert(1)'}"), []string{`rooms[0].identity.login_url: "javascript:alert(1)" is not an address`}},
		{"a login on another host", room("identity: {login_url: '//evil.example'}"), []string{`rooms[0].identity.login_url: "//evil.example" is not an address`}},
		{"who is anonymous", room("identity: {anonymous: maybe}"), []string{`rooms[0].identity.anonymous: "maybe" is not known; use refuse or allow`}},
		{"a captcha over named hosts", room("hosts: [shop.example], guard: {captcha: {" + captcha + "}}"), nil},
		{"a captcha over every host", room("guard: {captcha: {" + captcha + "}}"), []string{"rooms[0].guard.captcha.hosts: is missing: the room's hosts are *"}},
		{"a captcha's hosts", room("guard: {captcha: {" + captcha + ", hosts: [shop.example, '*.shop.example']}}"), nil},
		{"a captcha's every host", room("guard: {captcha: {" + captcha + ", hosts: ['*', 'https://shop.example']}}"),
			[]string{`rooms[0].guard.captcha.hosts[0]: "*" accepts a CAPTCHA that was solved on any site`, `rooms[0].guard.captcha.hosts[1]: "https://shop.example": use the host without scheme`}},
		{"hosts of no captcha", room("guard: {captcha: {hosts: [shop.example]}}"), []string{"rooms[0].guard.captcha.provider: is missing"}},
		{"requests of no time", room("guard: {requests_per_session: '100'}"), []string{`rooms[0].guard.requests_per_session: "100": use a number, a slash and a time`}},
		{"too many requests", room("guard: {requests_per_session: 1000000/1s}"), []string{`rooms[0].guard.requests_per_session: "1000000/1s": use a number from 1 to 100000`}},

		// Shares and other bounds.
		{"sample", shop + "log: {access_sample: 1.1}", []string{"log.access_sample: 1.1 is too large; use at most 1"}},
		{"target beyond the header", shop + "limits: {target: 32KiB}", []string{"limits.target: 32KiB is more than limits.header (16KiB)"}},
		{"issuer", shop + "tokens: {issuer: ''}", []string{"tokens.issuer: use 1 to 200 characters"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, problems := loadText(t, strings.ReplaceAll(row.text, "DIR", dir)+"\n")
			for i := range row.want {
				row.want[i] = strings.ReplaceAll(row.want[i], "DIR", dir)
			}
			wantProblems(t, problems, row.want...)
			for _, line := range problems {
				if strings.Contains(line, "hunter2") || strings.Contains(line, "Zk3vQ9") {
					t.Errorf("a secret is shown: %s", line)
				}
			}
		})
	}
}

func TestValidate_AcceptsQueueMethods(t *testing.T) {
	for _, method := range []string{"fifo", "passthrough", "reject"} {
		_, problems := loadText(t, shop+"rooms: [{id: sale, queue: {method: "+method+"}}]\n")
		wantProblems(t, problems)
	}
}

func TestWarnings_OfBudgets(t *testing.T) {
	for text, want := range map[string]string{
		"origins: [{id: shop, servers: ['http://127.0.0.1:9000']}]\nrooms: [{id: sale, weight: 3}]":                                           "rooms[0].weight: the origin of this room has no budget.rate",
		"origins: [{id: shop, servers: ['http://127.0.0.1:9000'], budget: {rate: 100, burst: 5}}]\nrooms: [{id: sale, weight: 3}]":            "origins[0].budget.burst: 5 is less than a tenth of a second of the rate (100)",
		"origins: [{id: a, servers: ['http://h']}, {id: b, servers: ['http://h'], budget: {rate: 9}}]\nrooms: [{id: sale, origin: a}]":        "origins[1].budget: no room has this origin",
		"origins: [{id: shop, servers: ['http://127.0.0.1:9000'], budget: {rate: 10}}]\nrooms: [{id: sale, weight: 3}, {id: o, paths: [/o]}]": "",
	} {
		cfg, problems := loadText(t, text+"\n")
		wantProblems(t, problems)
		var lines []string
		for _, w := range cfg.Warnings() {
			lines = append(lines, w.String())
		}
		if want == "" {
			wantProblems(t, lines)
			if b, weights := cfg.BudgetOf(&cfg.Rooms[0]); b == nil || b.MostBurst() != 10_000 || weights != 4000 {
				t.Errorf("budget %+v, weights %v", b, weights)
			}
			continue
		}
		wantProblems(t, lines, want)
	}
}

func TestWarnings_OfTokenFiles(t *testing.T) {
	short, long := filepath.Join(t.TempDir(), "short"), filepath.Join(t.TempDir(), "long")
	for file, token := range map[string]string{short: "hunter2\n", long: "0123456789abcdef\n"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, problems := loadText(t, `
admin: {tokens: [{name: alice, token_file: `+long+`}, {name: bob, token_file: `+short+`}]}
origins: [{id: shop, servers: ["http://127.0.0.1:9000"]}]
rooms: [{id: sale, paths: [/sale]}]
`)
	wantProblems(t, problems)
	var lines []string
	for _, w := range cfg.Warnings() {
		lines = append(lines, w.String())
	}
	wantProblems(t, lines, "admin.tokens[1].token_file: holds fewer than 16 characters")
}

func TestWarnings_OfRoomsAndTheEdge(t *testing.T) {
	cfg, problems := loadText(t, `
admin: {token: short}
trusted_proxies: [0.0.0.0/0]
cookies: {same_site: none}
origins: [{id: shop, servers: ["http://127.0.0.1:9000"], tls: {server_name: shop.example}}]
rooms:
  - {id: sale, hosts: ["*.shop.example"], admission: {max_active: 5}, session: {renew: false}}
`)
	wantProblems(t, problems)
	var lines []string
	for _, w := range cfg.Warnings() {
		lines = append(lines, w.String())
	}
	wantProblems(t, lines,
		"trusted_proxies[0]: every peer is trusted",
		"admin.token: has fewer than 16 characters",
		"cookies.same_site: browsers take such cookies over TLS only",
		"origins[0].tls: no server of this origin is https",
		"rooms[0].hosts[0]: *.shop.example covers many hosts, and cookies are per host: a person has a place on each subdomain",
		"rooms[0].session.renew: passes are not renewed",
	)

	for identity, want := range map[string]string{
		"{header: X-User}": "identity.one_place: is false: accounts are named, and not used",
		"{one_place: true, header: X-User, login_url: 'https://l.example', anonymous: allow}":                                    "identity.anonymous: allow: a visitor who logs out",
		"{one_place: true, header: X-User, login_url: /login}":                                                                   "identity.login_url: lies in the room",
		"{one_place: true, header: X-User}":                                                                                      "paths: everything is behind the room",
		"{one_place: true, jwt_claim: sub, jwks_url: 'https://l.example/k', jwt_audience: shop, login_url: 'https://l.example'}": "identity.jwt_cookie: is empty",
		"{one_place: true, jwt_claim: sub, jwks_url: 'https://l.example/k', jwt_cookie: s, login_url: 'https://l.example'}":      "identity.jwt_audience: neither it nor jwt_issuer is set",
		"{one_place: true, header: X-User, login_url: 'https://l.example'}":                                                      "",
	} {
		cfg, problems := loadText(t, shop+"trusted_proxies: [10.0.0.0/8]\nrooms: [{id: sale, identity: "+identity+"}]\n")
		wantProblems(t, problems)
		got := cfg.Warnings()
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0].String(), "rooms[0]."+want)) {
			t.Errorf("%s: %v", identity, got)
		}
	}

	for settings, want := range map[string]string{
		"trusted_header: CF-Connecting-IP":                                              "trusted_header: CF-Connecting-IP is believed from this machine only",
		"trusted_header: True-Client-IP\ntrusted_proxies: [127.0.0.1/32, 192.0.2.0/24]": "",
		"trusted_header: X-Real-IP":                                                     "",
	} {
		cfg, problems := loadText(t, shop+"rooms: [{id: sale}]\n"+settings)
		wantProblems(t, problems)
		if got := cfg.Warnings(); want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0].String(), want)) {
			t.Errorf("%s: %v", settings, got)
		}
	}

	for rate, want := range map[string]string{"2.5": "rooms[0].admission.rate: 2.5 admits 2 in each second", "2": "", "0.3": "", "0": ""} {
		cfg, problems := loadText(t, shop+"rooms: [{id: sale, admission: {strategy: fixed_window, rate: "+rate+"}}]\n")
		wantProblems(t, problems)
		if got := cfg.Warnings(); want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0].String(), want)) {
			t.Errorf("a fixed window of %s: %v", rate, got)
		}
	}

	for settings, want := range map[string]string{
		"admission: {min_rate: 3, max_rate: 150, target_p95: 300ms}":            "admission.strategy: is token_bucket, which does not use min_rate, max_rate, target_p95; adaptive does",
		"admission: {strategy: adaptive, min_rate: 3, max_rate: 150}":           "",
		"admission: {rate: 41, burst: 1.9}":                                     "admission.burst: 1.9 is below rate/40 and prevents the full rate (41)",
		"admission: {rate: 40, burst: 1}":                                       "",
		"guard: {proof: {number: 5000, most: 6000}}":                            "guard.proof_of_work: is none: until an operator sets another challenge level, nothing uses proof.number, proof.most",
		"guard: {proof_of_work: auto, proof: {number: 5000}}":                   "",
		"eta: {model_file: model.json}":                                         "eta.model_file: is for estimator: model, and that is window",
		"eta: {weights: '0=1 12=2'}":                                            "eta.weights: are for estimator: hourly, and that is window",
		"eta: {estimator: hourly, weights: '0=1 12=2'}":                         "",
		"queue: {claim_window: 11s}":                                            "queue.claim_window: 11s is shorter than 12s",
		"queue: {claim_window: 40s}":                                            "queue.claim_window: 40s makes all who wait poll every 30s or more often",
		"queue: {claim_window: 55s, absence: 3m}":                               "",
		"paths: [/sale, /Vip/x], permits: [{paths: [/sale/order, /vip, '~x']}]": "",
		"paths: [/sale], permits: [{paths: [/sales]}]":                          "permits[0].paths[0]: /sales lies outside the room's paths",
		"queue: {claim_window: 70s}":                                            "",
		"queue: {opens_at: 2099-01-01T00:00:00Z, draw_secret_file: '" + write(t, "draw", strings.Repeat("0123456789abcdef", 2)) + "'}": "queue.opens_at: is for method: lottery, and that is fifo",
	} {
		cfg, problems := loadText(t, shop+"rooms: [{id: sale, "+settings+"}]\n")
		wantProblems(t, problems)
		if got := cfg.Warnings(); want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0].String(), "rooms[0]."+want)) {
			t.Errorf("%s: %v", settings, got)
		}
	}

	cfg, problems = loadText(t, shop)
	wantProblems(t, problems)
	if got := cfg.Warnings(); len(got) != 1 || got[0].Path != "rooms" {
		t.Errorf("without a room: %v", got)
	}
	cfg.Rooms = []Room{{Queue: Queue{Method: "lottery", OpensAt: "2099-01-01T00:00:00Z"}, Guard: Guard{ProofOfWork: "none"}}}
	if got := cfg.Warnings(); len(got) != 1 || got[0].Path != "rooms[0].queue.method" {
		t.Errorf("a lottery that anyone can flood: %v", got)
	}
	cfg.Rooms[0].Identity.OnePlace = true
	if got := cfg.Warnings(); len(got) != 0 {
		t.Errorf("a lottery with one place for each: %v", got)
	}
	cfg.Rooms[0].Queue.OpensAt = "2020-01-01T00:00:00Z"
	cfg.Rooms[0].Events = []Event{{StartsAt: "2020-01-01T00:00:00Z", EndsAt: "2020-01-02T00:00:00Z"}, {StartsAt: "2020-01-01T00:00:00Z", EndsAt: "2099-01-02T00:00:00Z"}}
	wantProblems(t, lists(cfg.Warnings()), "rooms[0].queue.opens_at: 2020-01-01T00:00:00Z has passed", "rooms[0].events[0]: has ended (2020-01-02T00:00:00Z)")
}

func lists(problems []Problem) (lines []string) {
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return lines
}

func TestWarnings_OfHostsAndAccounts(t *testing.T) {
	const origins = "origins: [{id: shop, servers: ['http://127.0.0.1:9000']}, {id: blog, servers: ['http://127.0.0.1:9001']}]\n"
	for text, want := range map[string]string{
		"default_origin: shop\nrooms: [{id: sale, hosts: [shop.example], origin: shop}]":                                                            "default_origin: shop is the origin of room sale",
		"default_origin: blog\nrooms: [{id: sale, hosts: [shop.example], origin: shop}]":                                                            "",
		"default_origin: shop\nrooms: [{id: sale, origin: shop}]":                                                                                   "",
		"rooms: [{id: sale, hosts: [shop.example], origin: shop}]":                                                                                  "",
		"rooms: [{id: sale, hosts: [shop.example], origin: shop}, {id: vip, hosts: [vip.example], origin: shop}]":                                   "",
		"rooms: [{id: sale, hosts: [shop.example], paths: [/a, /b], origin: shop}, {id: vip, hosts: [vip.example], paths: [/b, /a], origin: shop}]": "",
		"rooms: [{id: sale, hosts: [shop.example], paths: [/a], origin: shop}, {id: vip, hosts: [vip.example], origin: shop}]":                      "rooms[1].hosts: room sale has other hosts and the same origin (shop)",
		"rooms: [{id: sale, hosts: [shop.example], paths: [/a], origin: shop}, {id: vip, hosts: [vip.example], paths: [/a, /b], origin: shop}]":     "rooms[1].hosts: room sale has other hosts and the same origin (shop)",
		"rooms: [{id: sale, hosts: [shop.example], origin: shop}, {id: vip, hosts: [vip.example], origin: blog}]":                                   "",
		"rooms: [{id: sale, hosts: [shop.example], paths: [/a], origin: shop}, {id: vip, hosts: [shop.example], paths: [/b], origin: shop}]":        "",
		"rooms: [{id: sale, paths: [/a], origin: shop, identity: {one_place: true, header: X-User}}]":                                               "rooms[0].identity.header: is believed from trusted_proxies, which are this machine alone",
		"trusted_proxies: [10.0.0.0/8]\nrooms: [{id: sale, paths: [/a], origin: shop, identity: {one_place: true, header: X-User}}]":                "",
	} {
		cfg, problems := loadText(t, origins+text+"\n")
		wantProblems(t, problems)
		got := cfg.Warnings()
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0].String(), want)) {
			t.Errorf("%s: %v", text, got)
		}
	}
}
