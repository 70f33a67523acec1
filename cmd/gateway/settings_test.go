package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/gateway/webhook"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/config/configtest"
	"github.com/anteroom/anteroom/internal/tracing"
)

// usual is the configuration that every row of settingRows begins with.
const usual = `
tokens: {keys: [{id: k1, secret: 0pX2vRk7Q9-mZt4LwYb8NcUe1HsJdAfG}]}
origins: [{id: shop, servers: ["http://127.0.0.1:9"]}]
rooms: [{id: sale}]
`

// Parts of other rows.
const (
	twoOrigins = `{default_origin: shop, origins: [{}, {id: other, servers: ["http://127.0.0.1:10"]}]}`
	twoKeys    = `tokens: {keys: [{active: true}, {id: k2, secret: Kx8vTq2Lw9-ZpR4mYb7NcUe1HsJdAfG0}]}`
	es256      = `tokens: {keys: [{secret: "", alg: ES256, private_key_file: $DIR/p256.pem}]}`
	edDSA      = `tokens: {keys: [{secret: "", alg: EdDSA, private_key_file: $DIR/signing.pem}]}`
	tlsFiles   = `tls: {cert_file: $DIR/cert.pem, key_file: $DIR/key.pem}`
	adminTLS   = `admin: {tls: {cert_file: $DIR/cert.pem, key_file: $DIR/key.pem}}`
	oidc       = `admin: {oidc: {issuer: "https://id.example", client_id: gateway, client_secret_file: $DIR/secret, redirect_url: "https://ops.example/auth/callback", roles: [{value: staff}]}}`
	operator   = `admin: {tokens: [{token_file: $DIR/token}]}`
	budget     = `origins: [{budget: {rate: 19}}]`
	lottery    = `rooms: [{queue: {method: lottery, opens_at: "2031-01-01T10:00:00Z", draw_secret_file: $DIR/secret}}]`
	event      = `rooms: [{events: [{name: sale, starts_at: "2031-02-01T10:00:00Z", ends_at: "2031-02-01T12:00:00Z", method: reject}]}]`
	drawnEvent = `rooms: [{queue: {draw_secret_file: $DIR/secret}, events: [{name: sale, starts_at: "2031-02-01T10:00:00Z", ends_at: "2031-02-01T12:00:00Z", prequeue_at: "2031-02-01T09:00:00Z", method: lottery}]}]`
	accounts   = `rooms: [{identity: {jwt_claim: sub, jwks_url: "https://shop.example/jwks"}}]`
	captcha    = `rooms: [{guard: {captcha: {provider: turnstile, site_key: site, secret_file: $DIR/secret, hosts: [shop.example]}}}]`
	queried    = `rooms: [{admission: {prometheus: {url: "http://127.0.0.1:9091", query: up}}}]`
	alarms     = `rooms: [{alarms: [{name: a, when: waiting, do: rate, rate: 5}]}]`
	permits    = `rooms: [{permits: [{methods: [POST]}]}]`
	bypass     = `rooms: [{bypass: [{methods: [GET]}]}]`
	hook       = `webhooks: [{name: crm, url: "https://hooks.example.com/a", secret_file: $DIR/hook.secret}]`

	besideProxy = `check: {listen: "127.0.0.1:9997", trusted: [127.0.0.1/32]}`
)

