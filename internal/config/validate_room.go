package config

import (
	"html/template"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/text/language"

	"github.com/anteroom/anteroom/internal/settings"
)

func (c gatewayChecker) rooms() {
	ids := make(map[string]string)
	places := make(map[string]string) // host and path to the room that has it
	for i := range c.cfg.Rooms {
		room, at := &c.cfg.Rooms[i], settings.Element("rooms", i)
		c.unique(at+".id", "an id", room.ID, ids)
		check := roomChecker{c.checker, c.cfg, room}
		check.origin(at + ".origin")
		check.places(at, places)
		check.admission(at + ".admission")
		check.queue(at + ".queue")
		check.events(at + ".events")
		check.alarms(at + ".alarms")
		if room.Session.Max < room.Session.TTL {
			c.Add(at+".session.max", "%s is less than session.ttl (%s)", settings.FormatDuration(room.Session.Max), settings.FormatDuration(room.Session.TTL))
		}
		if room.Session.Renew == RenewServer && room.Session.TTL < leastServerTTL {
			c.Add(at+".session.ttl", "%s is too small with session.renew: server; use at least %s, or session.renew: true", settings.FormatDuration(room.Session.TTL), settings.FormatDuration(leastServerTTL))
		}
		for j := range room.Bypass {
			check.bypass(settings.Element(at+".bypass", j), &room.Bypass[j])
		}
		for j := range room.Permits {
			check.step(settings.Element(at+".permits", j), &room.Permits[j])
		}
		for j, origin := range room.CORSOrigins {
			check.corsOrigin(settings.Element(at+".cors_origins", j), origin)
		}
		check.eta(at + ".eta")
		check.guard(at + ".guard")
		check.page(at+".page", &room.Page)
		check.compat(at)
		check.identity(at+".identity", &room.Identity)
	}
}

// RenewServer is the session.renew with which gateways keep sessions alive.
const RenewServer = "server"

// leastServerTTL is the least session.ttl with RenewServer: heartbeats of a session are whole seconds apart, and no more than half of
// the ttl may pass between two of them.
const leastServerTTL = 4 * time.Second

func (c roomChecker) origin(at string) {
	if len(c.cfg.Origins) == 0 {
		return // origins reports it
	}
	if c.room.Origin == "" {
		if len(c.cfg.Origins) > 1 && c.cfg.DefaultOrigin == "" {
			c.Add(at, "is missing, and there are several origins; %s", knownOrigins(c.cfg))
		}
		return
	}
	if c.cfg.originByID(c.room.Origin) == nil {
		c.Add(at, "%q is not an origin; %s", settings.Clip(c.room.Origin), knownOrigins(c.cfg))
	}
}

// places checks hosts and paths, and that no other room has the same pair.
func (c roomChecker) places(at string, places map[string]string) {
	if len(c.room.Hosts) == 0 {
		c.Add(at+".hosts", `is empty, so the room protects nothing; use ["*"] for every host`)
	}
	if len(c.room.Paths) == 0 {
		c.Add(at+".paths", `is empty, so the room protects nothing; use ["/"] for every path`)
	}
	for j, host := range c.room.Hosts {
		c.host(settings.Element(at+".hosts", j), host)
	}
	for j, prefix := range c.room.Paths {
		c.path(settings.Element(at+".paths", j), prefix)
	}
	for _, host := range c.room.Hosts {
		for _, prefix := range c.room.Paths {
			key := strings.ToLower(host) + " " + canonicalPath(prefix)
			other, taken := places[key]
			switch {
			case !taken:
				places[key] = at
			case other != at:
				c.Add(at+".paths", "%s on host %s belongs to %s (%s) too; a request can be in one room only", prefix, host, other, "the same host and path")
			}
		}
	}
}

// canonicalPath returns the same text for prefixes that match the same requests.
func canonicalPath(prefix string) string {
	if strings.HasPrefix(prefix, "~") || prefix == "/" {
		return prefix
	}
	return strings.ToLower(strings.TrimRight(prefix, "/"))
}

func (c checker) host(at, host string) {
	name := strings.ToLower(host)
	if name == "*" {
		return
	}
	name, wildcard := strings.CutPrefix(name, "*.")
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil && !wildcard {
		return
	}
	switch {
	case strings.Contains(name, "*"):
		c.Add(at, "%q: use * alone or as the first label, such as *.example.com", settings.Clip(host))
	case strings.Contains(name, ":"):
		c.Add(at, "%q: use the host without scheme and port; a room applies to every port", settings.Clip(host))
	case !isASCII(name):
		c.Add(at, "%q: use the name as browsers send it, in punycode (xn--…)", settings.Clip(host))
	case !hostPattern.MatchString(name) || strings.HasSuffix(name, "."):
		c.Add(at, "%q is not a host; use a name such as shop.example.com, *.example.com or *", settings.Clip(host))
	}
}

