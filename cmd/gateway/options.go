package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/promscore"
	"github.com/anteroom/anteroom/token"
)

// proxyProtocols are the values of proxy_protocol.
var proxyProtocols = map[string]wire.ProxyProtocol{"v1": wire.ProxyProtocolV1, "v2": wire.ProxyProtocolV2, "any": wire.ProxyProtocolV1 | wire.ProxyProtocolV2}

func coreOptions(cfg *config.Config, client redis.UniversalClient, observe func(script string, took time.Duration, err error), log *slog.Logger) admission.Options {
	return admission.Options{Client: client, Prefix: cfg.Store.Prefix, Timeout: cfg.Store.Timeout, Log: log, Observe: observe}
}

// gatewayOptions returns the options of the gateway for a configuration.
func gatewayOptions(cfg *config.Config, s *store, core *admission.Core, registry prometheus.Registerer, access io.Writer, log *slog.Logger) (gateway.Options, error) {
	ring, idKey, accounts, err := s.keys(cfg)
	if err != nil {
		return gateway.Options{}, err
	}
	name, _ := cli.BuildVersion(version)
	l := cfg.Limits
	o := gateway.Options{
		Log: log, Version: name, Core: core, Registerer: registry,
		Limits: wire.Limits{
			Header: int(l.Header), Target: int(l.Target), Headers: l.Headers, HeaderTimeout: l.HeaderTimeout,
			BodyIdle: l.BodyIdle, WriteIdle: l.WriteIdle, Idle: l.Idle,
		},
		StreamsPerAddress: l.StreamsPerAddress,
		Shares:            proxy.Shares{Address: l.InFlightPerAddress, Session: l.InFlightPerSession, Tunnels: l.TunnelsPerAddress},
		Ring:              ring, IDKey: idKey, AccountKeys: accounts, Bind: cfg.Tokens.Bind, SameSite: cfg.Cookies.SameSite,
		TrustedProxies: cfg.TrustedProxies, TrustedHeader: cfg.TrustedHeader, ProxyProtocol: proxyProtocols[cfg.ProxyProtocol],
		LastRequest: min(lastRequest, cfg.ShutdownTimeout/3),
		TLS:         certs.Files(cfg.TLS),
		Access:      gateway.Access{Combined: cfg.Log.AccessFormat == "combined", Sample: cfg.Log.AccessSample, Prefix: cfg.Log.AccessIP == "prefix"},
		// Empty stays empty: without a default origin, hosts of no room are refused.
		DefaultOrigin: cfg.DefaultOrigin,
		Check:         gateway.Check{Trusted: cfg.Check.Trusted, Deny: cfg.Check.Deny},
	}
	if o.Check.Dialect, err = dialect.Parse(cfg.Check.Dialect); err != nil {
		return gateway.Options{}, fmt.Errorf("check.dialect: %w", err)
	}
	if cfg.Log.Access {
		o.Access.Output = access
	}
	for _, c := range cfg.Origins {
		o.Origins = append(o.Origins, proxy.Config{
			ID: c.ID, Servers: c.Servers, Timeout: c.Timeout, ConnectTimeout: c.ConnectTimeout, FirstByteTimeout: c.FirstByteTimeout,
			IdleTimeout: c.IdleTimeout, QueueTimeout: c.QueueTimeout, MaxConns: c.MaxConns, MaxBody: int64(c.MaxBody),
			PreserveHost: c.PreserveHost, ForwardPass: c.ForwardPass, TLS: proxy.TLSConfig{CAFile: c.TLS.CAFile, ServerName: c.TLS.ServerName},
			Health: proxy.HealthConfig{Path: c.Health.Path, Interval: c.Health.Interval},
		})
	}
	for i := range cfg.Rooms {
		room, err := roomOptions(cfg, &cfg.Rooms[i])
		if err != nil {
			return gateway.Options{}, err
		}
		var setting string
		if room.ETA, setting, err = estimates(&cfg.Rooms[i].ETA); err != nil {
			return gateway.Options{}, fmt.Errorf("rooms.%s.eta.%s: %w", room.ID, setting, err)
		}
		o.Rooms = append(o.Rooms, room)
	}
	return o, nil
}

