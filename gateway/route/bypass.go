package route

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/forwarded"
)

// BypassRule describes requests that go to the origin without a pass. All fields that are set must match; an empty rule is
// an error.
type BypassRule struct {
	Paths      []string          // like a room's paths
	Methods    []string          // GET, …
	IPs        []netip.Prefix    // of the client
	UserAgents []string          // parts of the header field, regardless of case
	Headers    map[string]string // exact values; an empty value: the field is present
}

// Bypass matches the requests of a rule.
type Bypass struct {
	paths   *paths
	methods []string
	ips     []netip.Prefix
	agents  [][]byte // in lower case
	headers []field
}

type field struct{ name, value string } // the name in lower case

// NewBypass compiles a room's bypass rules. Errors name the rule.
func NewBypass(rules []BypassRule) ([]Bypass, error) {
	var out []Bypass
	for i, r := range rules {
		b := Bypass{ips: r.IPs}
		for _, path := range r.Paths {
			if b.paths == nil {
				b.paths = &paths{}
			}
			if err := b.paths.add(path, room{}); err != nil {
				return nil, fmt.Errorf("bypass[%d].paths: %w", i, err)
			}
		}
		for _, m := range r.Methods {
			b.methods = append(b.methods, strings.ToUpper(m))
		}
		for _, part := range r.UserAgents {
			b.agents = append(b.agents, fold([]byte(part), 0))
		}
		for name, value := range r.Headers {
			b.headers = append(b.headers, field{strings.ToLower(name), value})
		}
		slices.SortFunc(b.headers, func(x, y field) int { return strings.Compare(x.name, y.name) })
		if b.paths == nil && b.methods == nil && b.ips == nil && b.agents == nil && b.headers == nil {
			return nil, fmt.Errorf("bypass[%d]: the rule is empty; name paths, methods, ips, user_agents or headers", i)
		}
		out = append(out, b)
	}
	return out, nil
}

// Matches reports whether a request from an address, whose path has the given readings, needs no pass. A method does not
// match where the origin may take another one from a header field.
func (b *Bypass) Matches(q *wire.Request, path *Readings, addr netip.Addr) bool {
	if b.methods != nil && (!slices.Contains(b.methods, string(q.Method())) || client.OverridesMethod(q)) {
		return false
	}
	if b.ips != nil && !forwarded.Contains(b.ips, addr) {
		return false
	}
	if b.agents != nil && !b.matchesAgent(q.Peek("user-agent")) {
		return false
	}
	for _, want := range b.headers {
		got := q.Peek(want.name)
		if got == nil || want.value != "" && subtle.ConstantTimeCompare(got, []byte(want.value)) == 0 {
			return false // the value may be a secret
		}
	}
	return b.paths == nil || b.paths.bypasses(path)
}

// agentMax is the number of bytes of a User-Agent that are searched.
const agentMax = 1 << 10

func (b *Bypass) matchesAgent(agent []byte) bool {
	var buf [agentMax]byte
	lower := fold(append(buf[:0], agent[:min(len(agent), agentMax)]...), 0)
	return slices.ContainsFunc(b.agents, func(part []byte) bool { return bytes.Contains(lower, part) })
}
