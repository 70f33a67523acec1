package config

import (
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/settings"
)

// checks adds the problems of the section check.
func (c gatewayChecker) checks() {
	k := c.cfg.Check
	if !k.On() {
		if len(k.Trusted) > 0 {
			c.Add("check.trusted", "has no effect without check.listen or check.grpc; set an address, or remove it")
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
		c.Add("check.trusted", "is empty, so every check would be refused; list the networks of your proxies, such as 10.0.0.0/8")
	}
	for i, p := range k.Trusted {
		if p.Bits() == 0 {
			c.Add(settings.Element("check.trusted", i), "%s contains every address, so visitors could describe their own requests; list the networks of your proxies", p)
		}
	}
	if k.Listen == "" {
		if !dialect.CanDenyOverGRPC(k.Deny) {
			c.Add("check.deny", "%d is not the status of a denial; use 302, 303, 307 or 400 to 599", k.Deny)
		}
		return
	}
	d, err := dialect.Parse(k.Dialect)
	if err == nil && !d.CanDeny(k.Deny) { // the tags report an unknown dialect; all of its statuses are possible over gRPC
		c.Add("check.deny", "%d does not reach visitors through %s; use %s", k.Deny, d, d.Denials())
	}
}

// On reports whether the gateway answers checks.
func (c *Check) On() bool { return c.Listen != "" || c.GRPC != "" }