func roomOptions(cfg *config.Config, r *config.Room) (gateway.Room, error) {
	p, err := policy(cfg, r)
	if err != nil {
		return gateway.Room{}, err
	}
	room := gateway.Room{
		ID: r.ID, Hosts: r.Hosts, Paths: r.Paths, Policy: p,
		PollBudget: r.PollBudget, Renew: r.Session.Renew == "true", MaxSession: r.Session.Max, CORSOrigins: r.CORSOrigins,
		Page: pageOptions(r), Board: r.Board, PageStatus: r.Page.Status, Compat: r.Compat, CompatStatus: r.CompatStatus, Estimator: r.ETA.Estimator, LearnWeights: r.ETA.Weights == learned,
	}
	if origin := cfg.OriginOf(r); origin != nil {
		room.Origin, room.Policy.Origin = origin.ID, origin.ID
	}
	if prom := r.Admission.Prometheus; prom.URL != "" {
		scorer, err := promscore.New(prom.URL, prom.Query)
		if err != nil {
			return room, fmt.Errorf("room %q: admission.prometheus: %w", r.ID, err)
		}
		room.Policy.Adaptive.Scorer = scorer
	}
	if q, err := r.Guard.Requests(); err == nil { // Validate reports the error
		room.SessionRequests = meter.Quota{N: q.N, Per: q.Per}
	}
	if q, err := r.Guard.Permits(); err == nil { // likewise
		room.SessionPermits = meter.Quota{N: q.N, Per: q.Per}
	}
	i := r.Identity
	room.Identity = gateway.Identity{
		OnePlace: i.OnePlace, Header: i.Header, LoginURL: i.LoginURL, Anonymous: i.Anonymous == "allow",
		JWKSURL: i.JWKSURL, JWTCookie: i.JWTCookie, JWT: token.AccountRules{Claim: i.JWTClaim, Issuer: i.JWTIssuer, Audience: i.JWTAudience},
	}
	for _, b := range r.Bypass {
		room.Bypass = append(room.Bypass, gateway.Bypass{Paths: b.Paths, Methods: b.Methods, IPs: b.IPs, UserAgents: b.UserAgents, Headers: b.Headers})
	}
	for _, s := range r.Permits {
		room.Permits = append(room.Permits, gateway.Step{Paths: s.Paths, Methods: s.Methods, Forward: s.Forward})
	}
	room.Alarms = alarmsOf(r)
	room.Guard, err = guardOptions(&r.Guard)
	return room, err
}

// alarmsOf returns the alarms of a room.
func alarmsOf(r *config.Room) []admission.Alarm {
	var all []admission.Alarm
	for _, a := range r.Alarms {
		alarm := admission.Alarm{Name: a.Name, When: admission.AlarmWhen(a.When), Above: a.Above, For: a.For, Do: admission.AlarmDo(a.Do), ResumeAfter: a.ResumeAfter}
		if a.Rate != nil {
			alarm.Rate = int64(*a.Rate)
		}
		all = append(all, alarm)
	}
	return all
}

func guardOptions(g *config.Guard) (gateway.Guard, error) {
	secret, err := g.Captcha.Secret()
	if err != nil {
		return gateway.Guard{}, fmt.Errorf("guard.captcha.secret_file: %w", err)
	}
	return gateway.Guard{
		Proof:  g.ProofOfWork,
		Effort: guard.Effort{Number: g.Proof.Number, Most: g.Proof.Most, JoinRate: g.Proof.JoinRate.PerSecond()},
		Captcha: guard.Captcha{
			Provider: g.Captcha.Provider, SiteKey: g.Captcha.SiteKey, Secret: secret, VerifyURL: g.Captcha.VerifyURL, Hosts: g.Captcha.Hosts,
			Open: g.Captcha.OnFail == "open", Timeout: g.Captcha.Timeout,
		},
	}, nil
}

