package integrations

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/anteroom/anteroom/gateway/checktest"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/test/integrations/suite"
)

// These proxies cannot be run here; package checktest has proxies that behave like them.

func TestTraefik(t *testing.T) {
	suite.Run(t, &suite.Proxy{Name: "traefik", Dialect: dialect.Traefik, NoOpen: true, OneCheck: true, Aliases: true, KeepsCaching: true, Start: transcribed(func(_ testing.TB, s checktest.Site, tls bool) http.Handler {
		prefix := ""
		if tls {
			prefix = "__Host-"
		}
		var cookies []string
		for _, host := range suite.Hosts {
			cookies = append(cookies, prefix+"wr_"+host[:len(host)-len(".test")]+"_pass")
		}
		return checktest.Traefik(s, cookies...)
	})})
}

func TestEnvoy(t *testing.T) {
	suite.Run(t, &suite.Proxy{Name: "envoy", Dialect: dialect.Envoy, OneCheck: true, KeepsCaching: true, Start: transcribed(func(_ testing.TB, s checktest.Site, _ bool) http.Handler {
		return checktest.Envoy(s)
	})})
}

func TestGatewayAPI(t *testing.T) {
	suite.Run(t, &suite.Proxy{Name: "gateway-api", Dialect: dialect.GatewayAPI, NoOpen: true, OneCheck: true, Start: transcribed(func(_ testing.TB, s checktest.Site, _ bool) http.Handler {
		return checktest.GatewayAPI(s)
	})})
}

func TestEnvoyGRPC(t *testing.T) {
	suite.Run(t, &suite.Proxy{Name: "envoy", Dialect: dialect.Envoy, OneCheck: true, GRPC: true, Start: transcribed(func(t testing.TB, s checktest.Site, _ bool) http.Handler {
		conn, err := grpc.NewClient(s.Checks, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return checktest.EnvoyGRPC(s, authv3.NewAuthorizationClient(conn))
	})})
}

// transcribed returns a function that starts a proxy in this process.
func transcribed(proxy func(t testing.TB, s checktest.Site, tls bool) http.Handler) func(testing.TB, *suite.Setup) string {
	return func(t testing.TB, s *suite.Setup) string {
		server := httptest.NewUnstartedServer(nil)
		site := checktest.Site{Checks: s.Checks()[0], Visitors: s.Gateways[0].Visitors, Origin: s.Origin, Open: s.Open, Clean: true}
		server.Config.Handler = proxy(t, site, s.TLS)
		if s.TLS {
			certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
			if err != nil {
				t.Fatal(err)
			}
			server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
}
