package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/anteroom/anteroom/internal/config/configtest"
	"github.com/anteroom/anteroom/internal/freeport"
)

// file writes a file of a test.
func file(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// "gateway audit verify" reads the audit log of a running gateway, and an export of it; a changed entry breaks the chain.
func TestAuditVerify_OfRunningGateway(t *testing.T) {
	admin := freeport.Address(t)
	_, stop := configtest.Serve(t, newRoot(nil), `
listen: "127.0.0.1:0"
admin: {listen: "`+admin+`"}
store: {dir: "`+t.TempDir()+`"}
`+usual)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path, body string) (int, string) {
		q, err := http.NewRequest(method, "http://"+admin+"/admin/v1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(q)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for _, rate := range []string{"5", "6", "7"} {
		configtest.Eventually(t, "the rate is "+rate, func() bool { code, _ := ask("PATCH", "rooms/sale", `{"rate":`+rate+`}`); return code == 200 })
	}
	verify := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newRoot(nil)
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append([]string{"audit", "verify"}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := verify("--url", "http://"+admin); err != nil || !strings.HasPrefix(out, "sale: 3 entries verified, seq 1 to 3, head ") {
		t.Errorf("of the gateway: %q, %v", out, err)
	}
	code, export := ask("GET", "audit/export", "")
	if code != 200 {
		t.Fatal(code, export)
	}
	kept := filepath.Join(t.TempDir(), "audit.ndjson")
	file(t, kept, export)
	if out, err := verify("--all", kept); err != nil || !strings.HasPrefix(out, "sale: 3 entries verified") {
		t.Errorf("of the export: %q, %v", out, err)
	}
	changed := strings.Replace(export, `"5000","6000"`, `"5000","9000"`, 1)
	if changed == export {
		t.Fatalf("the export has no such rate: %s", export)
	}
	file(t, kept, changed)
	if out, err := verify(kept); err == nil || !strings.HasPrefix(out, "sale: BROKEN: ") || !strings.Contains(err.Error(), "1 of 1 rooms") {
		t.Errorf("of a changed export: %q, %v", out, err)
	}
	stop()
}

// A SIGHUP puts the certificate of admin.tls and the settings of admin.oidc in force. With a file that is none both stay.
func TestOperators_ReloadTLSAndSignIn(t *testing.T) {
	var issuer string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token", "jwks_uri": issuer + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	}))
	issuer = provider.URL
	t.Cleanup(provider.Close)
	dir, admin := t.TempDir(), freeport.Address(t)
	config := filepath.Join(dir, "gateway.yaml")
	write := func(scope string) (certificate string) {
		certificate, key := configtest.SelfSigned(t)
		file(t, filepath.Join(dir, "key.pem"), key)
		file(t, filepath.Join(dir, "cert.pem"), certificate)
		file(t, config, fmt.Sprintf(`
listen: "127.0.0.1:0"
store: {dir: "%[1]s/store"}
admin:
  listen: %[2]q
  tls: {cert_file: "%[1]s/cert.pem", key_file: "%[1]s/key.pem"}
  oidc:
    issuer: %[3]q
    client_id: console
    scopes: [%[4]s]
    client_secret_file: "%[1]s/secret"
    redirect_url: "https://%[2]s/auth/callback"
    roles: [{claim: email, value: ann@example.com, role: admin}]
`, dir, admin, issuer, scope)+usual)
		return certificate
	}
	file(t, filepath.Join(dir, "secret"), "a-secret-of-the-client-0123456789")
	first := write("one")
	stderr, stop := configtest.Run(t, newRoot(nil), config)

	// shown returns the scopes with which a sign-in begins, if the certificate is the given one.
	shown := func(certificate string) string {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(certificate))
		client := &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		resp, err := client.Get("https://" + admin + "/auth/login")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		to, err := url.Parse(resp.Header.Get("Location"))
		if err != nil {
			return err.Error()
		}
		return to.Query().Get("scope")
	}
	configtest.Eventually(t, "a sign-in begins", func() bool { return shown(first) == "openid one" })
	hangUp := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	second := write("two")
	hangUp()
	configtest.Eventually(t, "certificate and scopes are the new ones", func() bool { return shown(second) == "openid two" })

	before := strings.Count(stderr.String(), "admin.tls")
	file(t, filepath.Join(dir, "cert.pem"), "no certificate")
	hangUp()
	configtest.Eventually(t, "the log names the setting", func() bool { return strings.Count(stderr.String(), "admin.tls") > before })
	if got := shown(second); got != "openid two" {
		t.Errorf("with a file that is no certificate: %s", got)
	}
	stop()
}
