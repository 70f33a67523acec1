package integrations

import (
	"net"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/test/integrations/suite"
)

func TestCaddy(t *testing.T) {
	t.Parallel()
	suite.Run(t, &suite.Proxy{Name: "caddy", Dialect: dialect.Caddy, HTTP2: true, Start: startCaddy})
}

// startCaddy runs Caddy with the printed site, at a port instead of 443.
func startCaddy(t testing.TB, s *suite.Setup) string {
	_, text, commented := strings.Cut("\n"+s.Snippet(), "this proxy does not send the cookie of a renewed pass to the visitor.\n")
	if !commented {
		t.Fatal("the text does not name the rooms whose passes end")
	}
	sites, body, _ := strings.Cut(text, "{\n")
	address, scheme := suite.FreeAddress(t), "http://"
	_, port, _ := net.SplitHostPort(address)
	if s.TLS {
		scheme, body = "https://", "\ttls "+s.CertFile+" "+s.KeyFile+"\n"+body
	}
	var hosts []string
	for host := range strings.SplitSeq(strings.TrimSpace(sites), ", ") {
		hosts = append(hosts, scheme+host+":"+port)
	}
	config := suite.WriteFile(t, suite.Dir(t), "Caddyfile", "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}\n"+strings.Join(hosts, ", ")+" {\n"+body)
	suite.Launch(t, suite.Program(t, "caddy"), "run", "--config", config, "--adapter", "caddyfile").Listens(t, address)
	return address
}
