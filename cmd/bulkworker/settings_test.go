package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/SherClockHolmes/webpush-go"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/api"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/config/configtest"
	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/tracing"
)

// usual is the configuration with which every row of settingRows begins.
const usual = `
processors:
  webhook: {url: "https://shop.example/jobs"}
  email: {smtp: "smtp://mail.example", from: shop@shop.example}
  push: {fcm: {credentials_file: $DIR/account.json}, webpush: {vapid_key_file: $DIR/vapid.json}}
`

// Parts of rows.
const (
	team    = `api_tokens: [{name: shop, tenants: [acme], token_file: $DIR/token}]`
	remotes = `worker_tokens: [{name: thumbs, types: [thumb], token_file: $DIR/token2}]
api_tokens: [{name: shop, tenants: [acme], token_file: $DIR/token}]`
	replica = `store: {url: "redis://127.0.0.1:1"}`
	pair    = `tls: {cert_file: $DIR/cert.pem, key_file: $DIR/key.pem}`
	extra   = `processors: {extra: {kind: webhook, url: "https://shop.example/extra"}}`
	apple   = `processors: {push: {apns: {key_file: $DIR/key.p8, key_id: KEY1, team_id: TEAM1, topic: com.example.shop}}}`
	mailed  = `processors: {extra: {url: "", smtp: "smtp://mail.example", from: shop@shop.example}}`
)

