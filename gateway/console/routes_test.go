package console

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/console/signin"
	"github.com/anteroom/anteroom/gateway/console/signin/signintest"
)

// holder is a token of the walk over the table.
type holder struct {
	token string
	grant access.Grant
}

func tokenHolders() (all []holder) {
	for _, role := range access.Roles() {
		for name, rooms := range map[string][]string{"all": nil, "sale": {"sale"}, "vip": {"vip"}, "both": {"vip", "sale"}} {
			all = append(all, holder{string(role) + "-" + name + "-5d2e8f1a7c3b6049", access.Grant{Role: role, Rooms: rooms}})
		}
	}
	return all
}

// withSignIn adds the routes of sign-in. No provider is contacted.
func withSignIn(t *testing.T) func(*Options) {
	s, err := signin.New(signin.Options{Issuer: "https://id.example", ClientID: "x", ClientSecret: "q8Zt4LwYb8NcUe1H", RedirectURL: signintest.Redirect}, signin.Tools{})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.SignIn = s }
}

// allowed is the rule of docs/access.md, written a second time without the program's.
func allowed(row route, g access.Grant) bool {
	enough := map[access.Role]string{
		access.Any: "viewer operator admin facts", access.Viewer: "viewer operator admin", access.Operator: "operator admin",
		access.Facts: "facts operator admin", access.Admin: "admin",
	}
	if !slices.Contains(strings.Fields(enough[row.role]), string(g.Role)) {
		return false
	}
	switch row.scope {
	case oneRoom:
		return len(g.Rooms) == 0 || slices.Contains(g.Rooms, "sale")
	case wholeDeployment:
		return len(g.Rooms) == 0
	}
	return true
}

// inSale fills the parameters of a path with those of the room sale.
func inSale(path string) string {
	for strings.Contains(path, "{") {
		before, rest, _ := strings.Cut(path, "{")
		name, after, _ := strings.Cut(rest, "}")
		value := "AQIDAAAAAAAAAAAAAAAAAA"
		switch name {
		case "id":
			value = "sale"
		case "$":
			value = ""
		}
		path = before + value + after
	}
	return path
}

