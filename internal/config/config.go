package config

import (
	"net/netip"
	"time"
)

// Config is the gateway's configuration. Package settings documents the tags, from which docs/config.md is made.
type Config struct {
	Listen          string         `koanf:"listen" default:":8080" doc:"Address of the visitors' socket. Port 0 lets the system choose one, which the log then names."`
	TLS             TLS            `koanf:"tls" doc:"TLS on the visitors' socket; off while both files are empty."`
	TrustedProxies  []netip.Prefix `koanf:"trusted_proxies" default:"127.0.0.1/32,::1/128" doc:"Peers whose trusted_header, X-Forwarded-Proto and X-Forwarded-Host are trusted, as CIDR prefixes. From any other peer those headers are replaced. Never list networks that visitors connect from; they could forge their address."`
	TrustedHeader   string         `koanf:"trusted_header" default:"X-Forwarded-For" doc:"The one header in which trusted_proxies name the visitor's address: X-Forwarded-For, Forwarded, X-Real-IP, CF-Connecting-IP or another. The proxy has to write it on every request; no other header is used for the address. Forwarded also names scheme and host."`
	ProxyProtocol   string         `koanf:"proxy_protocol" default:"none" enum:"none,v1,v2,any" doc:"Header of the PROXY protocol that every connection from trusted_proxies has to begin with; its address is then the visitor's. From any other peer such a header is a malformed request."`
	Limits          Limits         `koanf:"limits" doc:"Limits of one request."`
	ShutdownTimeout time.Duration  `koanf:"shutdown_timeout" default:"30s" min:"0s" max:"1h" doc:"Longest time from SIGTERM to the end of the process."`
	DefaultOrigin   string         `koanf:"default_origin" doc:"Id of the origin for requests that match no room. Empty: the first of origins, or 421 when every room names its hosts and none matches."`
	OnStoreError    string         `koanf:"on_store_error" default:"wait" enum:"wait,open,closed,local" doc:"New visitors while the store is away: wait gives them a place that is enrolled later, open admits them, closed refuses them, local admits at this gateway's share of the rate."`
	Log             Log            `koanf:"log" doc:"Logs go to stderr."`
	Tracing         Tracing        `koanf:"tracing" doc:"Traces by OpenTelemetry (docs/tracing.md); off without otlp_endpoint."`
	Check           Check          `koanf:"check" doc:"Checks, by which another proxy asks about requests that it forwards itself (docs/check.md). Off while listen and grpc are empty."`
	Admin           Admin          `koanf:"admin" doc:"The operators' listener: metrics, health, API and console."`
	Store           Store          `koanf:"store" doc:"Redis 7 or later, or Valkey."`
	Tokens          Tokens         `koanf:"tokens" doc:"How waiting tokens and passes are signed."`
	Cookies         Cookies        `koanf:"cookies" doc:"Cookies that the gateway sets."`
	Origins         []Origin       `koanf:"origins" doc:"Sites that the gateway stands in front of."`
	Webhooks        []Webhook      `koanf:"webhooks" doc:"HTTP endpoints that get the events of rooms (docs/webhooks.md)."`
	Rooms           []Room         `koanf:"rooms" doc:"Waiting rooms. Without one every request is proxied uncounted."`
}

type TLS struct {
	CertFile     string `koanf:"cert_file" doc:"PEM certificate chain, leaf first. Together with key_file it turns TLS on."`
	KeyFile      string `koanf:"key_file" doc:"PEM private key of cert_file."`
	ClientCAFile string `koanf:"client_ca_file" doc:"PEM bundle of authorities. When set, every client must show a certificate that one of them signed."`
}

