package identity

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Keys are not fetched over http after a redirect from https.
func TestKeys_RefuseRedirectWithoutTLS(t *testing.T) {
	one := newKey(t, "1")
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[%s]}`, one.jwk(t))
	}))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secure.Close()
	k := New(secure.URL, slog.New(slog.DiscardHandler), nil)
	k.client.Transport = secure.Client().Transport
	if keys, err := k.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "away from https") {
		t.Errorf("%v, %v", keys, err)
	}
}
