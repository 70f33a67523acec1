package gateway

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/gateway/proxy"
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
	agents  *regexp.Regexp
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
			var quoted []string
			for _, ua := range b.UserAgents {
				quoted = append(quoted, regexp.QuoteMeta(ua))
			}
			rule.agents = regexp.MustCompile("(?i)" + strings.Join(quoted, "|"))
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

// fits tells whether a request may go on without a pass. Every reading of its path has to fit, so that a spelling that
// servers read in different ways opens nothing.
func (b *bypassRule) fits(q *proxy.Request, path []byte, addr netip.Addr) bool {
	if b.methods != nil && !slices.Contains(b.methods, string(q.Method())) {
		return false
	}
	if b.ips != nil && !contains(b.ips, addr) {
		return false
	}
	if b.agents != nil && !b.agents.Match(q.Peek("user-agent")) {
		return false
	}
	for _, want := range b.headers {
		got := q.Peek(want.name)
		if got == nil || want.value != "" && string(got) != want.value {
			return false
		}
	}
	return b.paths == nil || b.paths.fitsAll(path)
}

// fitsAll tells whether every reading of a path is found.
func (p *paths) fitsAll(path []byte) bool {
	clean, modes := inspect(path)
	if clean {
		r, _ := p.find(path)
		return r != nil
	}
	for mode := reading(0); ; mode = (mode - modes) & modes {
		if r, _ := p.find(appendReading(nil, path, mode)); r == nil {
			return false
		}
		if mode == modes {
			return true
		}
	}
}
