package config

import (
	"net/netip"
	"time"
)

// Bulk is the bulk worker's configuration. docs/bulk-config.md is generated from its tags.
type Bulk struct {
	Listen           string               `koanf:"listen" default:"127.0.0.1:8090" doc:"Address of the API, the dashboard and the metrics. Port 0 lets the system choose one, which the log then names. On any other than a loopback address a token is required."`
	TLS              TLS                  `koanf:"tls" doc:"TLS on the listen address; off while both files are empty."`
	TrustedProxies   []netip.Prefix       `koanf:"trusted_proxies" default:"127.0.0.1/32,::1/128" doc:"Peers whose X-Forwarded-For is trusted for the client's address, as CIDR prefixes. Wrong tokens are counted by that address, and without any token only clients on this machine are accepted."`
	Admin            BulkAdmin            `koanf:"admin" doc:"Operators."`
	APITokens        []APIToken           `koanf:"api_tokens" doc:"Bearer tokens of the teams that send jobs. While listen is a loopback address and there is no token at all, none is required."`
	WorkerTokens     []WorkerToken        `koanf:"worker_tokens" doc:"Bearer tokens of workers that pull jobs over HTTP. They admit to /v1/work only; admin.token does as well."`
	Log              BulkLog              `koanf:"log" doc:"Logs go to stderr."`
	Tracing          Tracing              `koanf:"tracing" doc:"Traces by OpenTelemetry (docs/tracing.md); off without otlp_endpoint."`
	Store            BulkStore            `koanf:"store" doc:"Redis 7 or later, or Valkey. The gateway may use the same."`
	Shards           int                  `koanf:"shards" default:"1" min:"1" max:"256" doc:"Parts of the store, each with the work of one core of Redis. The number is that of the installation: a smaller one is refused at start, and further shards are used from bulkworker shards open on. Shard n is in the slot of {bulk:n}: on any node of a cluster in store.url, or on the server n mod k of k store.urls."`
	Durability       string               `koanf:"durability" default:"none" enum:"none,replica,disk" doc:"When a submission is confirmed. none: the store has it in memory, and writes it to disk as its appendfsync setting says. replica: one replica has it as well. disk: it is on the store's disk, for which Redis 7.2 or later has to run with appendonly."`
	Rate             BulkRate             `koanf:"rate" doc:"Rates at which jobs start."`
	Limiter          string               `koanf:"limiter" default:"gcra" enum:"gcra,fixed_window" doc:"gcra: no sliding second holds more than rate and burst. fixed_window: each rate.window of the clock has the whole rate of its length, so a sliding window may have up to twice as many."`
	FairQueue        FairQueue            `koanf:"fair_queue" doc:"Order of jobs."`
	Congestion       Congestion           `koanf:"congestion" doc:"Wait of jobs that were refused or have failed."`
	Dispatch         Dispatch             `koanf:"dispatch" doc:"Return of jobs whose wait is over."`
	ReadyQueue       ReadyQueue           `koanf:"ready_queue" doc:"Jobs between queue and worker."`
	Worker           Worker               `koanf:"worker" doc:"Workers of this process."`
	Adaptive         Adaptive             `koanf:"adaptive" doc:"Adaptive rate, by the downstream's health."`
	PeopleFirst      PeopleFirst          `koanf:"people_first" doc:"Slower jobs while visitors of the same site wait."`
	Limits           BulkLimits           `koanf:"limits" doc:"Limits of one job and one tenant."`
	Callbacks        Callbacks            `koanf:"callbacks" doc:"Requests to the callback_url of a group that has ended."`
	Retention        Retention            `koanf:"retention" doc:"How long groups, outcomes and dead letters are kept."`
	UnsealedAfter    time.Duration        `koanf:"unsealed_after" default:"24h" min:"1s" max:"8760h" doc:"A group that is not sealed is sealed after this time without a new job or outcome. Its jobs run and it ends; nothing is dropped."`
	UnknownTypeAfter time.Duration        `koanf:"unknown_type_after" default:"24h" min:"1s" max:"8760h" doc:"How long a job waits for a process with a processor for its type. Then it is a dead letter with the code no_processor. A group waits as long for a process with its reducer."`
	Processors       map[string]Processor `koanf:"processors" default:"webhook,email,push" doc:"Where jobs go, by their type. The types webhook, email and push are always there; each is off until it has its url, its smtp, or its fcm or webpush. A submission of a type that is off or missing is refused. This process takes only jobs of its types; a job that was accepted before waits for another process, see unknown_type_after."`
}