var settingRows = []configtest.Row{
	{Setting: "listen", Value: "127.0.0.1:9999", Elsewhere: "TestServeTakesTheSettingsOfItsProcess"},
	{Setting: "listen", Value: "\":9999\"", Shows: "API.RequireToken = true", With: "admin: {token: Zk3vQ9xW2mLr8TbN5cYh7JdF}"},
	{Setting: "tls.cert_file", Value: "$DIR/cert2.pem", Shows: `TLS.CertFile = "$DIR/cert2.pem"`, With: pair},
	{Setting: "tls.key_file", Value: "$DIR/key2.pem", Shows: `TLS.KeyFile = "$DIR/key2.pem"`, With: pair},
	{Setting: "tls.client_ca_file", Value: "$DIR/cert.pem", Shows: `TLS.ClientCAFile = "$DIR/cert.pem"`, With: pair},
	{Setting: "trusted_proxies", Value: "[10.0.0.0/8]", Shows: `API.TrustedProxies = [10.0.0.0/8]`},
	{Setting: "admin.token", Value: "Zk3vQ9xW2mLr8TbN5cYh7JdF", Shows: `API.Token = "Zk3vQ9xW2mLr8TbN5cYh7JdF"`},
	{Setting: "api_tokens[0].name", Value: "other", Shows: `API.Tokens[0].Name = "other"`, With: team},
	{Setting: "api_tokens[0].tenants", Value: "[acme, other]", Shows: `API.Tokens[0].Tenants = ["acme" "other"]`, With: team},
	{Setting: "api_tokens[0].token_file", Value: "$DIR/token2", Shows: `API.Tokens[0].Token = "b8JdF4sGp1AeUZk3vQ9xW2mLr8TbN5cY7"`, With: team},
	{Setting: "api_tokens[0].max_weight", Value: "2.5", Shows: "API.Tokens[0].Most.Weight = 2.5", With: team},
	{Setting: "api_tokens[0].max_priority", Value: "normal", Shows: `API.Tokens[0].Most.Priority = "normal"`, With: team},
	{Setting: "api_tokens[0].max_pending", Value: "500", Shows: "API.Tokens[0].Most.Pending = 500", With: team},
	{Setting: "worker_tokens[0].name", Value: "other", Shows: `API.WorkerTokens[0].Name = "other"`, With: remotes},
	{Setting: "worker_tokens[0].types", Value: "[thumb, video]", Shows: `API.WorkerTokens[0].Types = ["thumb" "video"]`, With: remotes},
	{Setting: "worker_tokens[0].token_file", Value: "$DIR/token3", Shows: `API.WorkerTokens[0].Token = "cY7b8JdF4sGp1AeUZk3vQ9xW2mLr8TbN5"`, With: remotes},
	{Setting: "api_tokens[0].max_groups", Value: "20", Shows: "API.Tokens[0].Most.Groups = 20", With: team},
	{Setting: "log.level", Value: "warn", Elsewhere: "TestServeTakesTheSettingsOfItsProcess"},
	{Setting: "log.format", Value: "text", Elsewhere: "TestServeTakesTheSettingsOfItsProcess"},
	{Setting: "tracing.otlp_endpoint", Value: "http://127.0.0.1:4318", Shows: `Traces.Endpoint = "http://127.0.0.1:4318"`},
	{Setting: "tracing.sample", Value: "0.5", Shows: "Traces.Sample = 0.5"},
	{Setting: "tracing.headers_file", Value: "$DIR/otlp.headers", Shows: `Traces.Headers[Authorization] = "Bearer abc"`},
	{Setting: "tracing.service_name", Value: "jobs", Shows: `Traces.Service = "jobs"`},
	{Setting: "store.url", Value: "redis://127.0.0.1:1", Elsewhere: "TestServeTakesTheSettingsOfItsProcess"},
	{Setting: "store.urls", Value: `["redis://127.0.0.1:1", "redis://127.0.0.1:2"]`, Elsewhere: "TestServe_SpreadsGroupsOverServers", With: "shards: 2"},
	{Setting: "shards", Value: "3", Shows: "Store.Shards = 3"},
	{Setting: "store.dir", Value: "./other", Elsewhere: "TestServeTakesTheSettingsOfItsProcess"},
	{Setting: "store.prefix", Value: "other", Shows: `Core.Prefix = "other"
Store.Prefix = "other"`},
	{Setting: "store.timeout", Value: "100ms", Shows: `Core.Timeout = 100ms
Store.Timeout = 100ms`},
	{Setting: "durability", Value: "disk", Shows: "Store.Settings.WaitLocal = 1"},
	{Setting: "durability", Value: "replica", Shows: "Store.Settings.WaitReplicas = 1", With: replica},
	{Setting: "rate.global", Value: "11", Shows: `Engine.Pace.Begin = 11000
Store.Settings.Global = 11`},
	{Setting: "rate.burst", Value: "12", Shows: "Store.Settings.Burst = 12"},
	{Setting: "rate.per_tenant", Value: "13", Shows: "Store.Settings.PerTenant = 13"},
	{Setting: "rate.window", Value: "12s", Shows: "Store.Settings.Window = 12s"},
	{Setting: "limiter", Value: "fixed_window", Shows: `Store.Settings.Limiter = "fixed_window"`},
	{Setting: "fair_queue.policy", Value: "score", Shows: `Store.Settings.Policy = "score"`},
	{Setting: "fair_queue.alpha", Value: "14", Shows: "Store.Settings.Alpha = 14"},
	{Setting: "fair_queue.strict", Value: "true", Shows: "Store.Settings.Strict = true"},
	{Setting: "fair_queue.by", Value: "starts", Shows: "Store.Settings.ByStarts = true"},
	{Setting: "fair_queue.gating", Value: "false", Shows: "Store.Settings.Gating = none"},
	{Setting: "congestion.enabled", Value: "false", Shows: "Store.Settings.Congestion = none"},
	{Setting: "congestion.base_backoff", Value: "15s", Shows: `Store.Settings.BaseBackoff = 15s`},
	{Setting: "congestion.max_backoff", Value: "16s", Shows: `Store.Settings.MaxBackoff = 16s`},
	{Setting: "congestion.max_age", Value: "17h", Shows: "Store.Settings.MaxAge = 17h0m0s"},
	{Setting: "unsealed_after", Value: "20h", Shows: "Store.Settings.UnsealedAfter = 20h0m0s"},
	{Setting: "unknown_type_after", Value: "19h", Shows: "Engine.ReducerWait = 19h0m0s\nStore.Settings.UnknownTypeAfter = 19h0m0s"},
	{Setting: "congestion.stats_retention", Value: "18h", Shows: "Store.Settings.StatsRetention = 18h0m0s"},
	{Setting: "dispatch.interval", Value: "46ms", Shows: "Engine.DispatchInterval = 46ms"},
	{Setting: "dispatch.batch", Value: "45", Shows: "Store.Settings.DispatchBatch = 45"},
	{Setting: "ready_queue.max_size", Value: "19", Shows: "Store.Settings.ReadyMax = 19"},
	{Setting: "worker.count", Value: "20", Shows: `Engine.Worker.Count = 20
Handlers[email].pool.slots = chan of 20
Handlers[push].fcm.tokens.client...
Handlers[push].webpush...
Handlers[webhook].client...
Handlers[webhook].o.MaxPerHost = 20`},
	{Setting: "worker.count", Value: "0", Shows: `Engine.Worker.Count = -1
Handlers[email].pool.slots = chan of 8
Handlers[push].fcm.tokens.client...
Handlers[push].webpush...
Handlers[webhook].client...
Handlers[webhook].o.MaxPerHost = none`},
	{Setting: "worker.min", Value: "2", Shows: "Engine.Worker.Min = 2", With: "worker: {max: 30}"},
	{Setting: "worker.max", Value: "22", Shows: `Engine.Worker.Max = 22
Engine.Worker.Min = 1
Handlers[email].pool.slots = chan of 22
Handlers[push].fcm.tokens.client...
Handlers[push].webpush...
Handlers[webhook].client...
Handlers[webhook].o.MaxPerHost = 22`},
	{Setting: "worker.batch", Value: "23", Shows: "Engine.Worker.Batch = 23"},
	{Setting: "worker.lease", Value: "24s", Shows: `Engine.Worker.Lease = 24s
Store.Settings.Lease = 24s`},
	{Setting: "worker.job_timeout", Value: "25s", Shows: "Engine.Worker.JobTimeout = 25s"},
	{Setting: "worker.max_retries", Value: "26", Shows: "Policies[email].Retry.Max = 26\nPolicies[push].Retry.Max = 26\nPolicies[webhook].Retry.Max = 26"},
	{Setting: "worker.max_crashes", Value: "27", Shows: "Store.Settings.MaxCrashes = 27"},
	{Setting: "worker.shutdown_grace", Value: "28s", Shows: "Engine.Worker.ShutdownGrace = 28s"},
	{Setting: "adaptive.enabled", Value: "true", Shows: `Engine.Pace.Jobs = true
Store.Settings.Adaptive = true`},
	{Setting: "adaptive.min_rate", Value: "29", Shows: "Engine.Pace.Policy.MinRate = 29000"},
	{Setting: "adaptive.max_rate", Value: "20000", Shows: "Engine.Pace.Policy.MaxRate = 20000000"},
	{Setting: "adaptive.target_p95", Value: "31ms", Shows: "Engine.Pace.Policy.TargetP95 = 31ms"},
	{Setting: "people_first.origin", Value: "shop", Shows: `Engine.Pace.People = "shop"
Store.Settings.Adaptive = true`},
	{Setting: "limits.line", Value: "32KiB", Shows: "API.Limits.Line = 32768"},
	{Setting: "limits.decompressed", Value: "2MiB", Shows: "API.Limits.Decompressed = 2097152"},
	{Setting: "limits.result", Value: "33KiB", Shows: `API.Limits.Result = 33792
Engine.MaxResult = 33792
Handlers[email].most = 33792
Handlers[push].most = 33792
Handlers[webhook].o.MaxResult = 33792`},
	{Setting: "limits.pending_per_tenant", Value: "34", Shows: "Store.Settings.PendingPerTenant = 34"},
	{Setting: "callbacks.allow", Value: "[hooks.example]", Shows: `Callbacks.guard.hosts[{hooks.example }] = true
Handlers[push].webpush.guard.hosts[{hooks.example }] = true`},
	{Setting: "callbacks.secret_file", Value: "$DIR/token", Shows: `Callbacks.secret = "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU"`},
	{Setting: "retention.jobs", Value: "35h", Shows: "Store.Settings.KeepJobs = 35h0m0s"},
	{Setting: "retention.groups", Value: "336h", Shows: "Store.Settings.KeepGroups = 336h0m0s"},
	{Setting: "retention.dead", Value: "370h", Shows: "Store.Settings.KeepDead = 370h0m0s"},
	{Setting: "processors.extra.kind", Value: "email", Shows: `Handlers[extra] = *email.Handler
Handlers[extra]...`, With: extra, Also: mailed},
	{Setting: "processors.webhook.timeout", Value: "38s", Shows: "Handlers[webhook].o.Timeout = 38s\nPolicies[webhook].Timeout = 30s"},
	{Setting: "processors.email.timeout", Value: "39s", Shows: "Handlers[email].timeout = 39s\nPolicies[email].Timeout = 30s"},
	{Setting: "processors.push.timeout", Value: "40s", Shows: "Handlers[push].timeout = 40s\nPolicies[push].Timeout = 30s"},
	{Setting: "processors.webhook.rate", Value: "0.5", Shows: "Store.Settings.Types[webhook].Rate = 0.5"},
	{Setting: "processors.webhook.concurrency", Value: "43", Shows: "Store.Settings.Types[webhook].Concurrency = 43"},
	{Setting: "processors.webhook.batch", Value: "44", Shows: "Store.Settings.Types[webhook].Batch = 44"},
	{Setting: "processors.webhook.retry.max", Value: "0", Shows: "Policies[webhook].Retry.Max = -1"},
	{Setting: "processors.webhook.retry.base", Value: "41s", Shows: "Policies[webhook].Retry.Base = 41s"},
	{Setting: "processors.webhook.retry.most", Value: "42m", Shows: "Policies[webhook].Retry.Most = 42m0s"},
	{Setting: "processors.webhook.breaker.ratio", Value: "0.7", Shows: "Policies[webhook].Breaker.Ratio = 0.7"},
	{Setting: "processors.webhook.breaker.window", Value: "43s", Shows: "Policies[webhook].Breaker.Window = 43s"},
	{Setting: "processors.webhook.breaker.probe", Value: "45", Shows: "Policies[webhook].Breaker.Probe = 45"},
	{Setting: "processors.webhook.batching.max", Value: "45", Shows: "Batching[webhook].Most = 45"},
	{Setting: "processors.webhook.batching.wait", Value: "46ms", Shows: "Batching[webhook].Wait = 46ms", With: "processors: {webhook: {batching: {max: 2}}}"},
	{Setting: "processors.webhook.url", Value: "https://other.example/jobs", Shows: `Handlers[webhook].host = "other.example"
Handlers[webhook].o.URL = "https://other.example/jobs"`},
	{Setting: "processors.webhook.secret_file", Value: "$DIR/token", Shows: `Handlers[webhook].o.Secret = "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU"`},
	{Setting: "processors.webhook.headers", Value: "{Authorization: secret}", Shows: `Handlers[webhook].header[Authorization] = ["secret"]
Handlers[webhook].o.Headers[Authorization] = "secret"`},
	{Setting: "processors.email.smtp", Value: "smtps://other.example", Shows: `Handlers[email].pool.server.host = "other.example"
Handlers[email].pool.server.implicit = true
Handlers[email].pool.server.port = 465`},
	{Setting: "processors.email.from", Value: "other@shop.example", Shows: `Handlers[email].from.Address = "other@shop.example"`},
	{Setting: "processors.push.fcm.credentials_file", Value: "$DIR/account2.json", Shows: `Handlers[push].fcm.tokens.config...
Handlers[push].fcm.tokens.config.Email = "push@other.example"`},
	{Setting: "processors.push.fcm.endpoint", Value: "https://fcm.example", Shows: `Handlers[push].fcm.host = "fcm.example"
Handlers[push].fcm.url = "https://fcm.example/v1/projects/shop-1/messages:send"`},
	{Setting: "processors.push.webpush.vapid_key_file", Value: "$DIR/vapid2.json", Shows: "Handlers[push].webpush..."},
	{Setting: "processors.push.apns.key_file", Value: "$DIR/key2.p8", Shows: "Handlers[push].apns.key...", With: apple},
	{Setting: "processors.push.apns.key_id", Value: "KEY2", Shows: `Handlers[push].apns.keyID = "KEY2"`, With: apple},
	{Setting: "processors.push.apns.team_id", Value: "TEAM2", Shows: `Handlers[push].apns.teamID = "TEAM2"`, With: apple},
	{Setting: "processors.push.apns.topic", Value: "com.example.two", Shows: `Handlers[push].apns.topic = "com.example.two"`, With: apple},
	{Setting: "processors.push.apns.endpoint", Value: "https://apns.example", Shows: `Handlers[push].apns.host = "apns.example"
Handlers[push].apns.url = "https://apns.example/3/device/"`, With: apple},
}