// reserved is the path of the gateway's own endpoints.
const reserved = "/.waiting-room"

func (c checker) path(at, prefix string) {
	if pattern, ok := strings.CutPrefix(prefix, "~"); ok {
		if pattern == "" {
			c.Add(at, `"~" has no expression; use for instance "~^/tickets/[0-9]+$", or "/" for everything`)
		} else if _, err := regexp.Compile(pattern); err != nil {
			c.Add(at, "%q does not compile: %v", settings.Clip(prefix), err)
		}
		return
	}
	switch {
	case !strings.HasPrefix(prefix, "/"):
		c.Add(at, "%q is not a path; use a prefix that begins with /, or a regular expression that begins with ~", settings.Clip(prefix))
	case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl) || strings.ContainsAny(prefix, "?#*%\\;"):
		c.Add(at, "%q: use the decoded path, without ? # * %% ; and backslash; for patterns use ~regex", settings.Clip(prefix))
	case path.Clean(prefix) != strings.TrimRight(prefix, "/") && prefix != "/":
		c.Add(at, "%q has empty or dot segments, which no request keeps; use %s", settings.Clip(prefix), path.Clean(prefix))
	case strings.EqualFold(prefix, reserved) || len(prefix) > len(reserved) && strings.EqualFold(prefix[:len(reserved)+1], reserved+"/"):
		c.Add(at, "%q is reserved: the gateway answers there itself", settings.Clip(prefix))
	}
}

func (c roomChecker) admission(at string) {
	a := c.room.Admission
	if a.Burst != nil && a.Rate > 0 && *a.Burst < 1000 {
		c.Add(at+".burst", "%s never admits a whole visitor; use at least 1, or leave it out for max(1, rate)", *a.Burst)
	}
	if a.MinRate > a.MaxRate {
		c.Add(at+".min_rate", "%s is more than max_rate (%s); change one of them", a.MinRate, a.MaxRate)
	}
	if a.Strategy == "adaptive" {
		if a.MinRate == 0 {
			c.Add(at+".min_rate", "is 0: at a rate of 0 no request shows the origin's health, so the rate could never grow again; use at least 0.001")
		}
		if a.MinRate <= a.MaxRate && (a.Rate < a.MinRate || a.Rate > a.MaxRate) {
			c.Add(at+".rate", "%s, with which an adaptive room begins, is not within min_rate (%s) and max_rate (%s); change one of them", a.Rate, a.MinRate, a.MaxRate)
		}
	}
	switch prom := a.Prometheus; {
	case prom.URL == "" && prom.Query == "":
	case prom.URL == "":
		c.Add(at+".prometheus.url", "is empty, and query is not; give the server's address, such as http://127.0.0.1:9091")
	case prom.Query == "":
		c.Add(at+".prometheus.query", "is empty, and url is not; give PromQL with a result from 0 (unhealthy) to 1 (healthy)")
	default:
		c.httpURL(at+".prometheus.url", prom.URL)
	}
}

// httpURL checks an http or https address. Its problem does not show the address, which may hold a password.
func (c checker) httpURL(at, text string) {
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		c.Add(at, "is not an address; use http://host:port or https://host:port")
	}
}

// eta checks the settings that need no estimator; cmd/gateway checks the others with package eta.
func (c roomChecker) eta(at string) {
	e := &c.room.ETA
	if _, err := time.LoadLocation(e.TimeZone); err != nil || e.TimeZone == "" || e.TimeZone == "Local" {
		c.Add(at+".time_zone", "%q is not a time zone; use a name such as Europe/Berlin, or UTC", settings.Clip(e.TimeZone))
	}
	if e.Estimator == "model" && e.ModelFile == "" {
		c.Add(at+".model_file", "is missing, and estimator is model; give the file that tools/eta-train has made, or use window")
	}
}

