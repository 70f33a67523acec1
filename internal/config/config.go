package config

import (
	"net/netip"
	"time"
)

// Rate is visitors (or tokens) per second in thousandths: 2.5/s is 2500.
type Rate int64

// Size is a number of bytes, written as 16KiB, 8MiB or a plain number.
type Size int64

// Config is the whole of the gateway's configuration. The koanf tag is the
// name in file and environment, default the value when nothing is given, doc
// the sentence that docs/config.md prints.
type Config struct {
	Listen          string         `koanf:"listen" default:":8080" doc:"address of the visitors' socket"`
	TLS             TLS            `koanf:"tls"`
	TrustedProxies  []netip.Prefix `koanf:"trusted_proxies" default:"127.0.0.1/32,::1/128" doc:"peers whose X-Forwarded-* and Forwarded are believed"`
	ProxyProtocol   string         `koanf:"proxy_protocol" default:"none" enum:"none,v1,v2,any" doc:"PROXY protocol, from trusted_proxies only"`
	Limits          Limits         `koanf:"limits"`
	ShutdownTimeout time.Duration  `koanf:"shutdown_timeout" default:"30s" doc:"from SIGTERM to the end at the latest"`
	DefaultOrigin   string         `koanf:"default_origin" doc:"origin for what matches no room; empty: the first of origins"`
	OnStoreError    string         `koanf:"on_store_error" default:"wait" enum:"wait,open,closed,local" doc:"what new visitors get while the store is away"`
	Log             Log            `koanf:"log"`
	Tracing         Tracing        `koanf:"tracing"`
	Admin           Admin          `koanf:"admin"`
	Store           Store          `koanf:"store"`
	Tokens          Tokens         `koanf:"tokens"`
	Cookies         Cookies        `koanf:"cookies"`
	Origins         []Origin       `koanf:"origins"`
	Rooms           []Room         `koanf:"rooms"`
}

type TLS struct {
	CertFile     string `koanf:"cert_file" doc:"PEM certificate chain; with key_file it turns TLS on"`
	KeyFile      string `koanf:"key_file" doc:"PEM private key"`
	ClientCAFile string `koanf:"client_ca_file" doc:"PEM bundle; when set, client certificates are asked for and checked"`
}

type Limits struct {
	Header        Size          `koanf:"header" default:"16KiB" doc:"request header block"`
	Target        Size          `koanf:"target" default:"8KiB" doc:"request target"`
	Headers       int           `koanf:"headers" default:"100" doc:"number of header lines"`
	HeaderTimeout time.Duration `koanf:"header_timeout" default:"10s" doc:"from the first byte of a request to the end of its header"`
	BodyIdle      time.Duration `koanf:"body_idle" default:"30s" doc:"longest pause within a request body"`
	WriteIdle     time.Duration `koanf:"write_idle" default:"30s" doc:"longest time that a client may leave an answer unread"`
	Idle          time.Duration `koanf:"idle" default:"75s" doc:"keep-alive connection without a request"`
}

type Log struct {
	Level        string  `koanf:"level" default:"info" enum:"debug,info,warn,error"`
	Format       string  `koanf:"format" default:"json" enum:"json,text"`
	Access       bool    `koanf:"access" default:"true" doc:"write the access log"`
	AccessFormat string  `koanf:"access_format" default:"json" enum:"json,combined"`
	AccessSample float64 `koanf:"access_sample" default:"1" doc:"share of requests that are logged, 0 to 1"`
	AccessIP     string  `koanf:"access_ip" default:"full" enum:"full,prefix" doc:"prefix: /24 and /64"`
}

type Tracing struct {
	OTLPEndpoint string  `koanf:"otlp_endpoint" doc:"OTLP/HTTP collector; empty: off"`
	Sample       float64 `koanf:"sample" default:"0.01" doc:"share of requests, 0 to 1"`
}

type Admin struct {
	Listen string       `koanf:"listen" default:"127.0.0.1:9090"`
	Token  string       `koanf:"token" secret:"true" doc:"bearer token; one is required unless the listen address is loopback"`
	Tokens []AdminToken `koanf:"tokens"`
}

