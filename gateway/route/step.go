package route

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/wire"
)

// StepRule describes steps, which a session can only take with a permit. All fields that are set must match. An empty rule is an error.
type StepRule struct {
	Paths   []string // like a room's paths; empty: every path
	Methods []string // GET, …; empty: every method
	Forward bool     // the origin receives the permit
}

// Step matches the requests of a rule.
type Step struct {
	Forward bool
	paths   *paths
	methods []string
}

// NewSteps compiles a room's rules. Errors name the rule.
func NewSteps(rules []StepRule) ([]Step, error) {
	var out []Step
	for i, r := range rules {
		s := Step{Forward: r.Forward}
		for _, path := range r.Paths {
			if s.paths == nil {
				s.paths = &paths{}
			}
			if err := s.paths.add(path, room{}); err != nil {
				return nil, fmt.Errorf("permits[%d].paths: %w", i, err)
			}
		}
		for _, m := range r.Methods {
			s.methods = append(s.methods, strings.ToUpper(m))
		}
		if s.paths == nil && s.methods == nil {
			return nil, fmt.Errorf("permits[%d]: the rule is empty; name paths or methods", i)
		}
		out = append(out, s)
	}
	return out, nil
}

// Matches reports whether a request, whose path has the given readings, takes the step. In ambiguous cases it does, where Bypass.Matches does
// not: one matching reading is enough, a path that cannot be matched matches, and so does every method if a header field may override it.
func (s *Step) Matches(q *wire.Request, path *Readings) bool {
	if s.methods != nil && !s.hasMethod(q.Method()) && !client.OverridesMethod(q) {
		return false
	}
	return s.paths == nil || s.paths.covers(path)
}

// MatchesLink reports whether a GET of a path takes the step.
func (s *Step) MatchesLink(path *Readings) bool {
	return (s.methods == nil || s.hasMethod([]byte("GET"))) && (s.paths == nil || s.paths.covers(path))
}

func (s *Step) hasMethod(method []byte) bool {
	return slices.ContainsFunc(s.methods, func(m string) bool { return strings.EqualFold(m, string(method)) })
}

// covers reports whether a reading of a path matches.
func (p *paths) covers(r *Readings) bool {
	if r.many || len(p.patterns) > 0 && r.size() > patternMax {
		return true
	}
	for i := range r.n {
		if room, _ := p.find(r.at(i)); room != NoRoom {
			return true
		}
	}
	return false
}

// AppendExact appends a path in its exact form: decoded once, with its case. It returns false if the path has several readings or control
// characters, or is not valid UTF-8. r are the readings of the path.
func AppendExact(dst, path []byte, r *Readings) ([]byte, bool) {
	if r.many || r.n != 1 {
		return dst, false
	}
	start := len(dst)
	dst = decoded(dst, path, false)
	for _, c := range dst[start:] {
		if c < ' ' || c == 0x7f {
			return dst[:start], false
		}
	}
	return dst, utf8.Valid(dst[start:])
}
