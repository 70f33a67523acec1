package console

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/anteroom/anteroom/internal/ophttp"
)

// localName is the audit log's name for requests while no token is configured.
const localName = "local"

// SetTokens replaces the tokens while requests are served. After an error, which names the setting, the old ones
// stay.
func (c *Console) SetTokens(tokens []Token) error {
	seen := map[string]bool{}
	credentials := make([]ophttp.Credential[identity], 0, len(tokens))
	for i, t := range tokens {
		at := fmt.Sprintf("admin.tokens[%d]", i)
		switch {
		case t.Name == "":
			return fmt.Errorf("%s.name is empty: name the holder, for the audit log", at)
		case seen[t.Name]:
			return fmt.Errorf("%s.name %q is given twice: the audit log could not distinguish the holders", at, t.Name)
		case t.Token == "":
			return fmt.Errorf("%s (%s) is an empty token: write one into its token_file", at, t.Name)
		case t.Role != Read && t.Role != Write:
			return fmt.Errorf("%s.role %q: use read or write", at, t.Role)
		}
		seen[t.Name] = true
		credentials = append(credentials, ophttp.Credential[identity]{Token: t.Token, Holder: identity{t.Name, t.Role}})
	}
	if len(credentials) == 0 && !ophttp.IsLoopback(c.o.Listen) {
		return fmt.Errorf("admin.listen %q can be reached from other machines and there is no token: set admin.token or admin.tokens, or listen on 127.0.0.1", c.o.Listen)
	}
	c.guard.SetTokens(credentials)
	return nil
}

// admit returns the holder of a request's token, or the problem that refuses it.
func (c *Console) admit(r *http.Request) (identity, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead ||
		strings.HasPrefix(r.URL.Path, "/debug/pprof/") // its one POST reads
	who, err := c.guard.Admit(r, reads)
	if err == nil && !reads && who.role != Write {
		return identity{}, ophttp.NewProblem(http.StatusForbidden, "read_only", "the token %q has the role read; this request needs write", who.name)
	}
	return who, err
}