type BulkAdmin struct {
	Token string `koanf:"token" secret:"true" doc:"Bearer token that may do everything, for all tenants."`
}

type APIToken struct {
	Name      string   `koanf:"name" doc:"Name of the holder in the log."`
	Tenants   []string `koanf:"tenants" doc:"Tenants whose groups the token may create, read and change; at least one. admin.token is for all of them."`
	TokenFile string   `koanf:"token_file" doc:"File that holds the token, at least 16 characters; blanks and line ends around it are ignored."`
	// Limits of groups that are created with the token.
	MaxWeight   float64 `koanf:"max_weight" default:"0" min:"0" max:"100" doc:"Largest weight of a group. 0: any. A weight affects the groups of its tenant only; operators set the shares of tenants."`
	MaxPriority string  `koanf:"max_priority" default:"" enum:",high,normal,low" doc:"Highest priority of a group, within its tenant only. Empty: any."`
	MaxPending  int64   `koanf:"max_pending" default:"0" min:"0" doc:"Most pending jobs of the tenant when the token adds some, beside limits.pending_per_tenant. 0: no limit of its own."`
	MaxGroups   int64   `koanf:"max_groups" default:"0" min:"0" doc:"Most groups of the tenant when the token creates one, including ended ones that are still kept. 0: any number."`
}

type WorkerToken struct {
	Name      string   `koanf:"name" doc:"Name of the holder in the log."`
	Types     []string `koanf:"types" doc:"Types of jobs that the holder may lease, of every tenant. Empty: all types."`
	TokenFile string   `koanf:"token_file" doc:"File that holds the token, at least 16 characters; blanks and line ends around it are ignored."`
}

type BulkLog struct {
	Level  string `koanf:"level" default:"info" enum:"debug,info,warn,error" doc:"Least severe message that is written."`
	Format string `koanf:"format" default:"json" enum:"json,text" doc:"One JSON object a line, or key=value text."`
}

// BulkStore is Store with its own defaults.
type BulkStore struct {
	URL     string        `koanf:"url" secret:"url" doc:"redis://, rediss:// (TLS), unix://, redis-sentinel:// or redis-cluster://. Empty: the bulk worker starts and supervises a redis-server of its own, together with the gateway where that has the same dir."`
	URLs    []string      `koanf:"urls" secret:"url" doc:"Several servers in place of url, each in any of its forms: shard n is on the server n mod their number. Never change their order or number while they hold data; a start with another order is refused. Rates that all shards share, and people_first, use the first one."`
	Dir     string        `koanf:"dir" default:"./data" doc:"Directory of the embedded store's files. Not used with a url."`
	Prefix  string        `koanf:"prefix" default:"wr" doc:"First part of every key, so that several installations can share one store. Letters, digits, dot, dash and underscore, at most 32."`
	Timeout time.Duration `koanf:"timeout" default:"1s" min:"1ms" max:"1m" doc:"Deadline of one store call."`
}

// Servers returns the servers that hold the shards: shard n is on server n mod their number.
func (s *BulkStore) Servers() []Store {
	urls := s.URLs
	if len(urls) == 0 {
		urls = []string{s.URL}
	}
	servers := make([]Store, len(urls))
	for i, url := range urls {
		servers[i] = Store{URL: url, Dir: s.Dir, Prefix: s.Prefix, Timeout: s.Timeout}
	}
	return servers
}

type BulkRate struct {
	Global    Rate          `koanf:"global" default:"10000" min:"0.001" max:"1000000" unit:"jobs/s" live:"true" doc:"Jobs that start a second, over all tenants and all workers of the store. To start none, pause the groups."`
	Burst     Rate          `koanf:"burst" default:"0" min:"0" max:"1000000" unit:"jobs" doc:"Most jobs that start at one moment after a quiet time, beyond the even pace; at least 1. 0: as many as the rate allows in 100 ms, and at least 1."`
	Window    time.Duration `koanf:"window" default:"1s" min:"1s" max:"60s" doc:"limiter fixed_window: length of a window; use the window of the downstream's own limit. Each window starts at most rate × window jobs, possibly all at its beginning; this applies to the rates of processors too. A rate below one job per window starts one job every 1/rate."`
	PerTenant Rate          `koanf:"per_tenant" default:"0" min:"0" max:"1000000" unit:"jobs/s" live:"true" doc:"Most jobs of one tenant that start a second. 0: no cap; each tenant has its guaranteed share, and may use the shares that others leave unused."`
}