type AdminToken struct {
	Name      string `koanf:"name"`
	TokenFile string `koanf:"token_file"`
	Role      string `koanf:"role" default:"write" enum:"read,write"`
}

type Store struct {
	URL     string        `koanf:"url" secret:"url" doc:"redis:// rediss:// unix:// redis-sentinel:// redis-cluster://; empty: an embedded redis-server"`
	Dir     string        `koanf:"dir" default:"./data" doc:"the embedded store's files"`
	Prefix  string        `koanf:"prefix" default:"wr" doc:"first part of every key"`
	Timeout time.Duration `koanf:"timeout" default:"250ms" doc:"deadline of one store call on the request path"`
}

type Tokens struct {
	Issuer string `koanf:"issuer" default:"anteroom"`
	Keys   []Key  `koanf:"keys"`
	Bind   string `koanf:"bind" default:"none" enum:"none,ip,ua"`
}

type Key struct {
	ID             string `koanf:"id"`
	Alg            string `koanf:"alg" default:"HS256" enum:"HS256,EdDSA"`
	Secret         string `koanf:"secret" secret:"true"`
	SecretFile     string `koanf:"secret_file"`
	PrivateKeyFile string `koanf:"private_key_file"`
	Active         bool   `koanf:"active"`
}

type Cookies struct {
	SameSite string `koanf:"same_site" default:"lax" enum:"lax,strict,none"`
}

type Origin struct {
	ID               string        `koanf:"id"`
	Servers          []string      `koanf:"servers"`
	Timeout          time.Duration `koanf:"timeout" default:"30s" doc:"whole exchange without a body that moves"`
	ConnectTimeout   time.Duration `koanf:"connect_timeout" default:"2s"`
	FirstByteTimeout time.Duration `koanf:"first_byte_timeout" default:"30s"`
	IdleTimeout      time.Duration `koanf:"idle_timeout" default:"60s"`
	MaxConns         int           `koanf:"max_conns" default:"4096"`
	QueueTimeout     time.Duration `koanf:"queue_timeout" default:"1s"`
	MaxBody          Size          `koanf:"max_body" default:"0" doc:"largest request body; 0: no limit"`
	PreserveHost     bool          `koanf:"preserve_host" default:"true"`
	TLS              OriginTLS     `koanf:"tls"`
	Health           Health        `koanf:"health"`
	Budget           Budget        `koanf:"budget"`
}

type OriginTLS struct {
	CAFile     string `koanf:"ca_file"`
	ServerName string `koanf:"server_name"`
}

type Health struct {
	Path     string        `koanf:"path" doc:"empty: passive health only"`
	Interval time.Duration `koanf:"interval" default:"5s"`
}

type Budget struct {
	Rate  Rate `koanf:"rate" default:"0"`
	Burst Rate `koanf:"burst" default:"0"`
}

type Room struct {
	ID           string    `koanf:"id"`
	Hosts        []string  `koanf:"hosts" default:"*"`
	Paths        []string  `koanf:"paths" default:"/"`
	Origin       string    `koanf:"origin"`
	Enabled      bool      `koanf:"enabled" default:"true"`
	OnStoreError string    `koanf:"on_store_error" enum:",wait,open,closed,local"`
	PollBudget   int       `koanf:"poll_budget" default:"20000"`
	Admission    Admission `koanf:"admission"`
	Queue        Queue     `koanf:"queue"`
	Session      Session   `koanf:"session"`
	ETA          ETA       `koanf:"eta"`
	Weight       Rate      `koanf:"weight" default:"1"`
	Bypass       []Bypass  `koanf:"bypass"`
	Identity     Identity  `koanf:"identity"`
	Guard        Guard     `koanf:"guard"`
	CORSOrigins  []string  `koanf:"cors_origins"`
	Page         Page      `koanf:"page"`
	Compat       string    `koanf:"compat" default:"none" enum:"none,cloudflare"`
	Events       []Event   `koanf:"events"`
}

