package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/settings"
)

// shortToken is the length below which a bearer token can be guessed.
const shortToken = 16

// Warnings lists settings that are allowed but usually a mistake.
func (c *Config) Warnings() []Problem {
	var list []Problem
	warn := func(path, message string) { list = append(list, Problem{Path: path, Message: message}) }

	if len(c.Rooms) == 0 {
		warn("rooms", "is empty: every request is proxied uncounted")
	}
	for i, p := range c.TrustedProxies {
		if p.Bits() == 0 {
			warn(settings.Element("trusted_proxies", i), "every peer is trusted and can forge its client address")
		}
	}
	if slices.Contains(cdnHeaders, strings.ToLower(c.TrustedHeader)) && !slices.ContainsFunc(c.TrustedProxies, func(p netip.Prefix) bool { return !p.Addr().IsLoopback() }) {
		warn("trusted_header", c.TrustedHeader+" is believed from this machine only, which fits a tunnel that ends here; else name the networks that connect in trusted_proxies")
	}
	if c.Admin.Token != "" && len(c.Admin.Token) < shortToken {
		warn("admin.token", "has fewer than 16 characters and can be guessed")
	}
	for i, t := range c.Admin.Tokens {
		if data, err := readSmall(t.TokenFile); err == nil && len(strings.TrimSpace(string(data))) < shortToken {
			warn(settings.Element("admin.tokens", i)+".token_file", "holds fewer than 16 characters, which can be guessed; make a token with: openssl rand -hex 32")
		}
	}
	if c.Cookies.SameSite == "none" && c.TLS.CertFile == "" {
		warn("cookies.same_site", "browsers take such cookies over TLS only: a trusted proxy in front has to terminate it")
	}
	for i := range c.Origins {
		o := &c.Origins[i]
		https := slices.ContainsFunc(o.Servers, func(s string) bool { return strings.HasPrefix(s, "https://") })
		if !https && (o.TLS.CAFile != "" || o.TLS.ServerName != "") {
			warn(settings.Element("origins", i)+".tls", "no server of this origin is https, so these settings are not used")
		}
		c.warnBudget(settings.Element("origins", i)+".budget", o, warn)
	}
	c.warnHosts(warn)
	for i := range c.Rooms {
		room, path := &c.Rooms[i], settings.Element("rooms", i)
		for j, host := range room.Hosts {
			if strings.HasPrefix(host, "*.") {
				warn(settings.Element(path+".hosts", j), host+" covers many hosts, and cookies are per host: a person has a place on each subdomain")
			}
		}
		if b, _ := c.BudgetOf(room); b == nil && room.Weight != 1000 && room.Weight != 0 {
			warn(path+".weight", "the origin of this room has no budget.rate, so there is nothing to share by weight")
		}
		guarded := room.Identity.OnePlace || room.Guard.JoinsPerIP != "" || room.Guard.ProofOfWork != "none" || room.Guard.Captcha.Provider != ""
		now := time.Now()
		if opens := room.Opening().Starts; room.Queue.Method == methodLottery && opens.Before(now) {
			warn(path+".queue.opens_at", room.Queue.OpensAt+" has passed: the room is open and admits in order of arrival")
		}
		for j := range room.Events {
			if e := &room.Events[j]; e.Span().Ends.Before(now) {
				warn(settings.Element(path+".events", j), "has ended ("+e.EndsAt+") and does nothing")
			}
		}
		if room.Queue.Method == methodLottery && !guarded {
			warn(path+".queue.method", "a lottery without identity.one_place or a guard: a client that takes many places has many chances")
		}
		warnClaimWindow(path+".queue.claim_window", &room.Queue, warn)
		identityWarnings(path, room, warn)
		warnSteps(path+".permits", room, warn)
		c.warnAccountHeader(path, room, warn)
		warnStrategy(warn, path+".admission", &room.Admission)
		c.warnBeside(path, room, warn)
		warnUnused(warn, path, room)
		if room.Admission.MaxActive > 0 && room.Session.Renew == "false" {
			warn(path+".session.renew", "passes are not renewed: a visitor who stays longer than session.ttl goes back to the queue")
		}
	}
	return list
}

// warnBeside warns of what a room beside another proxy lacks.
func (c *Config) warnBeside(path string, room *Room, warn func(path, message string)) {
	if !c.Check.On() {
		return
	}
	if d, err := dialect.Parse(c.Check.Dialect); c.Check.Listen != "" && err == nil && !d.Cookies() && room.Session.Renew != RenewServer {
		warn(path+".session.renew", d.String()+" carries no cookie of a passing check to the visitor, so every session ends after session.ttl; set session.renew: server")
	}
	if room.Admission.Strategy == "adaptive" && room.Admission.Prometheus.URL == "" && len(c.Origins) == 0 {
		warn(path+".admission.strategy", "the gateway forwards no request, so it does not see the health of the origin; set admission.prometheus")
	}
}

// warnSteps warns of paths of steps that no request of the room has.
func warnSteps(path string, room *Room, warn func(path, message string)) {
	isPattern := func(path string) bool { return strings.HasPrefix(path, "~") }
	if slices.ContainsFunc(room.Paths, isPattern) {
		return
	}
	inside := func(path, prefix string) bool {
		path, prefix = strings.ToLower(strings.TrimRight(path, "/"))+"/", strings.ToLower(strings.TrimRight(prefix, "/"))+"/"
		return strings.HasPrefix(path, prefix)
	}
	for i := range room.Permits {
		for j, step := range room.Permits[i].Paths {
			if !isPattern(step) && !slices.ContainsFunc(room.Paths, func(p string) bool { return inside(step, p) || inside(p, step) }) {
				warn(settings.Element(settings.Element(path, i)+".paths", j), step+" lies outside the room's paths: it protects nothing")
			}
		}
	}
}

