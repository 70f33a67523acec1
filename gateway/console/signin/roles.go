package signin

import (
	"maps"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/gateway/access"
)

// claims are the claims of an ID token and of the provider's user info.
type claims map[string]any

// verified reports whether the provider has verified the address in the claim email.
func (c claims) verified() bool {
	v := c["email_verified"]
	return v == true || v == "true"
}

// name returns the verified e-mail address, otherwise the subject: other claims may be chosen by the person.
func (c claims) name(subject string) string {
	email, _ := c["email"].(string)
	if c.verified() && email != "" && len(email) <= 254 && !strings.ContainsFunc(email, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return email
	}
	return subject
}

// values returns the texts of a claim: of a text, of a list, or the names of an object. A name with dots that is not a claim is the path of
// one within objects.
func (c claims) values(name string) []string {
	if name == "email" && !c.verified() {
		return nil
	}
	value, there := c[name]
	if outer, inner, nested := strings.Cut(name, "."); !there && nested {
		if object, ok := c[outer].(map[string]any); ok {
			return claims(object).values(inner)
		}
	}
	switch value := value.(type) {
	case string:
		return []string{value}
	case map[string]any:
		return slices.Sorted(maps.Keys(value))
	case []any:
		var texts []string
		for _, v := range value {
			if text, ok := v.(string); ok {
				texts = append(texts, text)
			}
		}
		return texts
	}
	return nil
}

// matching returns the claims and values of the rules that the claims meet, which is all that a session has to keep.
func (o *Options) matching(c claims) map[string][]string {
	kept := map[string][]string{}
	for _, rule := range o.Rules {
		if slices.Contains(c.values(rule.Claim), rule.Value) && !slices.Contains(kept[rule.Claim], rule.Value) {
			kept[rule.Claim] = append(kept[rule.Claim], rule.Value)
		}
	}
	return kept
}

// grants returns the grants of the rules in force now.
func (o *Options) grants(kept map[string][]string) (grants []access.Grant) {
	for _, rule := range o.Rules {
		if slices.Contains(kept[rule.Claim], rule.Value) {
			grants = append(grants, rule.Grant)
		}
	}
	return grants
}

// lacks reports whether a rule is about a claim that is not there.
func (o *Options) lacks(c claims) bool {
	return slices.ContainsFunc(o.Rules, func(rule Rule) bool {
		_, there := c[rule.Claim]
		outer, _, _ := strings.Cut(rule.Claim, ".")
		_, within := c[outer]
		return !there && !within
	})
}
