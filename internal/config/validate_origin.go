package config

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

// commandLine is the shortest way to a working gateway.
const commandLine = "gateway --origin http://127.0.0.1:9000 --rate 10"

func (c gatewayChecker) origins() {
	if len(c.cfg.Origins) == 0 {
		if c.cfg.Check.On() {
			return // the proxy that asks has the origins
		}
		c.Add("origins", "there is no site to protect; give one in the file, or try: %s", commandLine)
		return
	}
	ids := make(map[string]string)
	for i, o := range c.cfg.Origins {
		path := settings.Element("origins", i)
		c.unique(path+".id", "an id", o.ID, ids)
		if len(o.Servers) == 0 {
			c.Add(path+".servers", "is empty; use at least one, such as http://127.0.0.1:9000")
		}
		servers := make(map[string]bool)
		for j, server := range o.Servers {
			at := settings.Element(path+".servers", j)
			if servers[server] {
				c.Add(at, "%q is there already", settings.Clip(server))
			}
			servers[server] = true
			c.server(at, server)
		}
		if o.TLS.CAFile != "" {
			c.bundle(path+".tls.ca_file", o.TLS.CAFile)
		}
		if b := o.Budget; b.Rate > 0 && b.Burst > 0 && b.Burst < 1000 {
			c.Add(path+".budget.burst", "%s never admits a whole visitor; use at least 1, or leave it out for max(1, rate)", b.Burst)
		} else if b.Rate == 0 && b.Burst > 0 {
			c.Add(path+".budget.burst", "there is no budget without budget.rate; give one, or leave burst out")
		}
		if p := o.Health.Path; p != "" && !healthPath.MatchString(p) {
			c.Add(path+".health.path", "%q is not a path; use one such as /healthz, in ASCII and without blanks", settings.Clip(p))
		}
		if o.TLS.ServerName != "" && !hostPattern.MatchString(strings.ToLower(o.TLS.ServerName)) {
			c.Add(path+".tls.server_name", "%q is not a host name", settings.Clip(o.TLS.ServerName))
		}
	}
	if c.cfg.DefaultOrigin != "" && ids[c.cfg.DefaultOrigin] == "" {
		c.Add("default_origin", "%q is not an origin; %s", settings.Clip(c.cfg.DefaultOrigin), knownOrigins(c.cfg))
	}
}

func (c gatewayChecker) server(path, server string) {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		shown := server
		if strings.Contains(server, "@") {
			shown = "…" // may hold a password
		}
		c.Add(path, "%q is not a server; use http://host:port or https://host:port", settings.Clip(shown))
	case u.User != nil:
		c.Add(path, "holds a user name or password, which is not sent; use http://host:port")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		c.Add(path, "%q has a path or query; requests keep their own, so use %s://%s", settings.Clip(server), u.Scheme, u.Host)
	case u.Port() != "" || strings.HasSuffix(u.Host, ":"):
		if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
			c.Add(path, "%q has no valid port; use 1 to 65535", settings.Clip(server))
		}
	}
}

func knownOrigins(cfg *Config) string {
	ids := make([]string, len(cfg.Origins))
	for i, o := range cfg.Origins {
		ids[i] = o.ID
	}
	return "use " + settings.OneOf(ids)
}

// healthPath matches a path that can be requested as it is, with or without a query.
var healthPath = regexp.MustCompile(`^/[!$-;=?-\[\]-~]*$`)

// hostPattern is a DNS name in lower case, in ASCII.
var hostPattern = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?$`)