type Limits struct {
	Header        Size          `koanf:"header" default:"16KiB" min:"256B" max:"1MiB" doc:"Largest request header block; above it 431."`
	Target        Size          `koanf:"target" default:"8KiB" min:"64B" max:"1MiB" doc:"Longest request target; above it 414."`
	Headers       int           `koanf:"headers" default:"100" min:"1" max:"10000" unit:"lines" doc:"Most header lines in a request; above it 431."`
	HeaderTimeout time.Duration `koanf:"header_timeout" default:"10s" min:"1ms" max:"1h" doc:"Longest time from the first byte of a request to the end of its header."`
	BodyIdle      time.Duration `koanf:"body_idle" default:"30s" min:"1ms" max:"24h" doc:"Longest pause within a request body. Until the response begins it also has to arrive at 256 bytes a second on average, beyond one such pause."`
	WriteIdle     time.Duration `koanf:"write_idle" default:"30s" min:"1ms" max:"24h" doc:"Longest time that a client may leave a response unread."`
	Idle          time.Duration `koanf:"idle" default:"75s" min:"1ms" max:"24h" doc:"How long a keep-alive connection may stay without a request."`

	InFlightPerAddress int `koanf:"in_flight_per_address" default:"256" min:"0" max:"1000000" unit:"requests" doc:"Most requests of one client address (an IPv6 /64 is one) that hold or wait for a connection to an origin, while more than half of its max_conns is in use; above it 503 origin_busy. 0: no limit."`
	InFlightPerSession int `koanf:"in_flight_per_session" default:"256" min:"0" max:"1000000" unit:"requests" doc:"As in_flight_per_address, for one session."`
	TunnelsPerAddress  int `koanf:"tunnels_per_address" default:"256" min:"0" max:"1000000" unit:"connections" doc:"As in_flight_per_address, for upgraded connections such as WebSockets. They do not count towards in_flight_per_address."`
	StreamsPerAddress  int `koanf:"streams_per_address" default:"64" min:"0" max:"1000000" unit:"streams" doc:"Most event streams of waiting visitors of one client address; above it 503 streams_full, and the client polls. 0: no limit."`
}

type Log struct {
	Level        string  `koanf:"level" default:"info" enum:"debug,info,warn,error" doc:"Least severe message that is written."`
	Format       string  `koanf:"format" default:"json" enum:"json,text" doc:"One JSON object a line, or key=value text."`
	Access       bool    `koanf:"access" default:"true" doc:"Write the access log."`
	AccessFormat string  `koanf:"access_format" default:"json" enum:"json,combined" doc:"Access log as JSON or in the combined log format."`
	AccessSample float64 `koanf:"access_sample" default:"1" min:"0" max:"1" unit:"share" doc:"Share of requests that are logged; 1 is all of them."`
	AccessIP     string  `koanf:"access_ip" default:"full" enum:"full,prefix" doc:"Client address as it is, or only its /24 (IPv4) or /64 (IPv6)."`
}

type Tracing struct {
	OTLPEndpoint string  `koanf:"otlp_endpoint" doc:"Collector to which traces are sent by OTLP over HTTP, as http://127.0.0.1:4318; without a path they go to /v1/traces. Empty: no traces."`
	Sample       float64 `koanf:"sample" default:"0.01" min:"0" max:"1" unit:"share" doc:"Share that is traced of what no traced caller has sent; the same on every process."`
	HeadersFile  string  `koanf:"headers_file" doc:"File with header fields for the collector, such as its token: one a line, as Authorization: Bearer abc."`
	ServiceName  string  `koanf:"service_name" doc:"service.name of the traces. Empty: anteroom-gateway or anteroom-bulkworker."`
}

type Check struct {
	Listen  string         `koanf:"listen" doc:"Address of the socket for checks over HTTP, at /.waiting-room/check. Let only proxies reach it. Empty: none."`
	GRPC    string         `koanf:"grpc" doc:"Address of the socket for checks over gRPC, without TLS: Envoy's envoy.service.auth.v3.Authorization. Let only proxies reach it. Empty: none."`
	Trusted []netip.Prefix `koanf:"trusted" doc:"Proxies that may send checks, as CIDR prefixes. Others get 403 check_refused. Required with listen or grpc."`
	Dialect string         `koanf:"dialect" default:"nginx" enum:"nginx,traefik,caddy,envoy,gateway-api,haproxy" doc:"Proxy whose header fields describe requests in checks at listen. Fields of other proxies are ignored."`
	Deny    int            `koanf:"deny" default:"401" min:"300" max:"599" unit:"HTTP status" doc:"Status of the response to a check whose visitor has to wait. nginx: 401 or 403; envoy and gateway-api: 302, 303, 307 or 4xx; traefik, caddy and haproxy also 503; with grpc and without listen 302, 303, 307 or 400 to 599."`
}

type Admin struct {
	Listen string       `koanf:"listen" default:"127.0.0.1:9090" doc:"Address of the operators' socket. On any other than a loopback address a token is required."`
	Token  string       `koanf:"token" secret:"true" doc:"Bearer token that may read and write. For several people use tokens."`
	Tokens []AdminToken `koanf:"tokens" doc:"Further bearer tokens, one for each person or program, read from files."`

	TLS       TLS       `koanf:"tls" doc:"TLS on the operators' socket; files are read again when they change."`
	OIDC      AdminOIDC `koanf:"oidc" doc:"Sign-in of persons through a provider of OpenID Connect, beside tokens (access.md)."`
	TwoPerson []string  `koanf:"two_person" doc:"Actions that a second person has to confirm within 10 minutes: reset, evacuate."`
}