type Admission struct {
	Strategy     string        `koanf:"strategy" default:"token_bucket" enum:"token_bucket,leaky_bucket,fixed_window,adaptive"`
	Rate         Rate          `koanf:"rate" default:"10" doc:"visitors a second, three decimals; 0 admits nobody"`
	Burst        *Rate         `koanf:"burst" doc:"unset: max(1, rate)"`
	MaxActive    int64         `koanf:"max_active" default:"0" doc:"admitted and active visitors together; 0: no limit"`
	MinWait      time.Duration `koanf:"min_wait" default:"0s"`
	HeadWindow   int64         `koanf:"head_window" default:"0"`
	MinRate      Rate          `koanf:"min_rate" default:"5"`
	MaxRate      Rate          `koanf:"max_rate" default:"50"`
	TargetP95    time.Duration `koanf:"target_p95" default:"100ms"`
	MaxErrorRate float64       `koanf:"max_error_rate" default:"0.05"`
	Mode         string        `koanf:"mode" default:"gradient" enum:"gradient,step"`
	Shadow       bool          `koanf:"shadow" default:"false"`
	Prometheus   Prometheus    `koanf:"prometheus"`
}

type Prometheus struct {
	URL   string `koanf:"url"`
	Query string `koanf:"query"`
}

type Queue struct {
	Method         string        `koanf:"method" default:"fifo" enum:"fifo,lottery,passthrough,reject"`
	Absence        time.Duration `koanf:"absence" default:"10m" doc:"how long a place is kept without being heard of; at least 3m"`
	ClaimWindow    time.Duration `koanf:"claim_window" default:"5m"`
	OpensAt        string        `koanf:"opens_at"`
	PrequeueAt     string        `koanf:"prequeue_at"`
	DrawSecretFile string        `koanf:"draw_secret_file"`
	Capacity       int64         `koanf:"capacity" default:"0"`
}

type Session struct {
	TTL   time.Duration `koanf:"ttl" default:"5m"`
	Renew bool          `koanf:"renew" default:"true"`
	Max   time.Duration `koanf:"max" default:"12h"`
}

type ETA struct {
	Estimator string `koanf:"estimator" default:"window" enum:"window"`
}

type Bypass struct {
	Paths      []string          `koanf:"paths"`
	Methods    []string          `koanf:"methods"`
	IPs        []netip.Prefix    `koanf:"ips"`
	UserAgents []string          `koanf:"user_agents"`
	Headers    map[string]string `koanf:"headers"`
}

type Identity struct {
	Header   string `koanf:"header"`
	JWTClaim string `koanf:"jwt_claim"`
	JWKSURL  string `koanf:"jwks_url"`
	OnePlace bool   `koanf:"one_place" default:"false"`
}

type Guard struct {
	JoinsPerIP         string  `koanf:"joins_per_ip"`
	RequestsPerSession string  `koanf:"requests_per_session"`
	ProofOfWork        string  `koanf:"proof_of_work" default:"none" enum:"none"`
	Captcha            Captcha `koanf:"captcha"`
}

type Captcha struct {
	Provider   string `koanf:"provider"`
	SiteKey    string `koanf:"site_key"`
	SecretFile string `koanf:"secret_file"`
	OnFail     string `koanf:"on_fail" default:"closed" enum:"closed,open"`
}

type Page struct {
	Status         int      `koanf:"status" default:"200"`
	TemplateFile   string   `koanf:"template_file"`
	Title          string   `koanf:"title"`
	Languages      []string `koanf:"languages"`
	Message        string   `koanf:"message"`
	FrameAncestors string   `koanf:"frame_ancestors"`
}

type Event struct {
	Name       string `koanf:"name"`
	StartsAt   string `koanf:"starts_at"`
	EndsAt     string `koanf:"ends_at"`
	PrequeueAt string `koanf:"prequeue_at"`
	Rate       Rate   `koanf:"rate"`
	Method     string `koanf:"method"`
}
