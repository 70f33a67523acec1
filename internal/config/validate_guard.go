package config

import (
	"fmt"
	"net/url"
	"strings"
)

func (c *checker) guard(at string, g *Guard) {
	if _, _, err := g.Joins(); err != nil {
		c.add(at+".joins_per_ip", "%q: %v", clip(g.JoinsPerIP), err)
	}
	if p := g.Proof; p.Most < p.Number {
		c.add(at+".proof.most", "%d is less than proof.number (%d); give them the same value for work that does not grow", p.Most, p.Number)
	}
	c.captcha(at+".captcha", &g.Captcha)
}

func (c *checker) captcha(at string, p *Captcha) {
	if p.Provider == "" {
		if p.SiteKey != "" || p.SecretFile != "" || p.VerifyURL != "" {
			c.add(at+".provider", "is missing; want turnstile, hcaptcha or recaptcha, or none of the settings beside it")
		}
		return
	}
	if p.SiteKey == "" {
		c.add(at+".site_key", "is missing; the provider gives it together with the secret")
	}
	if p.SecretFile == "" {
		c.add(at+".secret_file", "is missing; write the secret that the provider gives into a file and name that")
	} else if _, err := p.Secret(); err != nil {
		c.add(at+".secret_file", "%v", err)
	}
	if p.VerifyURL != "" {
		u, err := url.Parse(p.VerifyURL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			c.add(at+".verify_url", "%q is no address; want for instance https://proxy.example/siteverify, or leave it empty", clip(p.VerifyURL))
		}
	}
}

// Secret reads the secret that the provider gave.
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
		return "", fmt.Errorf("%q is empty; want the secret that the provider gives", p.SecretFile)
	}
	return secret, nil
}