type FairQueue struct {
	Policy string `koanf:"policy" default:"fair" enum:"fair,score" doc:"fair: tenants by weight, then the groups of a tenant by weight. score: all groups of a level, by their age and by the share of their jobs that is done."`
	Alpha  int64  `koanf:"alpha" default:"10000" min:"-1000000000" max:"1000000000" unit:"ms" doc:"score: above 0, groups that are nearly done come first; below 0, all groups share evenly; 0 orders by age alone."`
	Strict bool   `koanf:"strict" default:"false" doc:"Run high before normal before low, instead of in shares of 16 to 4 to 1: low may starve."`
	By     string `koanf:"by" default:"time" enum:"time,starts" doc:"fair: what is shared. time: the time that jobs run, so that a tenant with slow jobs does not hold all workers. starts: the jobs that start, by their cost, however long they run; choose it if rates are the bottleneck, not workers. The classic pipeline (gating: false) shares starts."`
	Gating bool   `koanf:"gating" default:"true" doc:"Hold back all jobs of a tenant or group whose limit is spent. false: take each job and refuse it, as the classic pipeline does."`
}

type Congestion struct {
	Enabled        bool          `koanf:"enabled" default:"true" doc:"Lengthen the wait with the number of jobs of the tenant that already wait. false: always base_backoff."`
	BaseBackoff    time.Duration `koanf:"base_backoff" default:"1s" min:"1ms" max:"1h" doc:"Shortest wait of a job that was refused."`
	MaxBackoff     time.Duration `koanf:"max_backoff" default:"120s" min:"1ms" max:"24h" doc:"Longest such wait; at least base_backoff."`
	MaxAge         time.Duration `koanf:"max_age" default:"24h" min:"1s" max:"8760h" doc:"A job that the downstream has refused for longer is a dead letter."`
	StatsRetention time.Duration `koanf:"stats_retention" default:"1h" min:"1s" max:"720h" doc:"How far back the congestion history goes."`
}

type Dispatch struct {
	Interval time.Duration `koanf:"interval" default:"100ms" min:"10ms" max:"10s" doc:"Time between checks for due jobs, ended leases and housekeeping, unless work is known to be due sooner; at most worker.lease/6. Longer: fewer calls to an idle store, but unforeseen work is found later."`
	Batch    int64         `koanf:"batch" default:"500" min:"1" max:"2000" unit:"jobs" doc:"Most due jobs, and most jobs of ended leases, that one step of the store returns to their groups. While more are due, further steps follow, with other calls between them. Smaller: shorter steps, so other calls wait less. Larger: fewer steps."`
}

type ReadyQueue struct {
	MaxSize int64 `koanf:"max_size" default:"10000" min:"1" max:"1000000" unit:"jobs" doc:"Most jobs that are ready for workers."`
}

type Worker struct {
	Count         int           `koanf:"count" default:"10" min:"0" max:"10000" unit:"workers" doc:"Jobs that this process runs at once. 0: none, for a store whose jobs other workers run, a team's own or such as pull jobs over HTTP: this process serves the API and does the housekeeping, accepts jobs of any type, and uses no processors but those of kind pull. Changes from and to 0 need a restart."`
	Min           int           `koanf:"min" default:"0" min:"0" max:"10000" unit:"workers" doc:"Fewest workers when their number follows the load. 0: 1, or no autoscaling where max is 0 too."`
	Max           int           `koanf:"max" default:"0" min:"0" max:"10000" unit:"workers" doc:"Most workers when their number follows the load. 0: no autoscaling."`
	Batch         int           `koanf:"batch" default:"200" min:"1" max:"1000" unit:"jobs" doc:"Most jobs that are taken from the store at once, of 1 MiB together at most. Above 200 also how many are acknowledged at once."`
	Lease         time.Duration `koanf:"lease" default:"30s" min:"100ms" max:"1h" doc:"Length of a lease, which this process renews while its job runs. A job of a process that died runs again after the lease has ended."`
	JobTimeout    time.Duration `koanf:"job_timeout" default:"30s" min:"1ms" max:"24h" doc:"Longest run of one job; its context is then cancelled, and the try has failed."`
	MaxRetries    int64         `koanf:"max_retries" default:"12" min:"0" max:"1000" unit:"tries" doc:"Most tries after the first failed one; then the job is a dead letter. For processors without retry.max."`
	MaxCrashes    int64         `koanf:"max_crashes" default:"20" min:"1" max:"1000" unit:"crashes" doc:"Leases of one job that may end without an outcome before the job is a dead letter."`
	ShutdownGrace time.Duration `koanf:"shutdown_grace" default:"30s" min:"0s" max:"1h" doc:"How long running jobs may go on after SIGTERM; a job that has not ended by then returns to its group."`
}