// built has the parts that serve builds from the configuration.
type built struct {
	Store     store.Options
	Core      admission.Options
	Engine    bulk.Options
	API       api.Options
	Callbacks *calling
	Handlers  map[string]handler
	Policies  map[string]bulk.Policy
	Batching  map[string]bulk.Batching
	TLS       certs.Files
	Traces    tracing.Options
}

func TestSettings_AllReachTheirParts(t *testing.T) {
	vapid := func() string {
		private, public, err := webpush.GenerateVAPIDKeys()
		if err != nil {
			t.Fatal(err)
		}
		return inJSON(t, map[string]string{"publicKey": public, "privateKey": private, "subject": "mailto:ops@shop.example"})
	}
	certificate, key := configtest.SelfSigned(t)
	configtest.Program{
		Settings: config.BulkSettings(),
		Base:     usual,
		Files: map[string]string{
			"cert.pem": certificate, "key.pem": key, "cert2.pem": certificate, "key2.pem": key,
			"token": "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU\n", "token2": "b8JdF4sGp1AeUZk3vQ9xW2mLr8TbN5cY7\n", "token3": "cY7b8JdF4sGp1AeUZk3vQ9xW2mLr8TbN5\n",
			"account.json": account(t, "push@shop.example"), "account2.json": account(t, "push@other.example"), "vapid.json": vapid(), "vapid2.json": vapid(),
			"otlp.headers": "Authorization: Bearer abc\n",
			"key.p8":       p8(t), "key2.p8": p8(t),
		},
		Build: func(t testing.TB, file string) any {
			cfg, err := config.LoadBulk(config.BulkOptions{File: file, Check: checkParts})
			if err != nil {
				t.Fatal(err)
			}
			b := built{Store: storeOptions(cfg, nil, nil), Core: coreOptions(cfg, nil, nil, nil), Engine: engineOptions(cfg), TLS: certificates(cfg)}
			program := traced(nil, nil)
			if b.Traces, err = program.Options(&cfg.Tracing); err != nil {
				t.Fatal(err)
			}
			if b.API, err = apiOptions(cfg); err != nil {
				t.Fatal(err)
			}
			if b.Callbacks, err = newCalling(cfg); err != nil {
				t.Fatal(err)
			}
			if b.Handlers, err = newHandlers(cfg); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeAll(b.Handlers) })
			b.Policies, b.Batching = map[string]bulk.Policy{}, map[string]bulk.Batching{}
			for jobType := range b.Handlers {
				b.Batching[jobType] = batching(cfg.Processors[jobType].Batching)
				b.Policies[jobType] = policy(cfg, jobType)
			}
			return b
		},
	}.Check(t, settingRows)
}

