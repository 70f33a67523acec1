package config

import (
	"fmt"
	"strings"
	"testing"
)

// session.renew was a boolean before it had a third value. Files that say true or false, with quotes or without, mean the same as then, and
// a printed configuration has them without.
func TestRenew_AcceptsBooleans(t *testing.T) {
	for _, row := range []struct{ written, want, printed string }{
		{"true", "true", "renew: true"},
		{`"true"`, "true", "renew: true"},
		{"false", "false", "renew: false"},
		{"'false'", "false", "renew: false"},
		{"server", RenewServer, "renew: server"},
	} {
		cfg, problems := loadText(t, shop+fmt.Sprintf("rooms: [{id: sale, session: {renew: %s}}]\n", row.written))
		wantProblems(t, problems)
		text, err := cfg.YAML()
		if got := cfg.Rooms[0].Session.Renew; err != nil || got != row.want || !strings.Contains(string(text), row.printed+"\n") {
			t.Errorf("%s: %q, %v, printed as\n%s", row.written, got, err, text)
		}
	}
}