// Autoscale returns the bounds between which the number of workers follows the load; both are 0 without autoscaling.
func (w *Worker) Autoscale() (least, most int) {
	if w.Max == 0 {
		return 0, 0
	}
	return max(1, w.Min), w.Max
}

type Adaptive struct {
	Enabled   bool          `koanf:"enabled" default:"false" doc:"Let the rate follow latency and errors of the downstream."`
	MinRate   Rate          `koanf:"min_rate" default:"10" min:"0" max:"1000000" unit:"jobs/s" doc:"Slowest rate, of adaptive and people_first. 0: jobs may stop altogether."`
	MaxRate   Rate          `koanf:"max_rate" default:"10000" min:"0" max:"1000000" unit:"jobs/s" doc:"Fastest rate, of adaptive and people_first."`
	TargetP95 time.Duration `koanf:"target_p95" default:"500ms" min:"1ms" max:"1h" doc:"Target for the 95th percentile of job times; with people_first, jobs slow down when the time to first byte of visitors exceeds seven tenths of it."`
}

type PeopleFirst struct {
	Origin string `koanf:"origin" doc:"Id of the origin whose health gateways on the same store and prefix publish: jobs slow down before visitors have to wait longer. Empty: jobs ignore visitors."`
}

type BulkLimits struct {
	Line             Size  `koanf:"line" default:"64KiB" min:"256B" max:"1MiB" doc:"Longest line of a submission, which is one job; above it the line is rejected."`
	Decompressed     Size  `koanf:"decompressed" default:"1GiB" min:"1MiB" max:"1024GiB" doc:"Longest upload that is sent with Content-Encoding, after decompression; above it 413. An uncompressed upload has any length."`
	Result           Size  `koanf:"result" default:"64KiB" min:"64B" max:"1MiB" doc:"Longest result of a job. A longer result of a webhook, a mail or a push message is dropped, and the job succeeds. A longer result of a team's own Go handler fails the job."`
	PendingPerTenant int64 `koanf:"pending_per_tenant" default:"0" min:"0" max:"1000000000000" unit:"jobs" doc:"Most pending jobs of one tenant; above it 429. 0: no limit."`
}

type Callbacks struct {
	Allow      []string `koanf:"allow" doc:"Private hosts that callbacks and push subscriptions may use: a name or an address, either with a port if needed, or *.example.com. Any other host with an address that is not public is refused."`
	SecretFile string   `koanf:"secret_file" doc:"File with the secret that signs callbacks, at least 16 bytes; blanks and line ends around it are ignored. Empty: they are not signed."`
}

type Retention struct {
	Jobs   time.Duration `koanf:"jobs" default:"24h" min:"1s" max:"8760h" doc:"Outcomes of jobs, from the end of their group."`
	Groups time.Duration `koanf:"groups" default:"168h" min:"1s" max:"8760h" doc:"Groups that have ended. A group with dead letters, or with failed jobs that were not redriven, is kept as long as they are."`
	Dead   time.Duration `koanf:"dead" default:"720h" min:"1s" max:"8760h" doc:"Dead letters, and the payloads of jobs that failed. Deleted dead letters are logged and counted."`
}

type Processor struct {
	Kind        string            `koanf:"kind" enum:",webhook,email,push,pull" doc:"How the jobs of this type are run. May be left out where the type has the name of a kind. pull: not by this process; workers lease them over HTTP, see docs/handlers.md."`
	Timeout     time.Duration     `koanf:"timeout" default:"10s" min:"1ms" max:"24h" doc:"Longest run of one job of this type, and longest exchange with its receiver; worker.job_timeout applies too. Not of kind pull, whose workers end their runs themselves."`
	Rate        Rate              `koanf:"rate" default:"0" min:"0" max:"1000000" unit:"jobs/s" doc:"Jobs of this type that start a second, over all processes, by their cost: the limit of the downstream. The burst is 100 ms of the rate, and at least one job. 0: no limit. PATCH /v1/limits changes it while jobs run."`
	Concurrency int64             `koanf:"concurrency" default:"0" min:"0" max:"1000000" unit:"jobs" doc:"Jobs of this type that run at once, over all processes. 0: no limit. PATCH /v1/limits changes it while jobs run."`
	Batch       int64             `koanf:"batch" default:"0" min:"0" max:"1000000" unit:"jobs" doc:"Most jobs of this type that one pull takes, so that one process does not take them all. 0: worker.batch alone."`
	Retry       RetryPolicy       `koanf:"retry" doc:"When a failed job is tried again. With the defaults a job survives an outage of more than fifteen minutes."`
	Breaker     Breaker           `koanf:"breaker" doc:"Circuit breaker: failures hold back all jobs of this type while the downstream is away. Failures that one tenant's jobs may cause hold back that tenant's jobs only. Failed tries do not count meanwhile."`
	Batching    Batching          `koanf:"batching" only:"webhook" doc:"Several jobs of one group in one request, with a verdict for each."`
	URL         string            `koanf:"url" only:"webhook" secret:"url" doc:"Address that each job is posted to, http:// or https://. Empty: off."`
	SecretFile  string            `koanf:"secret_file" only:"webhook" doc:"File with the secret of X-Bulk-Signature, at least 16 bytes; blanks and line ends around it are ignored. Empty: requests are not signed."`
	Headers     map[string]string `koanf:"headers" only:"webhook" secret:"true" doc:"Headers of each request, as Authorization."`
	SMTP        string            `koanf:"smtp" only:"email" secret:"url" doc:"Mail server, as smtp://user:password@host:587 (STARTTLS) or smtps://…:465. Empty: off."`
	From        string            `koanf:"from" only:"email" doc:"Sender: an address, or a name and the address in angle brackets."`
	FCM         FCM               `koanf:"fcm" only:"push" doc:"Firebase Cloud Messaging, for Android and iOS."`
	APNs        APNs              `koanf:"apns" only:"push" doc:"Apple's push service, with token authentication."`
	WebPush     WebPush           `koanf:"webpush" only:"push" doc:"Push messages to browsers."`
}