func policy(cfg *config.Config, r *config.Room) (admission.Policy, error) {
	p := admission.Policy{
		Enabled: r.Enabled, Method: r.Queue.Method, Rate: int64(r.Admission.Rate),
		MaxActive: r.Admission.MaxActive, HeadWindow: r.Admission.HeadWindow, Capacity: r.Queue.Capacity,
		MinWait: r.Admission.MinWait, Absence: r.Queue.Absence, ClaimWindow: r.Queue.ClaimWindow,
		SessionTTL: r.Session.TTL, Message: r.Page.Message, SoldOutCloses: r.Queue.OnSoldOut == admission.SoldOutClose, OnStoreError: cfg.OnStoreErrorOf(r),
		Strategy: admission.Strategy(r.Admission.Strategy), MinRate: int64(r.Admission.MinRate), MaxRate: int64(r.Admission.MaxRate),
		Adaptive: admission.Adaptive{
			Mode: r.Admission.Mode, TargetP95: r.Admission.TargetP95, MaxErrorRate: r.Admission.MaxErrorRate, Shadow: r.Admission.Shadow,
		},
	}
	if b, weights := cfg.BudgetOf(r); b != nil {
		p.Budgeted = true
		p.Budget = admission.Budget{
			Origin: cfg.OriginOf(r).ID, Rate: int64(b.Rate), Burst: int64(b.MostBurst()), Weight: int64(r.Weight), Weights: int64(weights),
		}
	}
	if r.Session.Renew == config.RenewServer {
		p.PassLife = r.Session.Max
	}
	// Validate has checked it.
	address, network, _ := r.Guard.Joins()
	p.Joins, p.JoinsPer, p.Wide, p.WidePer = address.N, address.Per, network.N, network.Per
	if r.Admission.Burst != nil {
		p.Burst = int64(*r.Admission.Burst)
	}
	p.PollBudget = int64(r.PollBudget)
	opening := r.Opening()
	p.OpensAt, p.PrequeueAt = micro(opening.Starts), micro(opening.Gathers)
	secret, err := r.DrawSecret()
	if err != nil {
		return p, fmt.Errorf("room %s: queue.draw_secret_file: %w", r.ID, err)
	}
	events := make([]admission.Event, 0, len(r.Events))
	for i := range r.Events {
		e := &r.Events[i]
		span := e.Span()
		events = append(events, admission.Event{
			Name: e.Name, Starts: micro(span.Starts), Ends: micro(span.Ends), Gathers: micro(span.Gathers), Rate: int64(e.Rate), Method: e.Method,
		})
	}
	p.Plan = admission.NewPlan(secret, r.ID, &p, events)
	return p, nil
}

// micro returns a time in µs, 0 for none.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// fixedLimits returns the limits without those that a reload changes.
func fixedLimits(l config.Limits) config.Limits {
	l.InFlightPerAddress, l.InFlightPerSession, l.TunnelsPerAddress, l.StreamsPerAddress = 0, 0, 0, 0
	return l
}

// keepFixed names the settings that differ from those at the start and need a restart. If TLS was turned on or off, it sets
// next.TLS to the old value, so that the other changes can take effect. A check section that was removed stays too, because its sockets do:
// without check.trusted every request of the proxy would be refused.
func keepFixed(started, next *config.Config) []string {
	var names []string
	for _, s := range []struct {
		name     string
		old, new any
	}{
		{"listen", started.Listen, next.Listen},
		{"check.listen", started.Check.Listen, next.Check.Listen},
		{"check.grpc", started.Check.GRPC, next.Check.GRPC},
		{"admin.listen", started.Admin.Listen, next.Admin.Listen},
		{"admin.tls", started.Admin.TLS == config.TLS{}, next.Admin.TLS == config.TLS{}},
		{"admin.oidc.issuer", started.Admin.OIDC.Issuer, next.Admin.OIDC.Issuer},
		{"admin.oidc.client_id", started.Admin.OIDC.ClientID, next.Admin.OIDC.ClientID},
		{"admin.oidc.redirect_url", started.Admin.OIDC.RedirectURL, next.Admin.OIDC.RedirectURL},
		{"admin.two_person", strings.Join(started.Admin.TwoPerson, ","), strings.Join(next.Admin.TwoPerson, ",")},
		{"store", started.Store, next.Store},
		{"limits", fixedLimits(started.Limits), fixedLimits(next.Limits)},
		{"shutdown_timeout", started.ShutdownTimeout, next.ShutdownTimeout},
		{"log.level", started.Log.Level, next.Log.Level},
		{"log.format", started.Log.Format, next.Log.Format},
	} {
		if s.old != s.new {
			names = append(names, s.name)
		}
	}
	if (started.TLS == config.TLS{}) != (next.TLS == config.TLS{}) {
		names = append(names, "tls")
		next.TLS = started.TLS
	}
	if started.Check.On() && !next.Check.On() {
		next.Check = started.Check
	}
	return names
}
