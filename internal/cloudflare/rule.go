package cloudflare

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/anteroom/anteroom/internal/settings"
)

// rules converts the bypass rules of a room.
func (i *importer) rules(o *object) []bypass {
	var all []bypass
	for n, e := range o.list("rules") {
		e.at = settings.Element(o.field("rules"), n)
		r := e.object(i)
		if r == nil {
			return nil
		}
		r.skip("id", "version", "description", "last_updated")
		action, expression := r.text("action"), r.text("expression")
		enabled := !r.has("enabled") || r.flag("enabled")
		switch list, err := parseExpression(expression); {
		case action != "bypass_waiting_room":
			r.note("action", action, "the only action is bypass_waiting_room; the rule is left out")
		case !enabled:
			r.note("enabled", "false", "the rule is left out; its expression is "+settings.Clip(expression))
		case err != nil:
			r.note("expression", expression, err.Error()+"; the rule is left out. Write it as a rule of rooms[].bypass, which can test paths, methods, addresses, user agents and headers")
		default:
			all = append(all, list...)
		}
		r.rest()
	}
	return all
}

// maxRules is the largest number of rules from one expression.
const maxRules = 64

// parseExpression converts the part of Cloudflare's rules language that a bypass rule can express: tests of address, path, method and
// user agent, with and, or and parentheses. Each rule of the result is one alternative.
func parseExpression(text string) ([]bypass, error) {
	tokens, err := scan(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	list := p.alternatives(0)
	if p.err == nil && len(p.tokens) > 0 {
		p.fail("%q is not expected", p.tokens[0].text)
	}
	return list, p.err
}

// token is a word, a text in quotes or a punctuation mark.
type token struct {
	text   string
	quoted bool
}

var word = regexp.MustCompile(`^[A-Za-z0-9_.:/]+`)

func scan(text string) ([]token, error) {
	var tokens []token
	for text = strings.TrimLeft(text, " \t\r\n"); text != ""; text = strings.TrimLeft(text, " \t\r\n") {
		switch {
		case strings.HasPrefix(text, "&&"), strings.HasPrefix(text, "||"), strings.HasPrefix(text, "=="):
			tokens, text = append(tokens, token{text: text[:2]}), text[2:]
		case strings.ContainsRune("(){},", rune(text[0])):
			tokens, text = append(tokens, token{text: text[:1]}), text[1:]
		case text[0] == '"':
			var b strings.Builder
			n := 1
			for ; n < len(text) && text[n] != '"'; n++ {
				if text[n] == '\\' {
					if n++; n == len(text) || text[n] != '"' && text[n] != '\\' {
						return nil, errors.New("the text in quotes has an escape that the import does not know")
					}
				}
				b.WriteByte(text[n])
			}
			if n == len(text) {
				return nil, errors.New("a quotation mark is not closed")
			}
			tokens, text = append(tokens, token{b.String(), true}), text[n+1:]
		default:
			w := word.FindString(text)
			if w == "" {
				return nil, fmt.Errorf("%q is not supported by the import", settings.Clip(text))
			}
			tokens, text = append(tokens, token{text: w}), text[len(w):]
		}
	}
	return tokens, nil
}

type parser struct {
	tokens []token
	err    error
}

func (p *parser) fail(format string, args ...any) []bypass {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.tokens = nil
	return nil
}

// is reports whether the next token is one of these words, and consumes it.
func (p *parser) is(words ...string) bool {
	if len(p.tokens) == 0 || p.tokens[0].quoted || !slices.Contains(words, p.tokens[0].text) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *parser) next() token {
	if len(p.tokens) == 0 {
		p.fail("the expression ends early")
		return token{}
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

func (p *parser) alternatives(depth int) []bypass {
	if depth > 32 {
		return p.fail("the expression is nested too deeply")
	}
	all := p.conjunction(depth)
	for p.is("or", "||") {
		all = append(all, p.conjunction(depth)...)
	}
	if len(all) > maxRules {
		return p.fail("the expression has more than %d alternatives", maxRules)
	}
	return all
}

// conjunction returns the alternatives in which all terms match.
func (p *parser) conjunction(depth int) []bypass {
	all := p.term(depth)
	for p.is("and", "&&") {
		var both []bypass
		for _, b := range p.term(depth) {
			for _, a := range all {
				m, ok := merge(a, b)
				if !ok {
					return p.fail("the expression tests one field twice")
				}
				if both = append(both, m); len(both) > maxRules {
					return p.fail("the expression has more than %d alternatives", maxRules)
				}
			}
		}
		all = both
	}
	return all
}

func (p *parser) term(depth int) []bypass {
	if p.is("(") {
		list := p.alternatives(depth + 1)
		if p.err == nil && !p.is(")") {
			return p.fail("a parenthesis is not closed")
		}
		return list
	}
	if p.is("starts_with") {
		if !p.is("(") || !p.is("http.request.uri.path") || !p.is(",") {
			return p.fail("starts_with is supported for http.request.uri.path only")
		}
		prefix := p.next()
		if !prefix.quoted || !p.is(")") {
			return p.fail("starts_with has no text in quotes")
		}
		return p.path("~^", prefix.text, "")
	}
	field := p.next()
	if field.quoted {
		return p.fail("%q is not expected", field.text)
	}
	switch field.text {
	case "ip.src", "http.request.method":
		return p.oneOf(field.text)
	case "http.request.uri.path":
		switch {
		case p.is("eq", "=="):
			return p.path("~^", p.quoted(), "$")
		case p.is("contains"):
			return p.path("~", p.quoted(), "")
		}
	case "http.user_agent":
		if p.is("contains") {
			text := p.quoted()
			if strings.TrimSpace(text) == "" {
				return p.fail("the expression matches every user agent")
			}
			return []bypass{{UserAgents: []string{text}}}
		}
	case "":
		return nil
	}
	return p.fail("%s is not supported by the import, or not with this operator", settings.Clip(field.text))
}

// quoted returns the next token, which has to be in quotes and is the operand of an operator.
func (p *parser) quoted() string {
	t := p.next()
	if !t.quoted || t.text == "" {
		p.fail("an operator has no text in quotes")
	}
	return t.text
}

// path returns a rule for paths. The gateway matches patterns with paths in lower case.
func (p *parser) path(before, text, after string) []bypass {
	if p.err != nil {
		return nil
	}
	if text == "" || strings.ContainsAny(text, "%;\\") || strings.ContainsFunc(text, unicode.IsControl) || strings.ToValidUTF8(text, "") != text {
		return p.fail("%q cannot be tested in a decoded path", settings.Clip(text))
	}
	return []bypass{{Paths: []string{before + regexp.QuoteMeta(strings.ToLower(text)) + after}}}
}

// oneOf returns a rule for a field that equals a value, or one of a list in braces.
func (p *parser) oneOf(field string) []bypass {
	var values []token
	switch {
	case p.is("eq", "=="):
		values = append(values, p.next())
	case p.is("in"):
		if !p.is("{") {
			return p.fail("in is supported with a list in braces only")
		}
		for p.err == nil && !p.is("}") {
			values = append(values, p.next())
		}
	default:
		return p.fail("%s is supported with eq and in only", field)
	}
	if p.err != nil || len(values) == 0 {
		return p.fail("a list is empty")
	}
	var b bypass
	for _, v := range values {
		switch {
		case field == "ip.src" && !v.quoted:
			prefix, err := netip.ParsePrefix(v.text)
			if addr, single := netip.ParseAddr(v.text); single == nil {
				addr = addr.Unmap()
				prefix, err = addr.Prefix(addr.BitLen())
			}
			if err != nil || prefix.Addr().Is4In6() {
				return p.fail("%q is not an address", settings.Clip(v.text))
			}
			b.IPs = append(b.IPs, prefix.Masked().String())
		case field == "http.request.method" && v.quoted && method.MatchString(v.text):
			b.Methods = append(b.Methods, v.text)
		default:
			return p.fail("%q is not a value of %s", settings.Clip(v.text), field)
		}
	}
	return []bypass{b}
}

var method = regexp.MustCompile(`^[A-Z]+$`)

// merge returns the rule that matches what both match, or false if both test the same field.
func merge(a, b bypass) (bypass, bool) {
	if a.Paths != nil && b.Paths != nil || a.Methods != nil && b.Methods != nil || a.IPs != nil && b.IPs != nil || a.UserAgents != nil && b.UserAgents != nil {
		return bypass{}, false
	}
	return bypass{
		Paths: slices.Concat(a.Paths, b.Paths), Methods: slices.Concat(a.Methods, b.Methods), IPs: slices.Concat(a.IPs, b.IPs), UserAgents: slices.Concat(a.UserAgents, b.UserAgents),
	}, true
}
