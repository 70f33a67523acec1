package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/settings"
)

// Validate returns every problem that the types do not exclude: bounds, settings that contradict each other, and files.
func (c *Bulk) Validate() []Problem {
	check := bulkChecker{checker{settings.Check(c)}, c}
	check.access()
	check.tracing(c.Tracing)
	check.store(c.Store.Servers()[0])
	check.shards()
	check.pace()
	check.secretFile("callbacks.secret_file", c.Callbacks.SecretFile)
	for _, name := range slices.Sorted(maps.Keys(c.Processors)) {
		check.processor(name, c.Processors[name])
	}
	return check.List
}

// Warnings lists settings that are allowed but usually a mistake.
func (c *Bulk) Warnings() []Problem {
	var list []Problem
	warn := func(path, message string) { list = append(list, Problem{Path: path, Message: message}) }
	switch active := c.Active(); {
	case c.Worker.Count == 0 && len(active) > 0:
		warn("worker.count", "is 0, so the processors "+strings.Join(active, ", ")+" are not used: no job runs in this process")
	case c.Worker.Count > 0 && len(active) == 0 && len(c.Pulled()) == 0:
		warn("processors", "all are off: submissions are refused, and jobs that were accepted before wait for another process; set url, smtp, fcm, webpush or apns of a processor")
	}
	if c.Admin.Token != "" && len(c.Admin.Token) < shortToken {
		warn("admin.token", "has fewer than 16 characters and can be guessed")
	}
	for i, p := range c.TrustedProxies {
		if p.Bits() == 0 {
			warn(settings.Element("trusted_proxies", i), "every peer is trusted and can forge its client address")
		}
	}
	if c.Retention.Groups < c.Retention.Jobs {
		warn("retention.groups", "is less than retention.jobs: outcomes are deleted with their group")
	}
	if c.Limiter != "fixed_window" && c.Rate.Window != time.Second {
		warn("rate.window", "is not used with limiter "+c.Limiter)
	}
	if c.Worker.Lease < 3*c.Store.Timeout {
		warn("worker.lease", "is less than three times store.timeout: one slow call can lose a lease, and its job runs twice")
	}
	if a := c.Adaptive; (a.Enabled || c.PeopleFirst.Origin != "") && (c.Rate.Global < a.MinRate || c.Rate.Global > a.MaxRate) {
		warn("rate.global", "("+c.Rate.Global.String()+"), with which an adaptive rate begins, is not within adaptive.min_rate ("+a.MinRate.String()+") and adaptive.max_rate ("+a.MaxRate.String()+"): it begins at the nearer of them")
	}
	for _, name := range c.Active() {
		if p := c.Processors[name]; p.Kind == KindWebhook && p.SecretFile == "" {
			warn("processors."+name+".secret_file", "is empty: the receiver cannot verify that a request comes from the bulk worker")
		}
	}
	return list
}