type AdminOIDC struct {
	Issuer           string        `koanf:"issuer" doc:"URL of the provider, exactly as its tokens name it. Empty: nobody signs in, tokens only."`
	ClientID         string        `koanf:"client_id" doc:"Id under which the provider knows this gateway."`
	ClientSecretFile string        `koanf:"client_secret_file" doc:"File that holds the client secret. Sessions are sealed with it: the same secret on every gateway, and another secret ends all sessions."`
	RedirectURL      string        `koanf:"redirect_url" doc:"URL at which browsers reach /auth/callback of admin.listen; https, or http for a loopback address. Register it at the provider."`
	Scopes           []string      `koanf:"scopes" default:"email,profile" doc:"Scopes to ask for besides openid, such as groups."`
	Roles            []OIDCRole    `koanf:"roles" doc:"Who has which role in which rooms. All rules that fit count; a person without one is refused."`
	Idle             time.Duration `koanf:"idle" default:"30m" min:"1m" max:"24h" doc:"A session ends after this time without a request."`
	Session          time.Duration `koanf:"session" default:"12h" min:"5m" max:"168h" doc:"A session ends this long after the sign-in, in use or not."`
}

type OIDCRole struct {
	Claim string   `koanf:"claim" default:"groups" doc:"Name of a claim of the ID token or user info; a.b is b within a. The claim email counts only with email_verified."`
	Value string   `koanf:"value" doc:"Value that the claim has, or has among others."`
	Role  string   `koanf:"role" default:"viewer" enum:"viewer,operator,admin,facts" doc:"The role, as in admin.tokens."`
	Rooms []string `koanf:"rooms" doc:"Ids of the rooms that the role is for. Empty: all."`
}

type AdminToken struct {
	Name      string   `koanf:"name" doc:"Name of the holder in the audit log."`
	TokenFile string   `koanf:"token_file" doc:"File that holds the token; blanks and line ends around it are ignored."`
	Role      string   `koanf:"role" default:"write" enum:"viewer,operator,admin,facts,read,write" doc:"viewer: may read. operator: may also change rooms. admin: may also reset them. facts: may only write facts and notices. read is the former name of viewer, write that of admin (access.md)."`
	Rooms     []string `koanf:"rooms" doc:"Ids of the rooms that the role is for. Empty: all rooms, and requests that are not about one room."`
}

type Store struct {
	URL     string        `koanf:"url" secret:"url" doc:"redis://, rediss:// (TLS), unix://, redis-sentinel:// or redis-cluster://. Empty: the gateway starts and supervises a redis-server of its own."`
	Dir     string        `koanf:"dir" default:"./data" doc:"Directory of the embedded store's files and of the key that it generates. Not used with a url."`
	Prefix  string        `koanf:"prefix" default:"wr" doc:"First part of every key, so that several installations can share one store. Letters, digits, dot, dash and underscore, at most 32."`
	Timeout time.Duration `koanf:"timeout" default:"250ms" min:"1ms" max:"1m" doc:"Deadline of one store call on the request path."`
}

type Tokens struct {
	Issuer string `koanf:"issuer" default:"anteroom" doc:"The iss claim of every token; tokens of another issuer are refused. Installations that share a key, such as staging and production, need different ones, or each accepts the other's passes."`
	Keys   []Key  `koanf:"keys" doc:"Signing keys. One is active and signs, the others still verify. With the embedded store one is generated; with a store.url at least one is required."`
	Bind   string `koanf:"bind" default:"none" enum:"none,ip,ua" doc:"Binds waiting tokens and passes to the client's address prefix (/24 or /64) or to its user agent, so that a copy is refused elsewhere."`
}

type Key struct {
	ID             string `koanf:"id" doc:"The kid of tokens that this key signs. Letters, digits, dot, dash and underscore, at most 64."`
	Alg            string `koanf:"alg" default:"HS256" enum:"HS256,ES256,EdDSA" doc:"HS256 with a secret; ES256 or EdDSA with private_key_file, whose public half is served at /.waiting-room/jwks.json, so that others can verify passes (docs/passes.md)."`
	Secret         string `koanf:"secret" secret:"true" doc:"Secret of an HS256 key, used as it is written; at least 32 bytes."`
	SecretFile     string `koanf:"secret_file" doc:"File with the secret, instead of secret; blanks and line ends around it are ignored."`
	PrivateKeyFile string `koanf:"private_key_file" doc:"PEM file with the private key: ES256: of the curve P-256, PKCS #8 or SEC 1. EdDSA: Ed25519, PKCS #8."`
	Active         bool   `koanf:"active" default:"false" doc:"Signs new tokens. Exactly one key is active; a single key is active without this setting."`
}