func (c roomChecker) bypass(at string, rule *Bypass) {
	if len(rule.Paths)+len(rule.Methods)+len(rule.IPs)+len(rule.UserAgents)+len(rule.Headers) == 0 {
		c.Add(at, "has no condition and would let everyone past the room; give paths, methods, ips, user_agents or headers")
	}
	c.conditions(at, rule.Paths, rule.Methods)
	for j, text := range rule.UserAgents {
		if strings.TrimSpace(text) == "" {
			c.Add(settings.Element(at+".user_agents", j), "is empty and would match every client; use a part of the User-Agent, such as Googlebot")
		}
	}
	for name, value := range rule.Headers {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			c.Add(at+".headers", "%q is not a header name", settings.Clip(name))
		case !httpguts.ValidHeaderFieldValue(value):
			c.Add(at+".headers."+name, "holds characters that a header cannot carry")
		}
	}
}

// conditions checks the paths and methods of a rule.
func (c roomChecker) conditions(at string, paths, methods []string) {
	for j, prefix := range paths {
		c.path(settings.Element(at+".paths", j), prefix)
	}
	for j, method := range methods {
		if !httpguts.ValidHeaderFieldName(method) || method != strings.ToUpper(method) {
			c.Add(settings.Element(at+".methods", j), "%q is not a method; use capitals such as GET", settings.Clip(method))
		}
	}
}

func (c roomChecker) step(at string, rule *Step) {
	if len(rule.Paths)+len(rule.Methods) == 0 {
		c.Add(at, "has no condition, so every request of the room would need a permit; give paths or methods")
	}
	c.conditions(at, rule.Paths, rule.Methods)
}

func (c roomChecker) corsOrigin(at, origin string) {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin || origin != strings.ToLower(origin) || strings.Contains(u.Host, "*") {
		c.Add(at, "%q is not an origin; use scheme and host in lower case, as https://shop.example or http://127.0.0.1:3000", settings.Clip(origin))
	}
}

const compatNone = "none"

// The longest texts on a page, in characters.
const (
	maxMessage = 1000
	maxTitle   = 200
)

func (c roomChecker) compat(at string) {
	switch status := c.room.CompatStatus; {
	case status <= 0 || status > 599: // by the bounds
	case c.room.Compat == compatNone:
		c.Add(at+".compat_status", "%d is for compat: cloudflare; set compat, or leave compat_status out", status)
	case !carriesBody(status):
		c.Add(at+".compat_status", "a response with status %d cannot carry JSON; use 200, or for instance 202, 429 or 503", status)
	}
}

// carriesBody reports whether clients read the body of a response with this status as the whole answer.
func carriesBody(status int) bool {
	switch status {
	case http.StatusNoContent, http.StatusResetContent, http.StatusPartialContent:
		return false
	}
	return status >= 200 && status < 300 || status >= 400 && status <= 599
}

func (c roomChecker) page(at string, p *Page) {
	switch {
	case p.Status < 200 || p.Status > 599: // by the bounds
	case !carriesBody(p.Status):
		c.Add(at+".status", "a response with status %d cannot carry a page; use 200, or for instance 202, 429 or 503", p.Status)
	}
	c.text(at+".message", p.Message, maxMessage)
	c.text(at+".title", p.Title, maxTitle)
	if p.TemplateFile != "" {
		if data, ok := c.file(at+".template_file", p.TemplateFile); ok {
			if _, err := template.New("page").Parse(string(data)); err != nil {
				c.Add(at+".template_file", "%q does not parse: %v", p.TemplateFile, err)
			}
		}
	}
	seen := make(map[language.Tag]bool)
	for j, name := range p.Languages {
		tag, err := language.Parse(name)
		switch {
		case err != nil:
			c.Add(settings.Element(at+".languages", j), "%q is not a language tag; use for instance en or ko", settings.Clip(name))
		case seen[tag]:
			c.Add(settings.Element(at+".languages", j), "%q is there already", settings.Clip(name))
		}
		seen[tag] = true
	}
	if strings.ContainsAny(p.FrameAncestors, ";,\"<>") || strings.ContainsFunc(p.FrameAncestors, unicode.IsControl) || !isASCII(p.FrameAncestors) {
		c.Add(at+".frame_ancestors", "%q is not a list of sources; separate sources by blanks, such as 'self' https://partner.example", settings.Clip(p.FrameAncestors))
	}
}

func (c checker) text(at, text string, longest int) {
	if n := utf8.RuneCountInString(text); n > longest {
		c.Add(at, "has %d characters; use at most %d", n, longest)
	}
	if !utf8.ValidString(text) {
		c.Add(at, "is not UTF-8")
	}
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}
