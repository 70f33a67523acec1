package integrations

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/test/integrations/suite"
)

func TestNginx(t *testing.T) {
	t.Parallel()
	suite.Run(t, &suite.Proxy{Name: "nginx", Dialect: dialect.Nginx, Page: true, HTTP2: true, Start: startNginx})
}

// startNginx runs nginx with the printed configuration in the places that its comments name.
func startNginx(t testing.TB, s *suite.Setup) string {
	http, server, ok := strings.Cut(s.Snippet(), "# In server {")
	if !ok {
		t.Fatal("the text has no part for server")
	}
	_, server, _ = strings.Cut(server, "\n")
	address, listen := freeport.Address(t), ""
	if s.TLS {
		listen = " ssl http2; ssl_certificate " + s.CertFile + "; ssl_certificate_key " + s.KeyFile
	}
	dir := suite.Dir(t)
	config := suite.WriteFile(t, dir, "nginx.conf", `daemon off; worker_processes 1; pid nginx.pid; error_log stderr warn;
events { worker_connections 256; }
http {
access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
`+http+"server {\nlisten "+address+listen+";\nserver_name "+strings.Join(s.Hosts, " ")+";\n"+server+"}\n}\n")
	suite.Launch(t, installed(t, "nginx"), "-p", dir, "-c", config).Listens(t, address)
	return address
}
