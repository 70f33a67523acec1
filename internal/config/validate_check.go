package config

import (
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/settings"
)

// checks checks the sockets for checks of other proxies.
func (c gatewayChecker) checks() {
	k := c.cfg.Check
	if !k.On() {
		if len(k.Trusted) > 0 {
			c.Add("check.trusted", "there are no checks without check.listen or check.grpc; give an address, or leave trusted out")
		}
		return
	}
	if k.Listen != "" {
		c.listen("check.listen", k.Listen)
	}
	if k.GRPC != "" {
		c.listen("check.grpc", k.GRPC)
	}
	if len(k.Trusted) == 0 {
		c.Add("check.trusted", "is empty, so no check would be answered; name the networks of the proxies that ask, as 10.0.0.0/8")
	}
	for i, p := range k.Trusted {
		if p.Bits() == 0 {
			c.Add(settings.Element("check.trusted", i), "%s is every address, so visitors could describe their own requests; name the networks of the proxies that ask", p)
		}
	}
	if k.Listen == "" {
		if !dialect.CanDenyOverGRPC(k.Deny) {
			c.Add("check.deny", "%d is not the status of a refusal; use 302, 303, 307 or 400 to 599", k.Deny)
		}
		return
	}
	d, err := dialect.Parse(k.Dialect)
	if err == nil && !d.CanDeny(k.Deny) { // the tags report an unknown dialect; all of its statuses are possible over gRPC
		c.Add("check.deny", "%d does not reach visitors through %s; use %s", k.Deny, d, d.Denials())
	}
}

// On reports whether checks are answered.
func (c *Check) On() bool { return c.Listen != "" || c.GRPC != "" }
