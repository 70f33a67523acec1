package integrations

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/test/integrations/suite"
)

// TestHAProxyVerify runs HAProxy with the output of `gateway snippet haproxy --verify`: it sends requests with a valid pass to the site, and all
// others to the gateway.
func TestHAProxyVerify(t *testing.T) {
	t.Parallel()
	dir, origin := suite.Dir(t), suite.StartOrigin(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	suite.WriteFile(t, dir, "pass.pem", string(publicPEM))
	g := suite.StartGatewayWith(t, fmt.Sprintf(`listen: "127.0.0.1:0"
admin: {listen: "127.0.0.1:0"}
store: {url: %q, timeout: 500ms}
tokens: {keys: [{id: k1, alg: ES256, private_key_file: %q}]}
origins: [{id: site, servers: ["http://%s"]}]
rooms: [{id: sale, hosts: [sale.test], admission: {rate: 1000}, session: {ttl: 1m}}]
`, redistest.Server(t).URL(), suite.WriteFile(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))), origin.Address))
	text := suite.Output(t, suite.Program(t, "gateway"), "snippet", "haproxy", "--config", g.Config, "--verify", dir+"/pass.pem", "--visitors", g.Visitors, "--origin", "http://"+origin.Address)
	address := freeport.Address(t)
	config := suite.WriteFile(t, dir, "haproxy.cfg", strings.Join([]string{
		"global", "  maxconn 200", "defaults", "  mode http", "  timeout connect 5s", "  timeout client 60s", "  timeout server 60s", "frontend site", "  bind " + address, text,
	}, "\n"))
	suite.Launch(t, installed(t, "haproxy"), "-db", "-f", config).Listens(t, address)

	v := suite.NewVisitor(t, address, "sale.test")
	if a := v.Do("GET /seats", suite.Page); !a.Reached() || v.Pass() == "" {
		t.Fatalf("through the gateway: %s", a)
	}
	// direct reports whether HAProxy sent a request to the site itself: the gateway would have removed the cookie of the room.
	direct := func(pass, host string, fields ...string) (reached bool, session string) {
		n := origin.Count()
		suite.NewVisitor(t, address, host).Do("GET /seats", append([]string{suite.Page, "Cookie: wr_sale_pass=" + pass}, fields...)...)
		for _, r := range origin.Requests()[n:] {
			if strings.Contains(r.Header.Get("Cookie"), "wr_sale_pass") {
				return true, r.Header.Get("X-Waiting-Room-Session")
			}
		}
		return false, ""
	}
	claims := claimsOf(t, v.Pass())
	if reached, session := direct(v.Pass(), "sale.test", "X-Waiting-Room-Session: forged"); !reached || session != claims["sid"] {
		t.Fatalf("a pass: reached %t with session %q, want %v", reached, session, claims["sid"])
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(key any, method jwt.SigningMethod, typ string, change jwt.MapClaims) string {
		changed := maps.Clone(claims)
		maps.Copy(changed, change)
		token := jwt.NewWithClaims(method, changed)
		token.Header["typ"], token.Header["kid"] = typ, "k1"
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ec := jwt.SigningMethodES256
	if reached, _ := direct(signed(key, ec, "pass+jwt", nil), "sale.test"); !reached {
		t.Fatal("HAProxy refuses a valid token of the test, so the cases below prove nothing")
	}
	header, payload, signature := cut(v.Pass())
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k1","typ":"pass+jwt"}`))
	hs := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"k1","typ":"pass+jwt"}`))
	mac := hmac.New(sha256.New, publicPEM)
	mac.Write([]byte(hs + "." + payload))
	for name, pass := range map[string]string{
		"no signature":                       header + "." + payload + ".",
		"alg none":                           none + "." + payload + ".",
		"alg none, signed":                   none + "." + payload + "." + signature,
		"HMAC with the public key":           hs + "." + payload + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"another key":                        signed(other, ec, "pass+jwt", nil),
		"another room":                       signed(key, ec, "pass+jwt", jwt.MapClaims{"aud": "beta"}),
		"another issuer":                     signed(key, ec, "pass+jwt", jwt.MapClaims{"iss": "staging"}),
		"a waiting token":                    signed(key, ec, "wait+jwt", nil),
		"an ended pass":                      signed(key, ec, "pass+jwt", jwt.MapClaims{"exp": time.Now().Unix() - 1}),
		"less than half the life left":       signed(key, ec, "pass+jwt", jwt.MapClaims{"exp": time.Now().Unix() + 20}),
		"no end":                             signed(key, ec, "pass+jwt", jwt.MapClaims{"exp": nil}),
		"a session of session.renew: server": signed(key, ec, "pass+jwt", jwt.MapClaims{"live": true}),
		"a bound pass":                       signed(key, ec, "pass+jwt", jwt.MapClaims{"bnd": "x"}),
		"rooms in a list":                    signed(key, ec, "pass+jwt", jwt.MapClaims{"aud": []string{"beta"}}),
		"nothing":                            "",
		"text":                               "x.y.z",
	} {
		if reached, _ := direct(pass, "sale.test"); reached {
			t.Errorf("ENTRY: %s", name)
		}
	}
	if reached, _ := direct(v.Pass(), "other.test"); reached {
		t.Error("ENTRY: at the host of another room")
	}
}

func cut(token string) (header, payload, signature string) {
	parts := strings.Split(token, ".")
	return parts[0], parts[1], parts[2]
}

func claimsOf(t *testing.T, token string) jwt.MapClaims {
	t.Helper()
	_, payload, _ := cut(token)
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.MapClaims{}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}