var (
	tenantPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	typePattern   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	// jobTypePattern is of the types of jobs; a processor's name is also a part of settings' paths.
	jobTypePattern = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,64}$`)
)

// access checks the listener and the tokens.
func (c bulkChecker) access() {
	host, _, ok := c.listen("listen", c.cfg.Listen)
	c.tls("tls", c.cfg.TLS)
	if ok && !isLoopback(host) && c.cfg.Admin.Token == "" && len(c.cfg.APITokens) == 0 {
		c.Add("admin.token", "is missing; %q can be reached from other machines, so give a token (or api_tokens), or listen on 127.0.0.1", c.cfg.Listen)
	}
	c.bearer("admin.token", c.cfg.Admin.Token)
	seen := tokensSeen{names: map[string]bool{}, tokens: map[string]bool{c.cfg.Admin.Token: true}}
	for i, t := range c.cfg.APITokens {
		path := settings.Element("api_tokens", i)
		c.holder(path, t.Name, seen)
		if len(t.Tenants) == 0 {
			c.Add(path+".tenants", "is empty; list the tenants that the token is for (admin.token is for all)")
		}
		for j, tenant := range t.Tenants {
			if !tenantPattern.MatchString(tenant) {
				c.Add(settings.Element(path+".tenants", j), "%q is not a tenant; use 1 to 64 letters, digits, dots, dashes and underscores", settings.Clip(tenant))
			}
		}
		c.tokenFile(path+".token_file", t.TokenFile, seen)
	}
	for i, t := range c.cfg.WorkerTokens {
		path := settings.Element("worker_tokens", i)
		c.holder(path, t.Name, seen)
		for j, name := range t.Types {
			if !jobTypePattern.MatchString(name) {
				c.Add(settings.Element(path+".types", j), "%q is not a job type; use 1 to 64 letters, digits, dots, dashes, underscores, colons and slashes", settings.Clip(name))
			}
		}
		c.tokenFile(path+".token_file", t.TokenFile, seen)
	}
	if len(c.cfg.WorkerTokens) > 0 && c.cfg.Admin.Token == "" && len(c.cfg.APITokens) == 0 {
		c.Add("worker_tokens", "are the only tokens, and with any token every request needs one; give admin.token or api_tokens too, or nobody can submit jobs")
	}
}

// tokensSeen are the names and tokens of the entries so far, which have to differ.
type tokensSeen struct{ names, tokens map[string]bool }

// holder checks the name of a token's holder.
func (c bulkChecker) holder(path, name string, seen tokensSeen) {
	switch {
	case name == "":
		c.Add(path+".name", "is missing; use the name of the team, which the log shows")
	case seen.names[name]:
		c.Add(path+".name", "%q is there already; names are unique", settings.Clip(name))
	}
	seen.names[name] = true
}

// tokenFile checks the file of a token.
func (c bulkChecker) tokenFile(path, file string, seen tokensSeen) {
	if file == "" {
		c.Add(path, "is missing; use the path of a file that holds the token")
		return
	}
	token, err := readTrimmed(file, shortToken)
	if err != nil {
		c.Add(path, "%v", err)
		return
	}
	if seen.tokens[token] {
		c.Add(path, "%q holds a token that is already used above; give each entry its own token", file)
	}
	seen.tokens[token] = true
	c.bearer(path, token)
}

// shards checks the servers of the shards.
func (c bulkChecker) shards() {
	s := c.cfg.Store
	if s.URL != "" && len(s.URLs) > 0 {
		c.Add("store.urls", "and store.url are both set; keep one of them")
	}
	if c.cfg.Shards > 0 && len(s.URLs) > c.cfg.Shards {
		c.Add("store.urls", "has %d servers for %d shards; set shards to a multiple of %d, or leave out servers", len(s.URLs), c.cfg.Shards, len(s.URLs))
	}
	for i, url := range s.URLs {
		path := settings.Element("store.urls", i)
		if url == "" {
			c.Add(path, "is empty; use redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://")
		} else if slices.Index(s.URLs, url) < i {
			c.Add(path, "is in the list already; each server is listed once")
		} else {
			c.storeURL(path, url, s.Timeout)
		}
	}
}

// pace checks rates, waits and workers against each other.
func (c bulkChecker) pace() {
	if r := c.cfg.Rate; r.PerTenant > r.Global {
		c.Add("rate.per_tenant", "%s is more than rate.global (%s)", r.PerTenant, r.Global)
	}
	if b := c.cfg.Rate.Burst; b > 0 && b < 1000 {
		c.Add("rate.burst", "%s never starts a whole job; use at least 1, or 0 for 100 ms of the rate", b)
	}
	if g := c.cfg.Congestion; g.BaseBackoff > g.MaxBackoff {
		c.Add("congestion.base_backoff", "%s is more than congestion.max_backoff (%s)", settings.FormatDuration(g.BaseBackoff), settings.FormatDuration(g.MaxBackoff))
	}
	if a := c.cfg.Adaptive; a.MinRate > a.MaxRate {
		c.Add("adaptive.min_rate", "%s is more than adaptive.max_rate (%s)", a.MinRate, a.MaxRate)
	}
	if p := c.cfg.PeopleFirst.Origin; p != "" && (!idPattern.MatchString(p)) {
		c.Add("people_first.origin", "%q is not an origin of a gateway; use an id such as shop: lower-case letters, digits and dashes", settings.Clip(p))
	}
	w := c.cfg.Worker
	if w.Min > w.Max {
		c.Add("worker.min", "%d is more than worker.max (%d); for autoscaling give worker.max, without it leave both at 0", w.Min, w.Max)
	} else if least, most := w.Autoscale(); most > 0 && (w.Count < least || w.Count > most) {
		c.Add("worker.count", "%d is not between worker.min (%d) and worker.max (%d), where the number of workers begins", w.Count, least, most)
	}
	if c.cfg.Durability == "replica" && c.cfg.Store.URL == "" && len(c.cfg.Store.URLs) == 0 {
		c.Add("durability", "replica needs a store.url: the embedded store has no replica")
	}
}

func (c bulkChecker) secretFile(path, name string) {
	if name == "" {
		return
	}
	if _, err := readTrimmed(name, shortToken); err != nil {
		c.Add(path, "%v", err)
	}
}

// defaultTimeout is the default of processors.<name>.timeout.
const defaultTimeout = 10 * time.Second

func (c bulkChecker) processor(name string, p Processor) {
	path := settings.Join("processors", name)
	if !typePattern.MatchString(name) {
		c.Add(path, "%q is not a job type; use 1 to 64 letters, digits, dots, dashes and underscores", settings.Clip(name))
	}
	if p.Kind == "" {
		c.Add(path+".kind", "is missing; use webhook, email, push or pull")
		return
	}
	for _, s := range settings.Foreign(p, p.Kind) {
		c.Add(settings.Join(path, s.Name), "belongs to kind %s, and this is %s; leave it out", s.Only, p.Kind)
	}
	if r := p.Retry; r.Base > r.Most {
		c.Add(path+".retry.base", "%s is more than %s.retry.most (%s)", settings.FormatDuration(r.Base), path, settings.FormatDuration(r.Most))
	}
	// The package that runs the processor checks its other settings.
	switch p.Kind {
	case KindWebhook:
		c.secretFile(path+".secret_file", p.SecretFile)
		if p.Batching.Max == 0 && p.Batching.Wait > 0 {
			c.Add(path+".batching.wait", "has no effect without batching.max; set it to the most jobs of a request")
		}
	case KindEmail:
		if p.SMTP == "" && p.From != "" {
			c.Add(path+".smtp", "is missing; from alone sends nothing")
		}
	case KindPull:
		if p.Timeout != defaultTimeout {
			c.Add(path+".timeout", "belongs to kinds webhook, email and push, and this is pull, whose workers end their runs themselves; leave it out")
		}
	case KindPush:
		if a := p.APNs; a.KeyFile == "" && a != (APNs{}) {
			c.Add(path+".apns.key_file", "is missing; the other settings of apns need a key")
		}
		if p.FCM.CredentialsFile == "" && p.FCM.Endpoint != "" {
			c.Add(path+".fcm.credentials_file", "is missing; fcm.endpoint needs the key of a service account")
		}
	}
	if strings.Contains(p.URL, settings.Mask) {
		c.Add(path+".url", "holds the mask that print-config writes; give the real one")
	}
	if strings.Contains(p.SMTP, settings.Mask) {
		c.Add(path+".smtp", "holds the mask that print-config writes; give the real password")
	}
	for _, header := range slices.Sorted(maps.Keys(p.Headers)) {
		if p.Headers[header] == settings.Mask {
			c.Add(path+".headers", "%s is the mask that print-config writes; give the real value", header)
		}
	}
}
