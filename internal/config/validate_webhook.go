package config

import (
	"net/url"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

func (c gatewayChecker) webhooks() {
	names := map[string]string{}
	for i := range c.cfg.Webhooks {
		w, at := &c.cfg.Webhooks[i], settings.Element("webhooks", i)
		c.webhookName(at+".name", w.Name, names)
		if u, err := url.Parse(w.URL); w.URL == "" {
			c.Add(at+".url", "is missing; use the address that gets the events, as https://hooks.example.com/anteroom")
		} else if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" { // the URL may contain a secret
			c.Add(at+".url", "is not an address; use http or https, as https://hooks.example.com/anteroom")
		} else if u.User != nil {
			c.Add(at+".url", "has credentials before its host; requests are signed instead")
		}
		if w.SecretFile == "" {
			c.Add(at+".secret_file", "is missing; make one with: echo whsec_$(openssl rand -base64 32) > webhook.secret")
		} else {
			c.file(at+".secret_file", w.SecretFile)
		}
		for _, id := range w.Rooms {
			if !slices.ContainsFunc(c.cfg.Rooms, func(r Room) bool { return r.ID == id }) {
				c.Add(at+".rooms", "%q is not a room; use ids of rooms", settings.Clip(id))
			}
		}
	}
}

func (c gatewayChecker) webhookName(at, name string, seen map[string]string) {
	switch first, taken := seen[name]; {
	case name == "":
		c.Add(at, "is missing; use a name of lower-case letters, digits and dashes")
	case !idPattern.MatchString(name):
		c.Add(at, "%q is not a name; use 1 to 63 lower-case letters, digits and dashes, not beginning with a dash", settings.Clip(name))
	case taken:
		c.Add(at, "%q is the name of %s already; names are unique", name, first)
	default:
		seen[name] = strings.TrimSuffix(at, ".name")
	}
}

// Secrets reads the file with the secrets.
func (w *Webhook) Secrets() (string, error) {
	data, err := readSmall(w.SecretFile)
	return string(data), err
}
