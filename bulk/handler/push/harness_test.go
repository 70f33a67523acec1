package push

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accountKey is made once: RSA keys take their time.
var accountKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// credentials writes a service account's file in the form of the console's download.
func credentials(t *testing.T, tokenURI string) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(accountKey())
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "account.json", map[string]string{
		"type": "service_account", "project_id": "shop-1", "private_key_id": "kid-1", "client_email": "push@shop-1.example",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": tokenURI,
	})
}

func file(t *testing.T, name string, content any) string {
	t.Helper()
	b, ok := content.([]byte)
	if !ok {
		var err error
		if b, err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func guard(t *testing.T, allow ...string) *outbound.Guard {
	t.Helper()
	g, err := outbound.NewGuard(allow)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// trust returns a client's configuration that trusts the test server's certificate.
func trust(s *httptest.Server) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{RootCAs: roots}
}

func handler(t *testing.T, o Options) *Handler {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func job(payload string) *bulk.Job {
	return &bulk.Job{ID: "j1", Group: "g1", Tenant: "acme", Type: "push", Payload: []byte(payload), Attempt: 1, Fence: 1, IdempotencyKey: "g1/j1"}
}

func outcome(err error) string {
	f, ok := errors.AsType[*bulk.Failure](err)
	switch {
	case err == nil:
		return "done"
	case !ok:
		return "not a Failure: " + err.Error()
	}
	kind := map[bulk.Kind]string{bulk.KindRetry: "fail", bulk.KindPermanent: "permanent", bulk.KindBusy: "busy", bulk.KindBusyGroup: "busy group"}[f.Kind]
	if f.After > 0 {
		return fmt.Sprintf("%s %s %s", kind, f.Code, f.After)
	}
	return kind + " " + f.Code
}
