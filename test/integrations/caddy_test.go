package integrations

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/test/integrations/suite"
)

func TestCaddy(t *testing.T) {
	t.Parallel()
	suite.Run(t, &suite.Proxy{Name: "caddy", Dialect: dialect.Caddy, HTTP2: true, Aliases: true, Start: startCaddy})
}

// startCaddy runs Caddy with the printed site, at a port instead of 443.
func startCaddy(t testing.TB, s *suite.Setup) string {
	_, text, commented := strings.Cut("\n"+s.Snippet(), "this proxy does not send the cookie of a renewed pass to the visitor.\n")
	if !commented {
		t.Fatal("the text does not name the rooms whose passes end")
	}
	sites, body, _ := strings.Cut(text, "{\n")
	address, scheme := freeport.Address(t), "http://"
	_, port, _ := net.SplitHostPort(address)
	if s.TLS {
		scheme, body = "https://", "\ttls "+s.CertFile+" "+s.KeyFile+"\n"+body
	}
	var hosts []string
	for host := range strings.SplitSeq(strings.TrimSpace(sites), ", ") {
		hosts = append(hosts, scheme+host+":"+port)
	}
	body = olderCaddy(t, body)
	config := suite.WriteFile(t, suite.Dir(t), "Caddyfile", "{\n\tadmin off\n\tauto_https off\n}\n"+strings.Join(hosts, ", ")+" {\n"+body)
	suite.Launch(t, "caddy", "run", "--config", config, "--adapter", "caddyfile").Listens(t, address)
	return address
}

// olderCaddy returns the site with the lines that docs/integrations/caddy.md adds below forward_auth for Caddy before 2.9, if the
// Caddy of this machine is that old.
func olderCaddy(t testing.TB, body string) string {
	var major, minor int
	version := strings.TrimPrefix(suite.Output(t, "caddy", "version"), "v")
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("caddy version: %v in %q", err, version)
	}
	if major > 2 || minor >= 9 {
		return body
	}
	page, err := os.ReadFile("../../docs/integrations/caddy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, found := strings.Cut(string(page), "put this below `forward_auth`:\n\n```caddyfile\n")
	lines, _, ended := strings.Cut(lines, "```")
	before, after, copies := strings.Cut(body, "copy_headers X-Waiting-Room-Session\n")
	block, rest, closed := strings.Cut(after, "}\n")
	if !found || !ended || !copies || !closed {
		t.Fatalf("no lines for Caddy %s in the page, or no forward_auth in:\n%s", version, body)
	}
	return before + "copy_headers X-Waiting-Room-Session\n" + block + "}\n" + lines + rest
}