// The rows of a setting that is built into several parts name them all. New settings get a row here.
var settingRows = []configtest.Row{
	{Setting: "listen", Value: "127.0.0.1:9999", Elsewhere: "TestServe_UsesTheSettingsOfItsProcess"},
	{Setting: "tls.cert_file", Value: "$DIR/cert2.pem", Shows: `Gateway.TLS.CertFile = "$DIR/cert2.pem"`, With: tlsFiles},
	{Setting: "tls.key_file", Value: "$DIR/key2.pem", Shows: `Gateway.TLS.KeyFile = "$DIR/key2.pem"`, With: tlsFiles},
	{Setting: "tls.client_ca_file", Value: "$DIR/cert.pem", Shows: `Gateway.TLS.ClientCAFile = "$DIR/cert.pem"`, With: tlsFiles},
	{Setting: "trusted_proxies", Value: "[10.0.0.0/8]", Shows: "Gateway.TrustedProxies = [10.0.0.0/8]"},
	{Setting: "trusted_header", Value: "x-real-ip", Shows: `Gateway.TrustedHeader = "x-real-ip"`},
	{Setting: "proxy_protocol", Value: "v1", Shows: "Gateway.ProxyProtocol = 1"},
	{Setting: "proxy_protocol", Value: "v2", Shows: "Gateway.ProxyProtocol = 2"},
	{Setting: "proxy_protocol", Value: "any", Shows: "Gateway.ProxyProtocol = 3"},
	{Setting: "limits.header", Value: "32KiB", Shows: "Gateway.Limits.Header = 32768"},
	{Setting: "limits.target", Value: "4KiB", Shows: "Gateway.Limits.Target = 4096"},
	{Setting: "limits.headers", Value: "50", Shows: "Gateway.Limits.Headers = 50"},
	{Setting: "limits.header_timeout", Value: "5s", Shows: "Gateway.Limits.HeaderTimeout = 5s"},
	{Setting: "limits.body_idle", Value: "6s", Shows: "Gateway.Limits.BodyIdle = 6s"},
	{Setting: "limits.write_idle", Value: "7s", Shows: "Gateway.Limits.WriteIdle = 7s"},
	{Setting: "limits.idle", Value: "8s", Shows: "Gateway.Limits.Idle = 8s"},
	{Setting: "limits.in_flight_per_address", Value: "9", Shows: "Gateway.Shares.Address = 9"},
	{Setting: "limits.in_flight_per_session", Value: "10", Shows: "Gateway.Shares.Session = 10"},
	{Setting: "limits.tunnels_per_address", Value: "11", Shows: "Gateway.Shares.Tunnels = 11"},
	{Setting: "limits.streams_per_address", Value: "12", Shows: "Gateway.StreamsPerAddress = 12"},
	{Setting: "shutdown_timeout", Value: "1500ms", Shows: "Gateway.LastRequest = 500ms"},
	{Setting: "default_origin", Value: "other", Shows: `Gateway.DefaultOrigin = "other"
Gateway.Rooms[0].Origin = "other"
Gateway.Rooms[0].Policy.Origin = "other"`, With: twoOrigins},
	{Setting: "on_store_error", Value: "local", Shows: `Gateway.Rooms[0].Policy.OnStoreError = "local"`},
	{Setting: "log.level", Value: "warn", Elsewhere: "TestServe_UsesTheSettingsOfItsProcess"},
	{Setting: "log.format", Value: "text", Elsewhere: "TestServe_UsesTheSettingsOfItsProcess"},
	{Setting: "log.access", Value: "false", Shows: "Gateway.Access.Output = none"},
	{Setting: "log.access_format", Value: "combined", Shows: "Gateway.Access.Combined = true"},
	{Setting: "log.access_sample", Value: "0.25", Shows: "Gateway.Access.Sample = 0.25"},
	{Setting: "log.access_ip", Value: "prefix", Shows: "Gateway.Access.Prefix = true"},
	{Setting: "tracing.otlp_endpoint", Value: "http://127.0.0.1:4318", Shows: `Traces.Endpoint = "http://127.0.0.1:4318"`},
	{Setting: "tracing.sample", Value: "0.5", Shows: "Traces.Sample = 0.5"},
	{Setting: "tracing.headers_file", Value: "$DIR/otlp.headers", Shows: `Traces.Headers[Authorization] = "Bearer abc"`},
	{Setting: "tracing.service_name", Value: "door", Shows: `Traces.Service = "door"`},
	{Setting: "check.listen", Value: "127.0.0.1:9998", Elsewhere: "TestServe_AnswersChecks", With: besideProxy},
	{Setting: "check.grpc", Value: "127.0.0.1:9998", Elsewhere: "TestServe_AnswersChecksOverGRPC", With: besideProxy},
	{Setting: "check.trusted", Value: "[10.0.0.0/8]", Shows: "Gateway.Check.Trusted = [10.0.0.0/8]", With: besideProxy},
	{Setting: "check.dialect", Value: "caddy", Shows: "Gateway.Check.Dialect = caddy", With: besideProxy},
	{Setting: "check.deny", Value: "403", Shows: "Gateway.Check.Deny = 403", With: besideProxy},
	{Setting: "admin.listen", Value: "127.0.0.1:9999", Shows: `Console.Listen = "127.0.0.1:9999"`},
	{Setting: "admin.token", Value: "Zk3vQ9xW2mLr8TbN5cYh7JdF", Shows: `Console.Tokens[0].Name = "admin"
Console.Tokens[0].Role = "admin"
Console.Tokens[0].Token = "Zk3vQ9xW2mLr8TbN5cYh7JdF"`},
	{Setting: "admin.tls.cert_file", Value: "$DIR/cert2.pem", Shows: `Console.TLS.CertFile = "$DIR/cert2.pem"`, With: adminTLS},
	{Setting: "admin.tls.key_file", Value: "$DIR/key2.pem", Shows: `Console.TLS.KeyFile = "$DIR/key2.pem"`, With: adminTLS},
	{Setting: "admin.tls.client_ca_file", Value: "$DIR/cert.pem", Shows: `Console.TLS.ClientCAFile = "$DIR/cert.pem"`, With: adminTLS},
	{Setting: "admin.oidc.issuer", Value: "https://login.example", Shows: `Console.SignIn.Issuer = "https://login.example"`, With: oidc},
	{Setting: "admin.oidc.client_id", Value: "other", Shows: `Console.SignIn.ClientID = "other"`, With: oidc},
	{Setting: "admin.oidc.client_secret_file", Value: "$DIR/token2", Shows: `Console.SignIn.ClientSecret = "b8JdF4sGp1AeUZk3vQ9xW2mLr8TbN5cY7"`, With: oidc},
	{Setting: "admin.oidc.redirect_url", Value: "https://a.example/auth/callback", Shows: `Console.SignIn.RedirectURL = "https://a.example/auth/callback"`, With: oidc},
	{Setting: "admin.oidc.scopes", Value: "[groups]", Shows: `Console.SignIn.Scopes = ["groups"]`, With: oidc},
	{Setting: "admin.oidc.roles[0].claim", Value: "email", Shows: `Console.SignIn.Rules[0].Claim = "email"`, With: oidc},
	{Setting: "admin.oidc.roles[0].value", Value: "crew", Shows: `Console.SignIn.Rules[0].Value = "crew"`, With: oidc},
	{Setting: "admin.oidc.roles[0].role", Value: "operator", Shows: `Console.SignIn.Rules[0].Grant.Role = "operator"`, With: oidc},
	{Setting: "admin.oidc.roles[0].rooms", Value: "[sale]", Shows: `Console.SignIn.Rules[0].Grant.Rooms = ["sale"]`, With: oidc},
	{Setting: "admin.oidc.idle", Value: "5m", Shows: "Console.SignIn.Idle = 5m0s", With: oidc},
	{Setting: "admin.oidc.session", Value: "8h", Shows: "Console.SignIn.Session = 8h0m0s", With: oidc},
	{Setting: "admin.two_person", Value: "[reset]", Shows: `Console.TwoPerson = ["reset"]`, With: oidc},
	{Setting: "admin.tokens[0].name", Value: "ann", Shows: `Console.Tokens[0].Name = "ann"`, With: operator},
	{Setting: "admin.tokens[0].token_file", Value: "$DIR/token2", Shows: `Console.Tokens[0].Token = "b8JdF4sGp1AeUZk3vQ9xW2mLr8TbN5cY7"`, With: operator},
	{Setting: "admin.tokens[0].role", Value: "read", Shows: `Console.Tokens[0].Role = "viewer"`, With: operator},
	{Setting: "admin.tokens[0].role", Value: "facts", Shows: `Console.Tokens[0].Role = "facts"`, With: operator},
	{Setting: "admin.tokens[0].rooms", Value: "[sale]", Shows: `Console.Tokens[0].Rooms = ["sale"]`, With: operator},
	{Setting: "store.url", Value: "redis://127.0.0.1:1", Elsewhere: "TestServe_UsesTheSettingsOfItsProcess"},
	{Setting: "store.dir", Value: "./other", Elsewhere: "TestServe_UsesTheSettingsOfItsProcess"},
	{Setting: "store.prefix", Value: "other", Shows: `Core.Prefix = "other"`},
	{Setting: "store.timeout", Value: "100ms", Shows: "Core.Timeout = 100ms"},
	{Setting: "tokens.issuer", Value: "shop", Shows: `Gateway.Ring...
Gateway.Ring.issuer = "shop"`},
	{Setting: "tokens.bind", Value: "ip", Shows: `Gateway.Bind = "ip"`},
	{Setting: "tokens.keys[0].id", Value: "k9", Shows: `Gateway.Ring...
Gateway.Ring.active = as Gateway.Ring.keys[k9]
Gateway.Ring.keys[k9].alg = "HS256"
Gateway.Ring.keys[k9].id = "k9"
Gateway.Ring.keys[k9].secret = "0pX2vRk7Q9-mZt4LwYb8NcUe1HsJdAfG"`},
	{Setting: "tokens.keys[0].alg", Value: "EdDSA", Shows: `Gateway.AccountKeys...
Gateway.IDKey...
Gateway.Ring...
Gateway.Ring.keys[k1].alg = "EdDSA"`, Also: edDSA},
	{Setting: "tokens.keys[0].alg", Value: "ES256", Shows: `Gateway.AccountKeys...
Gateway.IDKey...
Gateway.Ring...
Gateway.Ring.keys[k1].alg = "ES256"`, Also: es256},
	{Setting: "tokens.keys[0].secret", Value: "Kx8vTq2Lw9-ZpR4mYb7NcUe1HsJdAfG0", Shows: `Gateway.AccountKeys...
Gateway.IDKey...
Gateway.Ring.keys[k1].secret = "Kx8vTq2Lw9-ZpR4mYb7NcUe1HsJdAfG0"`},
	{Setting: "tokens.keys[0].secret_file", Value: "$DIR/token", Shows: `Gateway.AccountKeys...
Gateway.IDKey...
Gateway.Ring.keys[k1].secret = "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU"`, Also: `tokens: {keys: [{secret: ""}]}`},
	{Setting: "tokens.keys[0].private_key_file", Value: "$DIR/signing2.pem", Shows: `Gateway.AccountKeys...
Gateway.IDKey...
Gateway.Ring...`, With: edDSA},
	{Setting: "tokens.keys[0].active", Value: "false", Shows: `Gateway.AccountKeys...
Gateway.Ring.active = as Gateway.Ring.keys[k2]`, With: twoKeys, Also: "tokens: {keys: [{}, {active: true}]}"},
	{Setting: "cookies.same_site", Value: "strict", Shows: `Gateway.SameSite = "strict"`},
	{Setting: "origins[0].id", Value: "store", Shows: `Gateway.Origins[0].ID = "store"
Gateway.Rooms[0].Origin = "store"
Gateway.Rooms[0].Policy.Origin = "store"`},
	{Setting: "origins[0].servers", Value: `["http://127.0.0.1:10", "http://127.0.0.1:11"]`, Shows: `Gateway.Origins[0].Servers = ["http://127.0.0.1:10" "http://127.0.0.1:11"]`},
	{Setting: "origins[0].timeout", Value: "11s", Shows: "Gateway.Origins[0].Timeout = 11s"},
	{Setting: "origins[0].connect_timeout", Value: "12s", Shows: "Gateway.Origins[0].ConnectTimeout = 12s"},
	{Setting: "origins[0].first_byte_timeout", Value: "13s", Shows: "Gateway.Origins[0].FirstByteTimeout = 13s"},
	{Setting: "origins[0].idle_timeout", Value: "14s", Shows: "Gateway.Origins[0].IdleTimeout = 14s"},
	{Setting: "origins[0].max_conns", Value: "15", Shows: "Gateway.Origins[0].MaxConns = 15"},
	{Setting: "origins[0].queue_timeout", Value: "16s", Shows: "Gateway.Origins[0].QueueTimeout = 16s"},
	{Setting: "origins[0].max_body", Value: "17KiB", Shows: "Gateway.Origins[0].MaxBody = 17408"},
	{Setting: "origins[0].preserve_host", Value: "false", Shows: "Gateway.Origins[0].PreserveHost = none"},
	{Setting: "origins[0].forward_pass", Value: "true", Shows: "Gateway.Origins[0].ForwardPass = true"},
	{Setting: "origins[0].tls.ca_file", Value: "$DIR/cert.pem", Shows: `Gateway.Origins[0].TLS.CAFile = "$DIR/cert.pem"`},
	{Setting: "origins[0].tls.server_name", Value: "shop.example", Shows: `Gateway.Origins[0].TLS.ServerName = "shop.example"`},
	{Setting: "origins[0].health.path", Value: "/health", Shows: `Gateway.Origins[0].Health.Path = "/health"`},
	{Setting: "origins[0].health.interval", Value: "18s", Shows: "Gateway.Origins[0].Health.Interval = 18s"},
	{Setting: "origins[0].budget.rate", Value: "19", Shows: `Gateway.Rooms[0].Policy.Budget.Burst = 19000
Gateway.Rooms[0].Policy.Budget.Origin = "shop"
Gateway.Rooms[0].Policy.Budget.Rate = 19000
Gateway.Rooms[0].Policy.Budget.Weight = 1000
Gateway.Rooms[0].Policy.Budget.Weights = 1000
Gateway.Rooms[0].Policy.Budgeted = true`},
	{Setting: "origins[0].budget.burst", Value: "20", Shows: "Gateway.Rooms[0].Policy.Budget.Burst = 20000", With: budget},
	{Setting: "rooms[0].id", Value: "vip", Shows: `Gateway.Rooms[0].ID = "vip"
Gateway.Rooms[0].Page.Room = "vip"`},
	{Setting: "rooms[0].hosts", Value: "[shop.example]", Shows: `Gateway.Rooms[0].Hosts = ["shop.example"]`},
	{Setting: "rooms[0].paths", Value: "[/sale]", Shows: `Gateway.Rooms[0].Paths = ["/sale"]`},
	{Setting: "rooms[0].origin", Value: "other", Shows: `Gateway.Rooms[0].Origin = "other"
Gateway.Rooms[0].Policy.Origin = "other"`, With: twoOrigins},
	{Setting: "rooms[0].enabled", Value: "false", Shows: "Gateway.Rooms[0].Policy.Enabled = none"},
	{Setting: "rooms[0].on_store_error", Value: "closed", Shows: `Gateway.Rooms[0].Policy.OnStoreError = "closed"`},
	{Setting: "rooms[0].poll_budget", Value: "21", Shows: `Gateway.Rooms[0].Policy.PollBudget = 21
Gateway.Rooms[0].PollBudget = 21`},
	{Setting: "rooms[0].admission.strategy", Value: "fixed_window", Shows: `Gateway.Rooms[0].Policy.Strategy = "fixed_window"`},
	{Setting: "rooms[0].admission.rate", Value: "22.5", Shows: "Gateway.Rooms[0].Policy.Rate = 22500"},
	{Setting: "rooms[0].admission.burst", Value: "23", Shows: "Gateway.Rooms[0].Policy.Burst = 23000"},
	{Setting: "rooms[0].admission.max_active", Value: "24", Shows: "Gateway.Rooms[0].Policy.MaxActive = 24"},
	{Setting: "rooms[0].admission.min_wait", Value: "25s", Shows: "Gateway.Rooms[0].Policy.MinWait = 25s"},
	{Setting: "rooms[0].admission.head_window", Value: "26", Shows: "Gateway.Rooms[0].Policy.HeadWindow = 26"},
	{Setting: "rooms[0].admission.min_rate", Value: "27", Shows: "Gateway.Rooms[0].Policy.MinRate = 27000"},
	{Setting: "rooms[0].admission.max_rate", Value: "280", Shows: "Gateway.Rooms[0].Policy.MaxRate = 280000"},
	{Setting: "rooms[0].admission.target_p95", Value: "29ms", Shows: "Gateway.Rooms[0].Policy.Adaptive.TargetP95 = 29ms"},
	{Setting: "rooms[0].admission.max_error_rate", Value: "0.3", Shows: "Gateway.Rooms[0].Policy.Adaptive.MaxErrorRate = 0.3"},
	{Setting: "rooms[0].admission.mode", Value: "step", Shows: `Gateway.Rooms[0].Policy.Adaptive.Mode = "step"`},
	{Setting: "rooms[0].admission.shadow", Value: "true", Shows: "Gateway.Rooms[0].Policy.Adaptive.Shadow = true"},
	{Setting: "rooms[0].admission.prometheus.url", Value: "http://127.0.0.1:9092", Shows: "Gateway.Rooms[0].Policy.Adaptive.Scorer...", With: queried},
	{Setting: "rooms[0].admission.prometheus.query", Value: "down", Shows: `Gateway.Rooms[0].Policy.Adaptive.Scorer.query = "down"`, With: queried},
	{Setting: "rooms[0].queue.method", Value: "passthrough", Shows: `Gateway.Rooms[0].Policy.Method = "passthrough"`},
	{Setting: "rooms[0].queue.on_sold_out", Value: "close", Shows: "Gateway.Rooms[0].Policy.SoldOutCloses = true"},
	{Setting: "rooms[0].board", Value: "on", Shows: `Gateway.Rooms[0].Board = "on"`},
	{Setting: "rooms[0].board", Value: "delayed", Shows: `Gateway.Rooms[0].Board = "delayed"`},
	{Setting: "rooms[0].queue.absence", Value: "31m", Shows: `Gateway.Rooms[0].Page.Absence = 31m0s
Gateway.Rooms[0].Policy.Absence = 31m0s`},
	{Setting: "rooms[0].queue.claim_window", Value: "32s", Shows: "Gateway.Rooms[0].Policy.ClaimWindow = 32s"},
	{Setting: "rooms[0].queue.opens_at", Value: `"2031-01-01T11:00:00Z"`, Shows: `Gateway.Rooms[0].Policy.OpensAt = 1925031600000000
Gateway.Rooms[0].Policy.Plan.draws...`, With: lottery},
	{Setting: "rooms[0].queue.prequeue_at", Value: `"2031-01-01T09:00:00Z"`, Shows: `Gateway.Rooms[0].Policy.Plan.draws[1925028000000000].Gathers = 1925024400000000
Gateway.Rooms[0].Policy.PrequeueAt = 1925024400000000`, With: lottery},
	{Setting: "rooms[0].queue.draw_secret_file", Value: "$DIR/token", Shows: "Gateway.Rooms[0].Policy.Plan.draws...", With: lottery},
	{Setting: "rooms[0].queue.capacity", Value: "33", Shows: "Gateway.Rooms[0].Policy.Capacity = 33"},
	{Setting: "rooms[0].session.ttl", Value: "34s", Shows: "Gateway.Rooms[0].Policy.SessionTTL = 34s"},
	{Setting: "rooms[0].session.renew", Value: "false", Shows: "Gateway.Rooms[0].Renew = none"},
	{Setting: "rooms[0].session.renew", Value: "server", Shows: `Gateway.Rooms[0].Policy.PassLife = 12h0m0s
Gateway.Rooms[0].Renew = none`},
	{Setting: "rooms[0].session.max", Value: "35h", Shows: "Gateway.Rooms[0].MaxSession = 35h0m0s"},
	{Setting: "rooms[0].eta.estimator", Value: "ema", Shows: `Gateway.Rooms[0].Estimator = "ema"`},
	{Setting: "rooms[0].eta.seconds_per_place", Value: "3.6", Shows: "Gateway.Rooms[0].ETA.SecondsPerPlace = 3.6"},
	{Setting: "rooms[0].eta.time_zone", Value: "Asia/Seoul", Shows: "Gateway.Rooms[0].ETA.Zone = Asia/Seoul"},
	{Setting: "rooms[0].eta.weights", Value: "learned", Shows: "Gateway.Rooms[0].LearnWeights = true"},
	{Setting: "rooms[0].eta.weights", Value: "0=1 9=3", Shows: "Gateway.Rooms[0].ETA.Weights..."},
	{Setting: "rooms[0].eta.model_file", Value: "$DIR/model.json", Shows: "Gateway.Rooms[0].ETA.Model..."},
	{Setting: "rooms[0].eta.model_max_age", Value: "37h", Shows: "Gateway.Rooms[0].ETA.Model..."},
	{Setting: "rooms[0].weight", Value: "38", Shows: `Gateway.Rooms[0].Policy.Budget.Weight = 38000
Gateway.Rooms[0].Policy.Budget.Weights = 38000`, With: budget},
	{Setting: "rooms[0].bypass[0].paths", Value: "[/assets]", Shows: `Gateway.Rooms[0].Bypass[0].Paths = ["/assets"]`, With: bypass},
	{Setting: "rooms[0].bypass[0].methods", Value: "[OPTIONS]", Shows: `Gateway.Rooms[0].Bypass[0].Methods = ["OPTIONS"]`, With: bypass},
	{Setting: "rooms[0].bypass[0].ips", Value: "[10.0.0.0/8]", Shows: "Gateway.Rooms[0].Bypass[0].IPs = [10.0.0.0/8]", With: bypass},
	{Setting: "rooms[0].bypass[0].user_agents", Value: "[probe]", Shows: `Gateway.Rooms[0].Bypass[0].UserAgents = ["probe"]`, With: bypass},
	{Setting: "rooms[0].bypass[0].headers", Value: "{X-Key: secret}", Shows: `Gateway.Rooms[0].Bypass[0].Headers[X-Key] = "secret"`, With: bypass},
	{Setting: "rooms[0].alarms[0].name", Value: "b", Shows: `Gateway.Rooms[0].Alarms[0].Name = "b"`, With: alarms},
	{Setting: "rooms[0].alarms[0].when", Value: "inside", Shows: `Gateway.Rooms[0].Alarms[0].When = "inside"`, With: alarms},
	{Setting: "rooms[0].alarms[0].above", Value: "0.5", Shows: "Gateway.Rooms[0].Alarms[0].Above = 0.5", With: alarms},
	{Setting: "rooms[0].alarms[0].for", Value: "30s", Shows: "Gateway.Rooms[0].Alarms[0].For = 30s", With: alarms},
	{Setting: "rooms[0].alarms[0].do", Value: "pause", Shows: `Gateway.Rooms[0].Alarms[0].Do = "pause"`, With: `rooms: [{alarms: [{name: a, when: waiting, do: notify}]}]`},
	{Setting: "rooms[0].alarms[0].rate", Value: "7", Shows: "Gateway.Rooms[0].Alarms[0].Rate = 7000", With: alarms},
	{Setting: "rooms[0].alarms[0].resume_after", Value: "2m", Shows: "Gateway.Rooms[0].Alarms[0].ResumeAfter = 2m0s", With: alarms},
	{Setting: "rooms[0].permits[0].paths", Value: "[/seatmap]", Shows: `Gateway.Rooms[0].Permits[0].Paths = ["/seatmap"]`, With: permits},
	{Setting: "rooms[0].permits[0].methods", Value: "[PUT]", Shows: `Gateway.Rooms[0].Permits[0].Methods = ["PUT"]`, With: permits},
	{Setting: "rooms[0].permits[0].forward", Value: "true", Shows: "Gateway.Rooms[0].Permits[0].Forward = true", With: permits},
	{Setting: "rooms[0].identity.header", Value: "X-Account-Id", Shows: `Gateway.Rooms[0].Identity.Header = "X-Account-Id"`},
	{Setting: "rooms[0].identity.jwt_claim", Value: "email", Shows: `Gateway.Rooms[0].Identity.JWT.Claim = "email"`, With: accounts},
	{Setting: "rooms[0].identity.jwks_url", Value: "https://shop.example/other", Shows: `Gateway.Rooms[0].Identity.JWKSURL = "https://shop.example/other"`, With: accounts},
	{Setting: "rooms[0].identity.jwt_cookie", Value: "session", Shows: `Gateway.Rooms[0].Identity.JWTCookie = "session"`, With: accounts},
	{Setting: "rooms[0].identity.jwt_issuer", Value: "https://shop.example", Shows: `Gateway.Rooms[0].Identity.JWT.Issuer = "https://shop.example"`, With: accounts},
	{Setting: "rooms[0].identity.jwt_audience", Value: "shop", Shows: `Gateway.Rooms[0].Identity.JWT.Audience = "shop"`, With: accounts},
	{Setting: "rooms[0].identity.one_place", Value: "true", Shows: "Gateway.Rooms[0].Identity.OnePlace = true", With: accounts},
	{Setting: "rooms[0].identity.anonymous", Value: "allow", Shows: "Gateway.Rooms[0].Identity.Anonymous = true", With: accounts},
	{Setting: "rooms[0].identity.login_url", Value: "/login", Shows: `Gateway.Rooms[0].Identity.LoginURL = "/login"`},
	{Setting: "rooms[0].guard.joins_per_ip", Value: "20/1m,300/2m", Shows: `Gateway.Rooms[0].Policy.Joins = 20
Gateway.Rooms[0].Policy.JoinsPer = 1m0s
Gateway.Rooms[0].Policy.Wide = 300
Gateway.Rooms[0].Policy.WidePer = 2m0s`},
	{Setting: "rooms[0].guard.requests_per_session", Value: "40/10s", Shows: `Gateway.Rooms[0].SessionRequests.N = 40
Gateway.Rooms[0].SessionRequests.Per = 10s`},
	{Setting: "rooms[0].guard.permits_per_session", Value: "50/20s", Shows: `Gateway.Rooms[0].SessionPermits.N = 50
Gateway.Rooms[0].SessionPermits.Per = 20s`},
	{Setting: "rooms[0].guard.proof_of_work", Value: "always", Shows: `Gateway.Rooms[0].Guard.Proof = "always"`},
	{Setting: "rooms[0].guard.proof.number", Value: "41000", Shows: "Gateway.Rooms[0].Guard.Effort.Number = 41000"},
	{Setting: "rooms[0].guard.proof.join_rate", Value: "42", Shows: "Gateway.Rooms[0].Guard.Effort.JoinRate = 42"},
	{Setting: "rooms[0].guard.proof.most", Value: "43000000", Shows: "Gateway.Rooms[0].Guard.Effort.Most = 43000000"},
	{Setting: "rooms[0].guard.captcha.provider", Value: "hcaptcha", Shows: `Gateway.Rooms[0].Guard.Captcha.Provider = "hcaptcha"`, With: captcha},
	{Setting: "rooms[0].guard.captcha.site_key", Value: "other", Shows: `Gateway.Rooms[0].Guard.Captcha.SiteKey = "other"`, With: captcha},
	{Setting: "rooms[0].guard.captcha.secret_file", Value: "$DIR/token", Shows: `Gateway.Rooms[0].Guard.Captcha.Secret = "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU"`, With: captcha},
	{Setting: "rooms[0].guard.captcha.on_fail", Value: "open", Shows: "Gateway.Rooms[0].Guard.Captcha.Open = true", With: captcha},
	{Setting: "rooms[0].guard.captcha.verify_url", Value: "https://proxy.example/verify", Shows: `Gateway.Rooms[0].Guard.Captcha.VerifyURL = "https://proxy.example/verify"`, With: captcha},
	{Setting: "rooms[0].guard.captcha.hosts", Value: "[tickets.example]", Shows: `Gateway.Rooms[0].Guard.Captcha.Hosts = ["tickets.example"]`, With: captcha},
	{Setting: "rooms[0].guard.captcha.timeout", Value: "44s", Shows: "Gateway.Rooms[0].Guard.Captcha.Timeout = 44s", With: captcha},
	{Setting: "rooms[0].cors_origins", Value: `["https://shop.example"]`, Shows: `Gateway.Rooms[0].CORSOrigins = ["https://shop.example"]`},
	{Setting: "rooms[0].page.status", Value: "503", Shows: "Gateway.Rooms[0].PageStatus = 503"},
	{Setting: "rooms[0].page.template_file", Value: "$DIR/page.html", Shows: `Gateway.Rooms[0].Page.TemplateFile = "$DIR/page.html"`},
	{Setting: "rooms[0].page.title", Value: "Tickets", Shows: `Gateway.Rooms[0].Page.Title = "Tickets"`},
	{Setting: "rooms[0].page.languages", Value: "[ko]", Shows: `Gateway.Rooms[0].Page.Languages = ["ko"]`},
	{Setting: "rooms[0].page.message", Value: "soon", Shows: `Gateway.Rooms[0].Policy.Message = "soon"`},
	{Setting: "rooms[0].page.frame_ancestors", Value: "https://shop.example", Shows: `Gateway.Rooms[0].Page.FrameAncestors = "https://shop.example"`},
	{Setting: "rooms[0].compat", Value: "cloudflare", Shows: `Gateway.Rooms[0].Compat = "cloudflare"`},
	{Setting: "rooms[0].compat_status", Value: "200", Shows: "Gateway.Rooms[0].CompatStatus = 200", With: "rooms: [{compat: cloudflare}]"},
	{Setting: "webhooks[0].name", Value: "erp", Shows: `Webhooks[0].Name = "erp"`, With: hook},
	{Setting: "webhooks[0].url", Value: "https://hooks.example.com/b", Shows: `Webhooks[0].URL = "https://hooks.example.com/b"`, With: hook},
	{Setting: "webhooks[0].secret_file", Value: "$DIR/hook2.secret", Shows: `Webhooks[0].Secrets[0] = "bbbbbbbbbbbbbbbbbbbbbbbb"`, With: hook},
	{Setting: "webhooks[0].events", Value: "[room.changed]", Shows: `Webhooks[0].Events = ["room.changed"]`, With: hook},
	{Setting: "webhooks[0].rooms", Value: "[sale]", Shows: `Webhooks[0].Rooms = ["sale"]`, With: hook},
	{Setting: "webhooks[0].allow_private", Value: "true", Shows: "Webhooks[0].AllowPrivate = true", With: hook},
	{Setting: "rooms[0].events[0].name", Value: "opening", Shows: `Gateway.Rooms[0].Policy.Plan.events[0].Name = "opening"`, With: event},
	{Setting: "rooms[0].events[0].starts_at", Value: `"2031-02-01T11:00:00Z"`, Shows: "Gateway.Rooms[0].Policy.Plan.events[0].Starts = 1927710000000000", With: event},
	{Setting: "rooms[0].events[0].ends_at", Value: `"2031-02-01T13:00:00Z"`, Shows: "Gateway.Rooms[0].Policy.Plan.events[0].Ends = 1927717200000000", With: event},
	{Setting: "rooms[0].events[0].prequeue_at", Value: `"2031-02-01T09:30:00Z"`, Shows: `Gateway.Rooms[0].Policy.Plan.draws[1927706400000000].Gathers = 1927704600000000
Gateway.Rooms[0].Policy.Plan.events[0].Gathers = 1927704600000000`, With: drawnEvent},
	{Setting: "rooms[0].events[0].rate", Value: "45", Shows: "Gateway.Rooms[0].Policy.Plan.events[0].Rate = 45000", With: event},
	{Setting: "rooms[0].events[0].method", Value: "passthrough", Shows: `Gateway.Rooms[0].Policy.Plan.events[0].Method = "passthrough"`, With: event},
}