type Cookies struct {
	SameSite string `koanf:"same_site" default:"lax" enum:"lax,strict,none" doc:"SameSite attribute. none is for sites that are shown in a frame of another site; such cookies are Partitioned and need TLS."`
}

type Origin struct {
	ID               string        `koanf:"id" doc:"Name that rooms refer to: lower-case letters, digits and dashes, at most 63."`
	Servers          []string      `koanf:"servers" doc:"Addresses as http://host:port or https://host:port, without a path."`
	Timeout          time.Duration `koanf:"timeout" default:"30s" min:"1ms" max:"24h" doc:"Longest time from the arrival of a request to the header of its response, including the wait for a connection. While a body is still being sent, idle_timeout applies instead."`
	ConnectTimeout   time.Duration `koanf:"connect_timeout" default:"2s" min:"1ms" max:"1h" doc:"Longest time to open a connection, including the TLS handshake."`
	FirstByteTimeout time.Duration `koanf:"first_byte_timeout" default:"30s" min:"1ms" max:"24h" doc:"Longest time from the end of the request to the end of the response's header."`
	IdleTimeout      time.Duration `koanf:"idle_timeout" default:"60s" min:"1ms" max:"24h" doc:"Longest pause within the body of a response or a request, and on upgraded connections."`
	MaxConns         int           `koanf:"max_conns" default:"4096" min:"1" max:"1000000" unit:"connections" doc:"Most connections to the origin at once, over all its servers; upgraded ones count. Up to 4096 more requests wait."`
	QueueTimeout     time.Duration `koanf:"queue_timeout" default:"1s" min:"0s" max:"1h" doc:"How long a request waits for one of max_conns before it gets 503. 0: not at all."`
	MaxBody          Size          `koanf:"max_body" default:"0" min:"0" max:"1PiB" doc:"Largest request body; above it 413. 0: no limit."`
	PreserveHost     bool          `koanf:"preserve_host" default:"true" doc:"Send the visitor's Host to the origin; false sends the server's own."`
	ForwardPass      bool          `koanf:"forward_pass" default:"false" doc:"Send the visitor's valid pass to the origin in X-Waiting-Room-Pass, so that it can verify the pass itself (docs/passes.md)."`
	TLS              OriginTLS     `koanf:"tls" doc:"How https servers are verified."`
	Health           Health        `koanf:"health" doc:"Health of the servers."`
	Budget           Budget        `koanf:"budget" doc:"Admissions that all rooms of this origin may make together."`
}

type OriginTLS struct {
	CAFile     string `koanf:"ca_file" doc:"PEM bundle of authorities. Empty: the system's."`
	ServerName string `koanf:"server_name" doc:"Name that the certificate must carry. Empty: the server's host."`
}

type Health struct {
	Path     string        `koanf:"path" doc:"Path that the gateway requests from every server regularly; 2xx and 3xx are healthy. Two failures remove a server, two successes return it. Empty: health follows from ordinary traffic only."`
	Interval time.Duration `koanf:"interval" default:"5s" min:"100ms" max:"1h" doc:"Time between two of those requests. connect_timeout and first_byte_timeout apply to each, but no request takes longer than interval."`
}

type Budget struct {
	Rate  Rate `koanf:"rate" default:"0" min:"0" max:"1000000" doc:"Admissions a second over all rooms of the origin. 0: no budget."`
	Burst Rate `koanf:"burst" default:"0" min:"0" max:"1000000" unit:"visitors" doc:"Most admissions of all those rooms at one moment, after a quiet time. 0: max(1, rate). A burst below rate/10 prevents the full rate from being reached."`
}