// Every route × every role × every choice of rooms, through the router that serves it. The handlers are replaced: what is
// tested is that nobody reaches one without its role in its room.
func TestTable_EveryRoleInEveryRoom(t *testing.T) {
	holders := tokenHolders()
	b := newBench(t, withSignIn(t), func(o *Options) {
		o.Tokens = nil
		for _, h := range holders {
			o.Tokens = append(o.Tokens, Token{Name: h.token, Token: h.token, Role: h.grant.Role, Rooms: h.grant.Rooms})
		}
	})
	table := b.console.routes()
	for i := range table {
		if table[i].scope == nobody {
			table[i].public = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
			continue
		}
		table[i].serve = func(w http.ResponseWriter, _ *http.Request, _ *access.Person) error {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	b.console.mux = b.console.newMux()
	b.console.serve(table)
	b.handler = b.console.Handler()

	for _, row := range table {
		path := inSale(row.path)
		if row.scope == nobody {
			want(t, b.ask(row.method, path, "", "Authorization:"), 204)
			continue
		}
		wantCode(t, b.ask(row.method, path, "", "Authorization:"), 401, "unauthorized")
		for _, h := range holders {
			w := b.ask(row.method, path, "", "Authorization: Bearer "+h.token)
			if allowed(row, h.grant) {
				if w.Code != 204 {
					t.Errorf("%s %s by %s in %q: %d %s, want the handler", row.method, path, h.grant.Role, h.grant.Rooms, w.Code, w.Body)
				}
				continue
			}
			code, _ := decode(t, w.Body.Bytes())["code"].(string)
			if w.Code != 403 || !slices.Contains([]string{"read_only", "role_required", "room_not_allowed"}, code) {
				t.Errorf("%s %s by %s in %q: %d %s, want it refused", row.method, path, h.grant.Role, h.grant.Rooms, w.Code, w.Body)
			}
		}
	}
}

// docs/access.md has the rows of the table, in its order, and no others.
func TestTable_MatchesDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- routes -->\n| request | role | scope |\n|---|---|---|\n")
	documented, _, found := strings.Cut(rest, "<!-- end -->")
	if !found {
		t.Fatal("docs/access.md has no table of routes between <!-- routes --> and <!-- end -->")
	}
	var rows strings.Builder
	for _, row := range newBench(t, withSignIn(t)).console.routes() {
		rows.WriteString(row.String() + "\n")
	}
	if documented != rows.String() {
		t.Errorf("docs/access.md has\n%swant the rows of Console.table:\n%s", documented, rows.String())
	}
}

// The rows are routes of one room exactly where their path names it, and the OpenAPI document has them all and no others.
func TestTable_IsWellFormedAndDocumented(t *testing.T) {
	document, err := openapi3.NewLoader().LoadFromFile("../../api/openapi-admin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	operations := map[string]bool{}
	for path, item := range document.Paths.Map() {
		for method := range item.Operations() {
			operations[method+" "+path] = true
		}
	}
	seen := map[string]bool{"GET /healthz": true, "GET /readyz": true}
	for _, row := range newBench(t, withSignIn(t)).console.routes() {
		key := row.method + " " + row.path
		switch {
		case seen[key]:
			t.Errorf("%s is in the table twice", key)
		case strings.Contains(row.path, "/rooms/{id}") != (row.scope == oneRoom):
			t.Errorf("%s has the scope %s", key, row.scope)
		case row.scope == nobody && (row.public == nil || row.serve != nil || row.role != "" || row.method != "GET"):
			t.Errorf("%s is public: it needs only the method GET and a public handler", key)
		case row.scope != nobody && (row.serve == nil || row.public != nil || !row.role.Known() && row.role != access.Any):
			t.Errorf("%s needs a handler and a role, not %q", key, row.role)
		}
		seen[key] = true
		page := row.path == "/{$}" || strings.HasPrefix(row.path, "/auth") || strings.HasPrefix(row.path, pagePath) || strings.HasPrefix(row.path, "/debug/pprof/")
		if !page && !operations[key] {
			t.Errorf("%s is not in api/openapi-admin.yaml", key)
		}
	}
	for key := range operations {
		if !seen[key] {
			t.Errorf("%s is in api/openapi-admin.yaml and not in the table", key)
		}
	}
}

// Only serve, which reads the table, adds paths to the router.
func TestTable_IsTheOnlySourceOfPaths(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	added := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{".Guarded(", ".Public(", ".Probes(", ".HandleFunc(", "http.NewServeMux("} {
			if n := strings.Count(string(text), call); n > 0 && !strings.HasSuffix(file, "_test.go") {
				added[file+call] = n
			}
		}
	}
	if want := map[string]int{"routes.go.Guarded(": 2, "routes.go.Public(": 1, "routes.go.Probes(": 1}; !maps.Equal(added, want) {
		t.Errorf("paths are added by %v; add rows to Console.table instead", added)
	}
}

// Routes that are not about one room show each operator the rooms of their grants.
func TestOwnRooms_ShowRoomsOfTheGrant(t *testing.T) {
	const scoped = "v-4b7d1e9a2c5f8036"
	b := newBench(t, func(o *Options) {
		o.Tokens = append(o.Tokens, Token{Name: "vip", Token: scoped, Role: access.Operator, Rooms: []string{"vip"}})
	})
	for _, room := range []string{"sale", "vip"} {
		want(t, b.ask("POST", "/admin/v1/rooms/"+room+"/pause", ""), 200)
	}
	rooms := func(token string) (ids []string) {
		list, _ := decode(t, b.ask("GET", "/admin/v1/rooms", "", "Authorization: Bearer "+token).Body.Bytes())["rooms"].([]any)
		for _, room := range list {
			ids = append(ids, at(room, "id").(string))
		}
		return ids
	}
	entries := func(token string) (ids []string) {
		list, _ := decode(t, b.ask("GET", "/admin/v1/audit?limit=1", "", "Authorization: Bearer "+token).Body.Bytes())["entries"].([]any)
		for _, entry := range list {
			ids = append(ids, at(entry, "room").(string))
		}
		return ids
	}
	b.record(1)
	lastError := func(token string) any {
		gateways, _ := decode(t, b.ask("GET", "/admin/v1/fleet", "", "Authorization: Bearer "+token).Body.Bytes())["gateways"].([]any)
		if len(gateways) != 1 {
			t.Fatalf("the fleet is %v", gateways)
		}
		return gateways[0].(map[string]any)["last_error"]
	}
	if got := lastError(scoped); got != nil {
		t.Errorf("an operator of the room vip sees the last error of a gateway: %v", got)
	}
	if got := lastError(readToken); got == nil {
		t.Error("a viewer of all rooms does not see the last error of a gateway")
	}
	if got := rooms(scoped); !slices.Equal(got, []string{"vip"}) {
		t.Errorf("an operator of the room vip sees the rooms %q", got)
	}
	if got := rooms(readToken); !slices.Equal(got, []string{"sale", "vip"}) {
		t.Errorf("a viewer of all rooms sees the rooms %q", got)
	}
	if got := entries(scoped); !slices.Equal(got, []string{"vip"}) {
		t.Errorf("an operator of the room vip sees entries of %q", got)
	}
}
