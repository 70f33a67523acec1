package config

import (
	"net/url"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

// callbackPath is the path of admin.oidc.redirect_url.
const callbackPath = "/auth/callback"

// people checks how operators are authenticated.
func (c gatewayChecker) people() {
	c.tls("admin.tls", c.cfg.Admin.TLS)
	o := &c.cfg.Admin.OIDC
	for i, action := range c.cfg.Admin.TwoPerson {
		if action != "reset" && action != "evacuate" {
			c.Add(settings.Element("admin.two_person", i), "%q is not an action that can be confirmed; use reset or evacuate", settings.Clip(action))
		}
	}
	if len(c.cfg.Admin.TwoPerson) > 0 && o.Issuer == "" && len(c.cfg.Admin.Tokens) < 2 {
		c.Add("admin.two_person", "needs two persons who can be told apart; give each a token under admin.tokens, or use admin.oidc")
	}
	if o.Issuer == "" {
		if o.ClientID != "" || o.ClientSecretFile != "" || o.RedirectURL != "" || len(o.Roles) > 0 {
			c.Add("admin.oidc.issuer", "is missing; use the URL of the provider, or leave admin.oidc out")
		}
		return
	}
	const at = "admin.oidc"
	c.webURL(at+".issuer", o.Issuer)
	if strings.ContainsAny(o.Issuer, "?#") {
		c.Add(at+".issuer", "%q has a query or fragment; use the URL before /.well-known/openid-configuration", settings.Clip(o.Issuer))
	}
	if o.ClientID == "" {
		c.Add(at+".client_id", "is missing; use the id under which the provider knows this gateway")
	}
	if o.ClientSecretFile == "" {
		c.Add(at+".client_secret_file", "is missing; use the path of a file that holds the client secret")
	} else if data, ok := c.file(at+".client_secret_file", o.ClientSecretFile); ok && len(strings.TrimSpace(string(data))) < 16 {
		c.Add(at+".client_secret_file", "%q has fewer than 16 characters, and sessions are sealed with it; let the provider generate a longer one", o.ClientSecretFile)
	}
	if u := c.webURL(at+".redirect_url", o.RedirectURL); u != nil && (!strings.HasSuffix(u.Path, callbackPath) || u.RawQuery != "" || u.Fragment != "") {
		c.Add(at+".redirect_url", "%q does not end with %s; use the URL at which browsers reach that path of admin.listen", settings.Clip(o.RedirectURL), callbackPath)
	}
	if o.Idle > o.Session {
		c.Add(at+".idle", "%s is longer than admin.oidc.session (%s); use a shorter time", o.Idle, o.Session)
	}
	if len(o.Roles) == 0 {
		c.Add(at+".roles", "is empty, so that everybody who signs in is refused; add a rule with claim, value and role")
	}
	for i, rule := range o.Roles {
		path := settings.Element(at+".roles", i)
		if rule.Value == "" {
			c.Add(path+".value", "is missing; use the value of the claim %s", settings.Clip(rule.Claim))
		}
		if rule.Claim == "" {
			c.Add(path+".claim", "is empty; use the name of a claim, such as groups or email")
		}
		c.roomIDs(path+".rooms", rule.Rooms)
	}
}

// webURL checks the URL of a page that browsers open: https, or http on this machine.
func (c gatewayChecker) webURL(path, text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		c.Add(path, "%q is not an https URL; http is for loopback addresses only", settings.Clip(text))
		return nil
	}
	return u
}

// ClientSecret reads the client secret of admin.oidc.
func (o *AdminOIDC) ClientSecret() (string, error) {
	data, err := readSmall(o.ClientSecretFile)
	return strings.TrimSpace(string(data)), err
}