type Room struct {
	ID           string    `koanf:"id" doc:"Name of the room in cookies, paths and metrics: lower-case letters, digits and dashes, at most 63."`
	Hosts        []string  `koanf:"hosts" default:"*" doc:"Hosts that the room protects: exact, *.example.com for every subdomain, or * for all."`
	Paths        []string  `koanf:"paths" default:"/" doc:"Paths that the room protects: prefixes of whole segments, or a regular expression after a tilde. The most exact host with a matching path wins; there a regular expression goes before prefixes, the first one listed before others, and a longer prefix before a shorter one. Case is ignored."`
	Origin       string    `koanf:"origin" doc:"Id of the origin. Empty: default_origin, or the only one."`
	Enabled      bool      `koanf:"enabled" default:"true" live:"true" doc:"false proxies the room's requests uncounted, as if the room did not exist."`
	OnStoreError string    `koanf:"on_store_error" enum:",wait,open,closed,local" doc:"As the gateway's on_store_error, for this room. Empty: the gateway's."`
	PollBudget   int       `koanf:"poll_budget" default:"20000" min:"1" max:"10000000" unit:"polls/s" doc:"Polls a second that all waiting visitors of the room together are advised to make."`
	Admission    Admission `koanf:"admission" doc:"When visitors are admitted, and how many."`
	Queue        Queue     `koanf:"queue" doc:"The queue."`
	Session      Session   `koanf:"session" doc:"Sessions of admitted visitors."`
	ETA          ETA       `koanf:"eta" doc:"The estimate that visitors see."`
	Weight       Rate      `koanf:"weight" default:"1" min:"0.001" max:"1000" unit:"weight" doc:"Share of the origin's budget, relative to the other rooms of that origin."`
	Bypass       []Bypass  `koanf:"bypass" doc:"Requests that go to the origin uncounted. A rule matches when each of its conditions matches."`
	Permits      []Step    `koanf:"permits" doc:"Single steps that a visitor with a pass may only take with a permit (docs/permits.md). A rule matches when each of its conditions matches; bypass goes before it."`
	Identity     Identity  `koanf:"identity" doc:"Places that belong to accounts instead of browsers."`
	Guard        Guard     `koanf:"guard" doc:"Measures against clients that take many places."`
	CORSOrigins  []string  `koanf:"cors_origins" doc:"Other sites, as https://shop.example, whose scripts may use the JSON under /.waiting-room/."`
	Page         Page      `koanf:"page" doc:"The waiting page."`
	Board        string    `koanf:"board" default:"off" enum:"off,on,delayed" doc:"Public board at /.waiting-room/{room}/board: queue, rate, waits and facts, for everybody (docs/facts.md). delayed shows figures of a minute ago, rounded."`
	Compat       string    `koanf:"compat" default:"none" enum:"none,cloudflare" doc:"cloudflare adds the cfWaitingRoom object to JSON responses, in every state and to refusals (docs/migrate/cloudflare.md)."`
	CompatStatus int       `koanf:"compat_status" default:"0" min:"0" max:"599" unit:"HTTP status" doc:"compat: cloudflare: status of JSON responses to API clients that wait, for clients that expect 200. Refusals keep their status. 0: 202, and 503 for methods other than GET and HEAD."`
	Events       []Event   `koanf:"events" doc:"Planned times with a policy of their own."`
	Alarms       []Alarm   `koanf:"alarms" doc:"Limits that, exceeded for long enough, pause the room or set its rate, once over all gateways (docs/levers.md)."`
}

type Alarm struct {
	Name        string        `koanf:"name" doc:"Name of the alarm in the audit log: lower-case letters, digits and dashes, at most 40."`
	When        string        `koanf:"when" enum:",origin_errors,origin_p95,waiting,inside" doc:"What is watched: the origin's share of failed requests or p95 over all gateways, the visitors in the queue, or the sessions and admissions."`
	Above       float64       `koanf:"above" default:"0" min:"0" max:"1000000000" unit:"share, s or visitors" doc:"Limit: a share for origin_errors, seconds for origin_p95, else visitors. The alarm acts above it."`
	For         time.Duration `koanf:"for" default:"10s" min:"1s" max:"24h" doc:"How long the value has to be above the limit before the alarm acts, and at most at it before the alarm may act again."`
	Do          string        `koanf:"do" enum:",pause,rate,notify" doc:"pause the room, set its rate, or only write a warning to the log and an entry to the audit log."`
	Rate        *Rate         `koanf:"rate" min:"0" max:"1000000" unit:"visitors/s" doc:"do: rate: the rate that the alarm sets."`
	ResumeAfter time.Duration `koanf:"resume_after" default:"0s" min:"0s" max:"24h" doc:"Time after which the alarm takes its change back, once the value has not been above the limit for the time for. 0: an operator does."`
}

type Webhook struct {
	Name         string   `koanf:"name" doc:"Name in metrics, log and API: lower-case letters, digits and dashes, at most 63. Events that are queued for a name that is removed are given up."`
	URL          string   `koanf:"url" secret:"url" doc:"Address that the events are posted to, http or https. A private address needs allow_private."`
	SecretFile   string   `koanf:"secret_file" doc:"File with the secrets that sign, one a line as whsec_ and base64 of 24 to 64 bytes, at most 5; lines that begin with # are ignored. Every secret signs each request, so that a receiver can change to the next one before the old one is removed."`
	Events       []string `koanf:"events" doc:"Types of events, as room.queue.started. Empty: all but session.ended."`
	Rooms        []string `koanf:"rooms" doc:"Ids of rooms whose events are sent. Empty: all."`
	AllowPrivate bool     `koanf:"allow_private" default:"false" doc:"Allow an address that is not public, as of a service in the same network."`
}