// account makes the JSON key of a service account.
func account(t *testing.T, email string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return inJSON(t, map[string]string{
		"type": "service_account", "project_id": "shop-1", "private_key_id": "kid-1", "client_email": email,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": "https://shop.example/token",
	})
}

// p8 makes an authentication key of APNs.
func p8(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The settings that serve itself uses: listen address, log, and directory of the store.
func TestServe_UsesItsSettings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	addr := freeport.Address(t)
	stderr, stop := configtest.Serve(t, newRoot(nil), `
listen: "`+addr+`"
log: {format: text}
store: {dir: "`+dir+`"}
`)
	configtest.Eventually(t, "the program listens", func() bool { return strings.Contains(stderr.String(), "msg=listening addr="+addr) })
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		t.Errorf("store.dir: %d files, %v", len(files), err)
	}
	stop()

	server := redistest.Server(t)
	_, stop = configtest.Serve(t, newRoot(nil), `
listen: "127.0.0.1:0"
log: {level: error}
store: {url: "`+server.URL()+`"}
`)
	configtest.Eventually(t, "the program uses store.url", func() bool {
		return strings.Count(server.Client().ClientList(t.Context()).Val(), "\n") > 1
	})
	if log := stop(); strings.Contains(log, `"INFO"`) || strings.Contains(log, `"WARN"`) {
		t.Errorf("with log.level error:\n%s", log)
	}
}

