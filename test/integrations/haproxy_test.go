package integrations

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/test/integrations/suite"
)

func TestHAProxy(t *testing.T) {
	t.Parallel()
	suite.Run(t, &suite.Proxy{Name: "haproxy", Dialect: dialect.HAProxy, Page: true, HTTP2: true, Start: startHAProxy})
}

// startHAProxy runs HAProxy with the printed configuration and Lua file.
func startHAProxy(t testing.TB, s *suite.Setup) string {
	dir, address, secure := suite.Dir(t), freeport.Address(t), ""
	if s.TLS {
		suite.Join(t, dir, "site.pem", s.CertFile, s.KeyFile)
		secure = " ssl crt " + dir + "/site.pem alpn h2,http/1.1"
	}
	lua := suite.WriteFile(t, dir, "anteroom.lua", s.Snippet("--lua"))
	config := suite.WriteFile(t, dir, "haproxy.cfg", strings.Join([]string{
		"global", "  maxconn 200", "  lua-load " + lua, "defaults", "  mode http", "  timeout connect 5s", "  timeout client 60s", "  timeout server 60s",
		"frontend site", "  bind " + address + secure, s.Snippet(),
	}, "\n"))
	suite.Launch(t, installed(t, "haproxy"), "-db", "-f", config).Listens(t, address)
	return address
}
