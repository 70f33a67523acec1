package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

func (c roomChecker) guard(at string) {
	g := &c.room.Guard
	if _, _, err := g.Joins(); err != nil {
		c.Add(at+".joins_per_ip", "%q: %v", settings.Clip(g.JoinsPerIP), err)
	}
	if _, err := g.Requests(); err != nil {
		c.Add(at+".requests_per_session", "%q: %v", settings.Clip(g.RequestsPerSession), err)
	}
	if _, err := g.Permits(); err != nil {
		c.Add(at+".permits_per_session", "%q: %v", settings.Clip(g.PermitsPerSession), err)
	}
	if p := g.Proof; p.Most < p.Number {
		c.Add(at+".proof.most", "%d is less than proof.number (%d); give them the same value for work that does not grow", p.Most, p.Number)
	}
	c.captcha(at + ".captcha")
}

func (c roomChecker) captcha(at string) {
	p := &c.room.Guard.Captcha
	if p.Provider == "" {
		if p.SiteKey != "" || p.SecretFile != "" || p.VerifyURL != "" || len(p.Hosts) > 0 {
			c.Add(at+".provider", "is missing; use turnstile, hcaptcha or recaptcha, or remove the other settings of captcha")
		}
		return
	}
	for i, host := range p.Hosts {
		if host == "*" {
			c.Add(settings.Element(at+".hosts", i), `"*" accepts a CAPTCHA that was solved on any site; use the host names that visitors open, or *.example.com`)
		} else {
			c.host(settings.Element(at+".hosts", i), host)
		}
	}
	if len(p.Hosts) == 0 && slices.Contains(c.room.Hosts, "*") {
		c.Add(at+".hosts", "is missing: the room's hosts are *, so a CAPTCHA that was solved on any site would be accepted; name the hosts that visitors open")
	}
	if p.SiteKey == "" {
		c.Add(at+".site_key", "is missing; use the site key from the provider")
	}
	if p.SecretFile == "" {
		c.Add(at+".secret_file", "is missing; write the secret key from the provider to a file and use its path")
	} else if _, err := p.Secret(); err != nil {
		c.Add(at+".secret_file", "%v", err)
	}
	if p.VerifyURL != "" {
		u, err := url.Parse(p.VerifyURL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			c.Add(at+".verify_url", "%q is not an address; use for instance https://proxy.example/siteverify, or leave it empty", settings.Clip(p.VerifyURL))
		}
	}
}

// Secret reads the secret from the provider; it returns "" without a file.
func (p *Captcha) Secret() (string, error) {
	if p.SecretFile == "" {
		return "", nil
	}
	data, err := readSmall(p.SecretFile)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return "", fmt.Errorf("%q is empty; use the secret key from the provider", p.SecretFile)
	}
	return secret, nil
}