type Admission struct {
	Strategy     string        `koanf:"strategy" default:"token_bucket" enum:"token_bucket,leaky_bucket,fixed_window,adaptive" doc:"How the rate is kept: in bursts, evenly spaced, in windows of a second, or adapted to the health of the origin (docs/policies.md)."`
	Rate         Rate          `koanf:"rate" default:"10" min:"0" max:"1000000" unit:"visitors/s" live:"true" doc:"Visitors admitted a second, with up to three decimals. 0 admits nobody. An adaptive room begins with this rate; a rate that is changed live holds until the change is cleared."`
	Burst        *Rate         `koanf:"burst" max:"1000000" unit:"visitors" live:"true" doc:"Most visitors admitted at one moment after a quiet time; at least 1. Unset: the rate, and at least 1. A burst below rate/40 prevents the full rate from being reached. leaky_bucket and fixed_window have none."`
	MaxActive    int64         `koanf:"max_active" default:"0" min:"0" max:"1000000000" unit:"visitors" live:"true" doc:"Most visitors admitted and active together. 0: no limit."`
	MinWait      time.Duration `koanf:"min_wait" default:"0s" min:"0s" max:"24h" doc:"Shortest wait of a visitor; above 0 no visitor is admitted immediately."`
	HeadWindow   int64         `koanf:"head_window" default:"0" min:"0" max:"1000000000" unit:"visitors" doc:"Largest number of visitors at the front of the queue that one tick may admit; there are four ticks a second. 0: no limit."`
	MinRate      Rate          `koanf:"min_rate" default:"5" min:"0" max:"1000000" unit:"visitors/s" doc:"adaptive: slowest rate, above 0."`
	MaxRate      Rate          `koanf:"max_rate" default:"50" min:"0" max:"1000000" unit:"visitors/s" doc:"adaptive: fastest rate."`
	TargetP95    time.Duration `koanf:"target_p95" default:"100ms" min:"1ms" max:"1h" doc:"adaptive: time to first byte that 95 of 100 requests should keep; three to five times the usual value without a crowd."`
	MaxErrorRate float64       `koanf:"max_error_rate" default:"0.05" min:"0" max:"1" unit:"share" doc:"adaptive: share of failed requests above which the origin counts as unhealthy."`
	Mode         string        `koanf:"mode" default:"gradient" enum:"gradient,step" doc:"adaptive: grow slowly and cut sharply, or one of three fixed rates."`
	Shadow       bool          `koanf:"shadow" default:"false" doc:"adaptive: compute and report the rate, but do not use it."`
	Prometheus   Prometheus    `koanf:"prometheus" doc:"adaptive: health from a query as well."`
}

type Prometheus struct {
	URL   string `koanf:"url" secret:"url" doc:"Address of the Prometheus server. It is queried every 5 s, for at most 4 s; a result is valid for 15 s."`
	Query string `koanf:"query" doc:"PromQL with a result from 0 (unhealthy) to 1 (healthy), as a scalar or a vector of one element."`
}

type Queue struct {
	Method         string        `koanf:"method" default:"fifo" enum:"fifo,lottery,passthrough,reject" live:"true" doc:"fifo: in the order of arrival. passthrough: every visitor is admitted and only counted. reject: closed. lottery: drawn at opens_at; live only if the file has opens_at and draw_secret_file."`
	Absence        time.Duration `koanf:"absence" default:"10m" min:"3m" max:"12h" doc:"How long a place is kept without a poll of its visitor."`
	ClaimWindow    time.Duration `koanf:"claim_window" default:"5m" min:"1s" max:"24h" doc:"How long an admitted visitor may take to claim the admission. Visitors are advised to poll at least every claim_window - 10 s."`
	OpensAt        string        `koanf:"opens_at" doc:"lottery: when the room opens and the draw is made, RFC 3339 with a zone."`
	PrequeueAt     string        `koanf:"prequeue_at" doc:"lottery: beginning of the pre-queue, RFC 3339 with a zone, before opens_at. Empty: always."`
	DrawSecretFile string        `koanf:"draw_secret_file" doc:"lottery: file with the secret that seeds the draw, at least 32 bytes; the same on every gateway."`
	Capacity       int64         `koanf:"capacity" default:"0" min:"0" max:"1000000000" unit:"visitors" doc:"Most visitors in the queue; others get room_full. 0: no limit."`
	OnSoldOut      string        `koanf:"on_sold_out" default:"keep" enum:"keep,close" live:"true" doc:"When every item of the facts is sold out (docs/facts.md): keep goes on; close admits nobody and takes no joins until an item is available again. Places and their order stay."`
}

