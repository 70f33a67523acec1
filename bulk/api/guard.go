package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/internal/ophttp"
)

// identity is the holder of a token and the tenants it is for.
type identity struct {
	name    string
	admin   bool
	tenants []string
	most    Ceilings
	worker  bool     // for /v1/work only
	types   []string // of a worker's jobs; empty: all
}

// sees reports whether the token may read the tenant's groups.
func (i identity) sees(tenant string) bool { return i.admin || slices.Contains(i.tenants, tenant) }

// forTenant refuses requests that name another token's tenant.
func (i identity) forTenant(tenant string) error {
	if i.sees(tenant) {
		return nil
	}
	return ophttp.NewProblem(http.StatusForbidden, "wrong_tenant", "the token %q is for the tenants %s, not %q: use that tenant's token, or the operators' token",
		i.name, strings.Join(i.tenants, ", "), ophttp.Shorten(tenant))
}

// forAll refuses requests that concern every tenant, except with the operators' token.
func (i identity) forAll() error {
	if i.admin {
		return nil
	}
	return ophttp.NewProblem(http.StatusForbidden, "operators_only", "this request concerns all tenants, and the token %q is for %s only: use the operators' token (admin.token)", i.name, strings.Join(i.tenants, ", "))
}

func newGuard(o Options) (*ophttp.Guard[identity], error) {
	var tokens []ophttp.Credential[identity]
	seen := map[string]string{}
	add := func(at, token string, who identity) error {
		if other, ok := seen[token]; ok {
			return fmt.Errorf("%s is the same token as %s: give each its own", at, other)
		}
		seen[token] = at
		tokens = append(tokens, ophttp.Credential[identity]{Token: token, Holder: who})
		return nil
	}
	if o.Token != "" {
		if err := add("admin.token", o.Token, identity{name: "admin", admin: true}); err != nil {
			return nil, err
		}
	}
	for i, t := range o.Tokens {
		at := fmt.Sprintf("api_tokens[%d]", i)
		switch {
		case t.Name == "":
			return nil, fmt.Errorf("%s.name is empty: name the holder, for the log", at)
		case t.Token == "":
			return nil, fmt.Errorf("%s (%s) is an empty token: write one into its token_file", at, t.Name)
		case len(t.Tenants) == 0:
			return nil, fmt.Errorf("%s.tenants (%s) is empty: list the token's tenants; admin.token is for all", at, t.Name)
		}
		for _, tenant := range t.Tenants {
			if !isWord(tenant, maxTenant, "") {
				return nil, fmt.Errorf("%s.tenants (%s) has %q: a tenant has 1 to 64 of A-Z a-z 0-9 . _ -", at, t.Name, tenant)
			}
		}
		if err := add(at, t.Token, identity{name: t.Name, tenants: t.Tenants, most: t.Most}); err != nil {
			return nil, err
		}
	}
	for i, t := range o.WorkerTokens {
		at := fmt.Sprintf("worker_tokens[%d]", i)
		switch {
		case t.Name == "":
			return nil, fmt.Errorf("%s.name is empty: name the holder, for the log", at)
		case t.Token == "":
			return nil, fmt.Errorf("%s (%s) is an empty token: write one into its token_file", at, t.Name)
		}
		for _, kind := range t.Types {
			if !isWord(kind, maxType, alsoInType) {
				return nil, fmt.Errorf("%s.types (%s) has %q: a type has %s", at, t.Name, kind, ruleType)
			}
		}
		if err := add(at, t.Token, identity{name: t.Name, worker: true, types: t.Types}); err != nil {
			return nil, err
		}
	}
	if len(tokens) == 0 && o.RequireToken {
		return nil, errors.New("listen can be reached from other machines and there is no token: set admin.token or api_tokens, or listen on 127.0.0.1")
	}
	g := ophttp.NewGuard(identity{name: "local", admin: true}, "admin.token or api_tokens", o.Now, o.Log)
	g.SetTokens(tokens)
	return g, nil
}
