package gateway

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/forwarded"
)

// Bypass lets requests go to the origin without a pass. All that is set must fit; an empty rule fits nothing.
type Bypass struct {
	Paths      []string          // as a room's paths
	Methods    []string          // GET, …
	IPs        []netip.Prefix    // of the visitor
	UserAgents []string          // parts of the header, without regard to case
	Headers    map[string]string // exact values; an empty one: the header is there
}

// bypassRule is a Bypass made ready.
type bypassRule struct {
	paths   *paths
	methods []string
	ips     []netip.Prefix
	agents  [][]byte // in lower case
	headers []headerRule
}

type headerRule struct{ name, value string } // the name in lower case

func newBypass(rules []Bypass, r *room) ([]bypassRule, error) {
	var out []bypassRule
	for i, b := range rules {
		rule := bypassRule{ips: b.IPs}
		for _, path := range b.Paths {
			if rule.paths == nil {
				rule.paths = &paths{}
			}
			if err := rule.paths.add(path, r); err != nil {
				return nil, fmt.Errorf("bypass[%d].paths: %w", i, err)
			}
		}
		for _, m := range b.Methods {
			rule.methods = append(rule.methods, strings.ToUpper(m))
		}
		if len(b.UserAgents) > 0 {
			for _, part := range b.UserAgents {
				rule.agents = append(rule.agents, fold([]byte(part), 0))
			}
		}
		for name, value := range b.Headers {
			rule.headers = append(rule.headers, headerRule{strings.ToLower(name), value})
		}
		slices.SortFunc(rule.headers, func(a, b headerRule) int { return strings.Compare(a.name, b.name) })
		if rule.paths == nil && rule.methods == nil && rule.ips == nil && rule.agents == nil && rule.headers == nil {
			return nil, fmt.Errorf("bypass[%d]: the rule is empty; name paths, methods, ips, user_agents or headers", i)
		}
		out = append(out, rule)
	}
	return out, nil
}

// fits reports whether a request may go on without a pass. Every reading of its path has to fit, so that a spelling that
// servers read in different ways opens nothing; nor does a method that the site may take for another.
func (b *bypassRule) fits(q *proxy.Request, path *readings, addr netip.Addr) bool {
	if b.methods != nil && (!slices.Contains(b.methods, string(q.Method())) || overridesMethod(q)) {
		return false
	}
	if b.ips != nil && !forwarded.Contains(b.ips, addr) {
		return false
	}
	if b.agents != nil && !b.fitsAgent(q.Peek("user-agent")) {
		return false
	}
	for _, want := range b.headers {
		got := q.Peek(want.name)
		if got == nil || want.value != "" && subtle.ConstantTimeCompare(got, []byte(want.value)) == 0 {
			return false // the value may be a secret
		}
	}
	return b.paths == nil || b.paths.fitsAll(path)
}

// agentMost is how many bytes of a User-Agent are looked at.
const agentMost = 1 << 10

func (b *bypassRule) fitsAgent(agent []byte) bool {
	var buf [agentMost]byte
	lower := fold(append(buf[:0], agent[:min(len(agent), agentMost)]...), 0)
	return slices.ContainsFunc(b.agents, func(part []byte) bool { return bytes.Contains(lower, part) })
}

// fitsAll reports whether the rule fits every reading of a path.
func (p *paths) fitsAll(path *readings) bool {
	if path.many || len(p.regexes) > 0 && path.size() > patternMost {
		return false
	}
	for i := range path.n {
		if !p.opens(path.at(i)) {
			return false
		}
	}
	return true
}

// methodOverrides are the headers by which frameworks let a client name another method than that of the request line.
var methodOverrides = []string{"x-http-method-override", "x-http-method", "x-method-override"}

// overridesMethod reports whether a request may name another method in a header, in any spelling that an origin could
// take for one of methodOverrides.
func overridesMethod(q *proxy.Request) bool {
	return slices.ContainsFunc(methodOverrides, q.HasAlias)
}