// warnClaimWindow warns of an admission that lapses soon: polls are at most claim_window - 10 s apart, so that visitors who poll
// as advised learn of it in time.
func warnClaimWindow(path string, q *Queue, warn func(path, message string)) {
	const slack, shortest, usual = 10 * time.Second, 2 * time.Second, time.Minute
	switch longest := q.ClaimWindow - slack; {
	case q.ClaimWindow > 0 && longest < shortest:
		warn(path, q.ClaimWindow.String()+" is shorter than 12s: visitors who poll as advised, every 2s and up to 10s late, may lose their admission")
	case q.ClaimWindow > 0 && longest < min(usual, q.Absence/4):
		warn(path, q.ClaimWindow.String()+" makes all who wait poll every "+longest.String()+" or more often; from 1m10s on those far from the front poll once a minute")
	}
}

// warnStrategy warns of settings that the strategy does not use.
func warnStrategy(warn func(path, message string), at string, a *Admission) {
	switch a.Strategy {
	case "leaky_bucket", "fixed_window":
		if a.Burst != nil {
			warn(at+".burst", a.Strategy+" has no burst: it is not used")
		}
		if whole := a.Rate / 1000 * 1000; a.Strategy == "fixed_window" && whole > 0 && whole < a.Rate {
			warn(at+".rate", a.Rate.String()+" admits "+whole.String()+" in each second, because a fixed_window has no fractions: use "+
				whole.String()+", "+(whole+1000).String()+" or a token_bucket")
		}
	case "adaptive":
		if a.MinRate == a.MaxRate {
			warn(at+".max_rate", "is min_rate: the rate cannot adapt")
		}
	}
	if b := a.Burst; b != nil && (a.Strategy == "token_bucket" || a.Strategy == "adaptive") && 40*(*b/1000*1000) < a.Rate {
		warn(at+".burst", b.String()+" is below rate/40 and prevents the full rate ("+a.Rate.String()+") from being reached")
	}
	if a.Strategy != "adaptive" {
		if a.Shadow {
			warn(at+".shadow", "is for the adaptive strategy, which the room does not use: no rate is computed")
		}
		if a.Prometheus.URL != "" {
			warn(at+".prometheus", "is for the adaptive strategy, which the room does not use: it is not queried")
		}
	}
}

// warnUnused warns of settings of a feature that is off, which is usually a mistake.
func warnUnused(warn func(path, message string), path string, room *Room) {
	var usual Room
	settings.Defaults(&usual)
	var unused []string
	differs := func(name string, v, usual any) {
		if !reflect.ValueOf(v).IsZero() && v != usual {
			unused = append(unused, name)
		}
	}
	if a, b := room.Admission, usual.Admission; a.Strategy != "adaptive" {
		differs("min_rate", a.MinRate, b.MinRate)
		differs("max_rate", a.MaxRate, b.MaxRate)
		differs("target_p95", a.TargetP95, b.TargetP95)
		differs("max_error_rate", a.MaxErrorRate, b.MaxErrorRate)
		differs("mode", a.Mode, b.Mode)
		if len(unused) > 0 {
			warn(path+".admission.strategy", "is "+a.Strategy+", which does not use "+strings.Join(unused, ", ")+"; adaptive does")
		}
	}
	unused = nil
	if g, b := room.Guard, usual.Guard; g.ProofOfWork == "none" {
		differs("number", g.Proof.Number, b.Proof.Number)
		differs("join_rate", g.Proof.JoinRate, b.Proof.JoinRate)
		differs("most", g.Proof.Most, b.Proof.Most)
		if len(unused) > 0 {
			warn(path+".guard.proof_of_work", "is none: until an operator sets another challenge level, nothing uses proof."+strings.Join(unused, ", proof."))
		}
	}
	e := room.ETA
	if e.ModelFile != "" && e.Estimator != "model" {
		warn(path+".eta.model_file", "is for estimator: model, and that is "+e.Estimator+": the model is not used")
	}
	if e.Weights != "" && e.Weights != usual.ETA.Weights && e.Estimator != "hourly" {
		warn(path+".eta.weights", "are for estimator: hourly, and that is "+e.Estimator+": they are not used")
	}
	if q := room.Queue; q.OpensAt != "" && q.Method != methodLottery {
		warn(path+".queue.opens_at", "is for method: lottery, and that is "+q.Method+": nothing happens at that time; to keep a room closed until then, give it an event with method: reject")
	}
}

// warnBudget warns of a budget that is not used, or not fully.
func (c *Config) warnBudget(path string, o *Origin, warn func(path, message string)) {
	if o.Budget.Rate == 0 {
		return
	}
	if !slices.ContainsFunc(c.Rooms, func(r Room) bool { return c.OriginOf(&r) == o }) {
		warn(path, "no room has this origin: its requests are proxied uncounted")
	}
	if b := o.Budget.Burst; b > 0 && 10*b < o.Budget.Rate {
		warn(path+".burst", b.String()+" is less than a tenth of a second of the rate ("+o.Budget.Rate.String()+"): rooms that take turns cannot use all of the rate")
	}
}
