package redistest

import (
	"os"
	"strings"
	"testing"
)

// DocumentedUser creates a user on each server from the line "user NAME RULES" of a page of docs, in the format of users.acl. The
// password in that line is PASSWORD.
func DocumentedUser(t testing.TB, page, name string, servers ...*PrivateServer) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		rules, ok := strings.CutPrefix(strings.TrimSpace(line), "user "+name+" ")
		if !ok {
			continue
		}
		command := []any{"ACL", "SETUSER", name}
		for _, rule := range strings.Fields(rules) {
			command = append(command, rule)
		}
		for _, s := range servers {
			s.do(command...)
		}
		return
	}
	t.Fatalf("%s does not describe the user %s", page, name)
}