// built is what serve builds from the configuration.
type built struct {
	Gateway  gateway.Options
	Core     admission.Options
	Console  operatorOptions
	Webhooks []webhook.Endpoint
	Traces   tracing.Options
}

func TestSettings_EachReachesWhatIsBuilt(t *testing.T) {
	model, err := os.ReadFile("../../eta/example.json")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := configtest.SelfSigned(t)
	signing := func() string {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return configtest.PrivatePEM(t, key)
	}
	p256 := func() string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return configtest.PrivatePEM(t, key)
	}
	configtest.Program{
		Settings: config.Settings(),
		Base:     usual,
		Files: map[string]string{
			"secret": "q8Zt4LwYb8NcUe1HsJdAfG0pX2vRk7Q9-m\n", "token": "Zk3vQ9xW2mLr8TbN5cYh7JdF4sGp1AeU\n", "model.json": string(model),
			"hook.secret": "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\n", "otlp.headers": "Authorization: Bearer abc\n", "hook2.secret": "whsec_YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJi\n",
			"page.html": "<meta http-equiv=refresh content={{.Reload}}><h1>{{.Heading}}</h1>", "signing.pem": signing(), "signing2.pem": signing(), "p256.pem": p256(), "token2": "b8JdF4sGp1AeUZk3vQ9xW2mLr8TbN5cY7\n",
			"cert.pem": certificate, "key.pem": key, "cert2.pem": certificate, "key2.pem": key,
		},
		Build: func(t testing.TB, file string) any {
			cfg, err := config.Load(config.Options{File: file, Check: checkParts})
			if err != nil {
				t.Fatal(err)
			}
			options, err := gatewayOptions(cfg, &store{}, nil, nil, io.Discard, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			operators, err := newOperatorOptions(cfg)
			if err != nil {
				t.Fatal(err)
			}
			hooks, err := endpoints(cfg)
			if err != nil {
				t.Fatal(err)
			}
			program := traced(nil, nil)
			traced, err := program.Options(&cfg.Tracing)
			if err != nil {
				t.Fatal(err)
			}
			options.Log = nil
			return built{Traces: traced, Gateway: options, Core: coreOptions(cfg, nil, nil, nil), Console: operators, Webhooks: hooks}
		},
	}.Check(t, settingRows)
}