// The API is served over TLS with the certificate files as they are when a client connects.
func TestServe_TLS(t *testing.T) {
	dir, addr := t.TempDir(), freeport.Address(t)
	put := func() *x509.CertPool {
		certificate, key := configtest.SelfSigned(t)
		for name, text := range map[string]string{"cert.pem": certificate, "key.pem": key} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(certificate))
		return pool
	}
	get := func(pool *x509.CertPool) error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		r, err := client.Get("https://" + addr + "/healthz")
		if err != nil {
			return err
		}
		defer func() { _ = r.Body.Close() }()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	}
	first := put()
	stderr, _ := configtest.Serve(t, newRoot(nil), `
listen: "`+addr+`"
log: {format: text}
store: {dir: "`+filepath.Join(dir, "own")+`"}
tls: {cert_file: "`+filepath.Join(dir, "cert.pem")+`", key_file: "`+filepath.Join(dir, "key.pem")+`"}
`)
	configtest.Eventually(t, "the program listens", func() bool { return strings.Contains(stderr.String(), "msg=listening addr="+addr) })
	if err := get(first); err != nil {
		t.Fatal(err)
	}
	second := put() // changed files are taken without a signal
	configtest.Eventually(t, "the new certificate is served", func() bool { return get(second) == nil })
	if get(first) == nil {
		t.Error("the old certificate is served still")
	}
}
