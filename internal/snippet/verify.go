package snippet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/internal/config"
)

// verification has the values with which HAProxy verifies passes itself.
type verification struct {
	PublicKey string // path of the file on HAProxy's machine
	Issuer    string
	Room      string
	Plain     string // cookie of passes without TLS
	Secure    string // cookie of passes with TLS
	Fresh     int    // seconds; passes that end earlier go to the gateway, which renews them
}

// verifies returns errors about settings with which HAProxy cannot verify passes: it checks signature and claims, and no rules for requests
// with a pass.
func verifies(cfg *config.Config, p *proxy, o *Options) error {
	if p.name != "haproxy" {
		return fmt.Errorf("--verify: only haproxy can verify passes; leave the flag out for %s", p.name)
	}
	var list []error
	add := func(format string, values ...any) { list = append(list, fmt.Errorf(format, values...)) }
	if o.Lua || o.Open {
		add("--verify: sends no checks, so --lua and --open have no effect; leave them out")
	}
	if strings.ContainsAny(o.Verify, " \t\r\n\"'\\,()#") {
		add("--verify: %q is not the path of a file without blanks, quotes and parentheses", o.Verify)
	}
	if len(cfg.Origins) == 0 {
		add("origins: is empty, but requests whose pass HAProxy does not accept go through the gateway to the site; add the site")
	}
	if cfg.Tokens.Bind != "none" {
		add("tokens.bind: %q cannot be verified by HAProxy, so a copied pass would be valid anywhere; set it to none", cfg.Tokens.Bind)
	}
	if !slices.ContainsFunc(cfg.Tokens.Keys, func(k config.Key) bool { return k.Alg == "ES256" && (k.Active || len(cfg.Tokens.Keys) == 1) }) {
		add("tokens.keys: the active key is not of alg ES256, the one that HAProxy verifies with a public key; make a key with gateway keys generate --alg ES256")
	}
	return errors.Join(list...)
}

// verificationOf returns the values for the only room of the printed hosts.
func verificationOf(cfg *config.Config, o *Options, d *data) (*verification, error) {
	if len(d.Rooms) != 1 {
		return nil, fmt.Errorf("--room: --verify accepts passes of one room; name one of %s", strings.Join(d.Rooms, ", "))
	}
	room := &cfg.Rooms[slices.IndexFunc(cfg.Rooms, func(r config.Room) bool { return r.ID == d.Rooms[0] })]
	for i := range cfg.Rooms {
		other := &cfg.Rooms[i]
		if other.ID == room.ID {
			continue
		}
		for _, host := range other.Hosts {
			if host == "*" || slices.Contains(room.Hosts, host) || slices.Contains(room.Hosts, "*") || strings.Contains(host+strings.Join(room.Hosts, ""), "*") {
				return nil, fmt.Errorf("rooms: %s has the host %s, where a pass of %s would count too; give each room hosts of its own, without wildcards", other.ID, host, room.ID)
			}
		}
	}
	switch {
	case len(room.Permits) > 0:
		return nil, fmt.Errorf("rooms: %s has permits, which HAProxy does not check; leave --verify out", room.ID)
	case room.Session.Renew == "server":
		return nil, fmt.Errorf("rooms: %s has session.renew: server, whose passes verify after the end of the session; set it to true", room.ID)
	case room.Guard.RequestsPerSession != "":
		return nil, fmt.Errorf("rooms: %s has guard.requests_per_session, which HAProxy does not count; leave --verify out", room.ID)
	}
	return &verification{o.Verify, cfg.Tokens.Issuer, room.ID, o.PassCookie(room.ID, false), o.PassCookie(room.ID, true), int(room.Session.TTL.Seconds()) / 2}, nil
}
