package config

import (
	"slices"

	"github.com/anteroom/anteroom/internal/settings"
)

// warnHosts warns of origins that a client reaches past a room by sending another Host header.
func (c *Config) warnHosts(warn func(path, message string)) {
	everywhere := func(r *Room) bool { return slices.Contains(r.Hosts, "*") }
	for i := range c.Rooms {
		room := &c.Rooms[i]
		origin := c.OriginOf(room)
		if origin == nil || everywhere(room) {
			continue
		}
		if c.DefaultOrigin == origin.ID {
			warn("default_origin", origin.ID+" is the origin of room "+room.ID+", which names its hosts: a request with any other Host header, or none, reaches it uncounted; leave default_origin empty to answer 421, or name another origin")
			return
		}
		for j := range c.Rooms[:i] {
			other := &c.Rooms[j]
			if c.OriginOf(other) == origin && !everywhere(other) && !slices.ContainsFunc(room.Hosts, func(h string) bool { return slices.Contains(other.Hosts, h) }) &&
				!(covers(room, other) && covers(other, room)) {
				warn(settings.Element("rooms", i)+".hosts", "room "+other.ID+" has other hosts and the same origin ("+origin.ID+"): requests for the paths of one room are uncounted under the hosts of the other, unless the origin distinguishes them by Host")
				return
			}
		}
	}
}

// covers reports whether a room protects every path of another. Rooms that differ by their hosts alone cover each other: virtual hosts of
// one origin, where any host leads to a room.
func covers(room, other *Room) bool {
	paths := room.Paths
	if len(paths) == 0 || slices.Contains(paths, "/") {
		return true
	}
	return len(other.Paths) > 0 && !slices.ContainsFunc(other.Paths, func(p string) bool { return !slices.Contains(paths, p) })
}

// warnAccountHeader warns if any program on this machine, such as a tunnel or a sidecar, may set the account header.
func (c *Config) warnAccountHeader(path string, room *Room, warn func(path, message string)) {
	if !room.Identity.OnePlace || room.Identity.Header == "" || len(c.TrustedProxies) == 0 {
		return
	}
	for _, p := range c.TrustedProxies {
		if !p.Addr().IsLoopback() {
			return
		}
	}
	warn(path+".identity.header", "is believed from trusted_proxies, which are this machine alone: a tunnel or sidecar here that passes on the visitor's own "+room.Identity.Header+" lets anybody name any account; have it replace that header")
}