type Session struct {
	TTL   time.Duration `koanf:"ttl" default:"5m" min:"1s" max:"24h" live:"true" doc:"How long a pass is valid; with renew: server, how long a visitor may be silent. A visitor who is away for 1.5 times as long no longer counts against max_active."`
	Renew string        `koanf:"renew" default:"true" enum:"true,false,server" doc:"true: a pass is signed again while it is used. server: a pass is signed once, until session.max, and the gateways end the session ttl to 1.5 times ttl after its last request (docs/waiting.md); for proxies that cannot send the new cookie to the visitor. ttl is then at least 4s. false: the session ends ttl after it began."`
	Max   time.Duration `koanf:"max" default:"12h" min:"1s" max:"720h" doc:"Longest session, renewed or not; at least ttl."`
}

type ETA struct {
	Estimator       string        `koanf:"estimator" default:"window" enum:"window,fixed,ema,hourly,model" doc:"window: sliding windows of 1, 5 and 15 minutes over the admissions. ema: exponential averages of 30 s and 300 s. fixed: seconds_per_place. hourly: window by the weights of the hours. model: window, corrected by model_file. See eta.md."`
	SecondsPerPlace float64       `koanf:"seconds_per_place" default:"0" min:"0" max:"86400" unit:"s" doc:"Time for one place in the queue: always used by fixed, and by the others until there are admissions. 0: 1/rate of the rate in force, which is also the least."`
	TimeZone        string        `koanf:"time_zone" default:"UTC" doc:"hourly, model: zone of the hours of the day, as Europe/Berlin."`
	Weights         string        `koanf:"weights" default:"0=0.3 9=1 12=1.5 18=2 22=0.8" doc:"hourly: admissions in an hour relative to other hours, as hour=weight; each holds until the next. learned: weights that this gateway has observed, and the default for hours that it has not."`
	ModelFile       string        `koanf:"model_file" doc:"model: file made by tools/eta-train."`
	ModelMaxAge     time.Duration `koanf:"model_max_age" default:"2160h" min:"0s" max:"87600h" doc:"model: window is used instead of a model that is older. 0: any age."`
}

type Bypass struct {
	Paths      []string          `koanf:"paths" doc:"Any of these paths, as in a room's paths."`
	Methods    []string          `koanf:"methods" doc:"Any of these methods."`
	IPs        []netip.Prefix    `koanf:"ips" doc:"A client address in any of these prefixes."`
	UserAgents []string          `koanf:"user_agents" doc:"A User-Agent that contains any of these texts, whatever their case."`
	Headers    map[string]string `koanf:"headers" doc:"Each of these headers with exactly this value; an empty value only requires that the header is present."`
}

type Step struct {
	Paths   []string `koanf:"paths" doc:"Any of these paths, as in a room's paths. Empty: every path."`
	Methods []string `koanf:"methods" doc:"Any of these methods. Empty: every method, GET included, so that a direct link is refused."`
	Forward bool     `koanf:"forward" default:"false" doc:"Send the permit to the origin as X-Waiting-Room-Permit, so that it can redeem it."`
}

type Identity struct {
	Header      string `koanf:"header" doc:"Request header in which a trusted proxy names the account. From anyone else it is neither read nor forwarded."`
	JWTClaim    string `koanf:"jwt_claim" doc:"Claim of the site's own JWT that names the account, as sub. It comes as Authorization: Bearer, or in the cookie jwt_cookie."`
	JWKSURL     string `koanf:"jwks_url" secret:"url" doc:"Where the public keys of that JWT are (RFC 7517): RS256, ES256 and EdDSA."`
	JWTCookie   string `koanf:"jwt_cookie" doc:"Cookie that holds that JWT; browsers send no Authorization header with a page. Empty: none."`
	JWTIssuer   string `koanf:"jwt_issuer" doc:"The iss that the JWT must have. Empty: any."`
	JWTAudience string `koanf:"jwt_audience" doc:"The aud that the JWT must have among others. Empty: any."`
	OnePlace    bool   `koanf:"one_place" default:"false" doc:"An account has one place, however many browsers it uses."`
	Anonymous   string `koanf:"anonymous" default:"refuse" enum:"refuse,allow" doc:"Visitors without an account: refuse refuses them a place (401 account_required), allow gives each browser a place of its own."`
	LoginURL    string `koanf:"login_url" doc:"Link on the page that refuses them: a path of the site outside the room, or an https address. Empty: nowhere."`
}

