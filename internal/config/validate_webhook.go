package config

import (
	"net/url"
	"slices"

	"github.com/anteroom/anteroom/internal/settings"
)

func (c gatewayChecker) webhooks() {
	names := map[string]string{}
	for i := range c.cfg.Webhooks {
		w, at := &c.cfg.Webhooks[i], settings.Element("webhooks", i)
		c.unique(at+".name", "a name", w.Name, names)
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

// Secrets reads the file with the secrets.
func (w *Webhook) Secrets() (string, error) {
	data, err := readSmall(w.SecretFile)
	return string(data), err
}
