package gateway

import (
	"net/http"
	"testing"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// Within a second the health of the origin is in the store. It counts the requests of visitors, but no errors of clients.
func TestForward_ReportsHealthOfOrigin(t *testing.T) {
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}})
	for range 8 {
		for _, path := range []string{"/", "/missing", "/broken"} {
			b.call("GET "+path, asJSON)
		}
	}
	eventually(t, "the health is in the store", func() bool {
		h, err := b.core.OriginHealth(t.Context(), "shop")
		return err == nil && h.Requests == 24 && h.Errors == 8 && h.Gateways == 1 && h.P95 > 0
	})
}