type Batching struct {
	Max  int           `koanf:"max" default:"0" min:"0" max:"500" unit:"jobs" doc:"Most jobs of one request, of at most 1 MiB together or one more. A job that has failed before is sent alone. 0: each job is the body of a request of its own. Changes need a restart."`
	Wait time.Duration `koanf:"wait" default:"0s" min:"0s" max:"10s" doc:"How long a job waits for others of its group; it takes a worker meanwhile. A batch starts sooner when it is full, all workers are busy or a limit lets no further job of it start. 0: 50 ms. Changes need a restart."`
}

type RetryPolicy struct {
	Max  int64         `koanf:"max" default:"-1" min:"-1" max:"1000" unit:"tries" doc:"Most tries after the first failed one; then the job is a dead letter. -1: worker.max_retries."`
	Base time.Duration `koanf:"base" default:"1s" min:"1ms" max:"24h" doc:"Wait after the first failed try; each further one doubles it. Up to half of each wait is left out at random. A longer Retry-After, greylisting delay or congestion backoff holds instead."`
	Most time.Duration `koanf:"most" default:"15m" min:"1ms" max:"24h" doc:"Longest such wait; at least base."`
}

type Breaker struct {
	Ratio  float64       `koanf:"ratio" default:"0.5" min:"0" max:"1" doc:"Share of failures, among at least 20 answers within the window, above which the breaker opens. An unbroken run of failures of three or more jobs, over a second or more, opens it as well. 0: no breaker."`
	Window time.Duration `koanf:"window" default:"10s" min:"1s" max:"1h" doc:"How long an answer counts, and the longest pause between probes. The first pause is a second, and each round of probes that fails doubles it."`
	Probe  int64         `koanf:"probe" default:"1" min:"1" max:"1000" unit:"jobs" doc:"Jobs that run as probes after a pause. When no more of them have failed than the ratio allows, twice as many run, three times over; then the breaker closes."`
}

type FCM struct {
	CredentialsFile string `koanf:"credentials_file" doc:"JSON key of a service account. Empty: off."`
	Endpoint        string `koanf:"endpoint" doc:"Address of the service in place of Google's, for tests and proxies."`
}

type APNs struct {
	KeyFile  string `koanf:"key_file" doc:"Authentication key, the .p8 file from Apple's developer account. Empty: off."`
	KeyID    string `koanf:"key_id" doc:"Id of that key."`
	TeamID   string `koanf:"team_id" doc:"Id of the developer team."`
	Topic    string `koanf:"topic" doc:"Topic of notifications that name none: the app's bundle id."`
	Endpoint string `koanf:"endpoint" doc:"Address of the service in place of https://api.push.apple.com, as https://api.sandbox.push.apple.com for apps in development."`
}

type WebPush struct {
	VAPIDKeyFile string `koanf:"vapid_key_file" doc:"JSON file with publicKey, privateKey and subject (a mailto: or https: address). Empty: off."`
}

// Kinds of processors.
const (
	KindWebhook = "webhook"
	KindEmail   = "email"
	KindPush    = "push"
	KindPull    = "pull" // run by workers that lease the jobs over HTTP
)