type Guard struct {
	JoinsPerIP         string  `koanf:"joins_per_ip" doc:"Most places that one address (/64 for IPv6) may take in a time, as 20/1m; after a comma, the same for its network (/24, /48 for IPv6), as 20/1m,200/1m. Default for the network: ten times as many. Empty: no limit."`
	RequestsPerSession string  `koanf:"requests_per_session" doc:"Most requests of one session in a time, over all gateways, as 100/10s: up to this many at once after a quiet time, and then this many in each such time. Above it 429 session_requests; the session continues. Empty: no limit."`
	PermitsPerSession  string  `koanf:"permits_per_session" default:"10/1s" doc:"Most permits of one session in a time, over all gateways, as 10/1s. Above it 429 too_many_permits. Empty: no limit."`
	ProofOfWork        string  `koanf:"proof_of_work" default:"none" enum:"none,auto,always" doc:"Work (ALTCHA) that a client does for a place. auto: while visitors wait, more join than proof.join_rate, or a pre-queue is open. always: for every place, even if no visitor has to wait."`
	Proof              Proof   `koanf:"proof" doc:"Amount of that work."`
	Captcha            Captcha `koanf:"captcha" doc:"A CAPTCHA before a place is given."`
}

type Proof struct {
	Number   int64 `koanf:"number" default:"24000000" min:"1000" max:"100000000" unit:"hashes" doc:"Most SHA-256 hashes that a client computes for a place (maxnumber of ALTCHA), half of them on average. The default takes about a second of processor time in a browser or a program."`
	JoinRate Rate  `koanf:"join_rate" default:"50" min:"0.001" max:"1000000" unit:"joins/s" doc:"Joins a second, over all gateways, above which proof.number grows; each doubling of the joins doubles it."`
	Most     int64 `koanf:"most" default:"96000000" min:"1000" max:"100000000" unit:"hashes" doc:"Largest proof.number after doubling."`
}

type Captcha struct {
	Provider   string        `koanf:"provider" enum:",turnstile,hcaptcha,recaptcha" doc:"Provider of the CAPTCHA. The page then loads the provider's script, the one request that leaves the site. Empty: none."`
	SiteKey    string        `koanf:"site_key" doc:"Public key of the site, from the provider."`
	SecretFile string        `koanf:"secret_file" doc:"File with the secret key, from the provider; blanks and line ends around it are ignored."`
	Hosts      []string      `koanf:"hosts" doc:"Hosts on which the CAPTCHA may be solved: names, or *.example.com for every subdomain. Empty: the room's hosts; a room over * has to name them."`
	OnFail     string        `koanf:"on_fail" default:"closed" enum:"closed,open" doc:"Joins while the provider is away: closed refuses them, open accepts them. A provider that refuses to check an answer is not away."`
	VerifyURL  string        `koanf:"verify_url" doc:"Address that checks answers, for a proxy in front of the provider. Empty: the provider's own."`
	Timeout    time.Duration `koanf:"timeout" default:"3s" min:"100ms" max:"1m" doc:"Longest time for the provider's response."`
}

type Page struct {
	Status         int      `koanf:"status" default:"200" min:"200" max:"599" unit:"HTTP status" doc:"Status of the waiting page: 2xx, 4xx or 5xx with a body."`
	TemplateFile   string   `koanf:"template_file" doc:"html/template file used instead of the built-in page; docs/page.md has its fields."`
	Title          string   `koanf:"title" doc:"Title of the page. Empty: the built-in one, in the visitor's language."`
	Languages      []string `koanf:"languages" doc:"Languages that are offered, the first being the fallback, as en or ko. Empty: all that are built in."`
	Message        string   `koanf:"message" live:"true" doc:"Operator's message to waiting visitors, plain text, at most 1000 characters."`
	FrameAncestors string   `koanf:"frame_ancestors" doc:"Sites that may show the page in a frame, as in the CSP directive. Empty: none."`
}

type Event struct {
	Name       string `koanf:"name" doc:"Name of the event, for operators."`
	StartsAt   string `koanf:"starts_at" doc:"Beginning, RFC 3339 with a zone; of a lottery also the opening."`
	EndsAt     string `koanf:"ends_at" doc:"End, RFC 3339 with a zone."`
	PrequeueAt string `koanf:"prequeue_at" doc:"lottery: beginning of the pre-queue, RFC 3339 with a zone."`
	Rate       Rate   `koanf:"rate" default:"0" min:"0" max:"1000000" unit:"visitors/s" doc:"Rate during the event; for an adaptive strategy, its max_rate. 0: the room's."`
	Method     string `koanf:"method" enum:",fifo,lottery,passthrough,reject" doc:"Queue method during the event, as queue.method. Empty: the room's."`
}
