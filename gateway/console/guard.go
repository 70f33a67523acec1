package console

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// local is the operator of requests while no token is configured.
var local = access.Person{Name: "local", Subject: "local", Via: access.ViaLocal, Grants: []access.Grant{{Role: access.Admin}}}

// SetTokens replaces the tokens while requests are served. After an error, which names the setting, the old ones
// stay.
func (c *Console) SetTokens(tokens []Token) error {
	seen := map[string]bool{}
	credentials := make([]ophttp.Credential[*access.Person], 0, len(tokens))
	for i, t := range tokens {
		at := fmt.Sprintf("admin.tokens[%d]", i)
		switch {
		case t.Name == "":
			return fmt.Errorf("%s.name is empty: name the holder, for the audit log", at)
		case seen[t.Name]:
			return fmt.Errorf("%s.name %q is given twice: the audit log could not distinguish the holders", at, t.Name)
		case t.Token == "":
			return fmt.Errorf("%s (%s) is an empty token: write one into its token_file", at, t.Name)
		case !t.Role.Known():
			return fmt.Errorf("%s.role %q: use viewer, operator, admin or facts", at, t.Role)
		}
		seen[t.Name] = true
		credentials = append(credentials, ophttp.Credential[*access.Person]{Token: t.Token, Holder: &access.Person{
			Name: t.Name, Subject: t.Name, Via: access.ViaToken, Grants: []access.Grant{{Role: t.Role, Rooms: t.Rooms}},
		}})
	}
	if len(credentials) == 0 && c.o.SignIn == nil && !ophttp.IsLoopback(c.o.Listen) {
		return fmt.Errorf("admin.listen %q can be reached from other machines and there is no token: set admin.token, admin.tokens or admin.oidc, or listen on 127.0.0.1", c.o.Listen)
	}
	c.guard.SetTokens(credentials)
	return nil
}

// readsOnly reports whether a request changes nothing.
func readsOnly(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead ||
		strings.HasPrefix(r.URL.Path, "/debug/pprof/") // its one POST reads
}
