package config

import (
	"slices"
	"strings"
	"time"
)

// shortToken is the length below which a bearer token can be tried out.
const shortToken = 16

// Warnings lists what is allowed but rarely meant.
func (c *Config) Warnings() []Problem {
	var list []Problem
	warn := func(path, message string) { list = append(list, Problem{Path: path, Message: message}) }

	if len(c.Rooms) == 0 {
		warn("rooms", "there is none: every request is proxied uncounted")
	}
	for i, p := range c.TrustedProxies {
		if p.Bits() == 0 {
			warn(element("trusted_proxies", i), "everybody is trusted: anyone can claim any client address")
		}
	}
	if c.Admin.Token != "" && len(c.Admin.Token) < shortToken {
		warn("admin.token", "has fewer than 16 characters and can be tried out")
	}
	if c.Cookies.SameSite == "none" && c.TLS.CertFile == "" {
		warn("cookies.same_site", "browsers take such cookies over TLS only: a trusted proxy in front has to terminate it")
	}
	for i := range c.Origins {
		o := &c.Origins[i]
		https := slices.ContainsFunc(o.Servers, func(s string) bool { return strings.HasPrefix(s, "https://") })
		if !https && (o.TLS.CAFile != "" || o.TLS.ServerName != "") {
			warn(element("origins", i)+".tls", "no server of this origin is https, so these settings are not used")
		}
	}
	for i := range c.Rooms {
		room, path := &c.Rooms[i], element("rooms", i)
		for j, host := range room.Hosts {
			if strings.HasPrefix(host, "*.") {
				warn(element(path+".hosts", j), host+" covers many hosts, and cookies are per host: a person has a place on each subdomain")
			}
		}
		guarded := room.Identity.OnePlace || room.Guard.JoinsPerIP != "" || room.Guard.ProofOfWork != "none" || room.Guard.Captcha.Provider != ""
		now := time.Now()
		if opens := room.Opening().Starts; room.Queue.Method == methodLottery && opens.Before(now) {
			warn(path+".queue.opens_at", room.Queue.OpensAt+" has passed: the room is open, and serves in the order of arrival")
		}
		for j := range room.Events {
			if e := &room.Events[j]; e.Span().Ends.Before(now) {
				warn(element(path+".events", j), "has ended ("+e.EndsAt+") and does nothing")
			}
		}
		if room.Queue.Method == methodLottery && !guarded {
			warn(path+".queue.method", "a lottery without identity.one_place or a guard: whoever takes many places has many lots")
		}
		if room.Admission.MaxActive > 0 && !room.Session.Renew {
			warn(path+".session.renew", "passes are not renewed: a visitor who stays longer than session.ttl goes back to the line")
		}
	}
	return list
}
