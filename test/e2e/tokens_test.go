package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// forge signs claims as HS256 with a secret.
func forge(header, claims map[string]any, secret string) string {
	part := func(v any) string {
		b, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(header) + "." + part(claims)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func parts(t testing.TB, token string) (header, claims map[string]any) {
	t.Helper()
	for i, into := range []*map[string]any{&header, &claims} {
		b, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[i])
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.UseNumber()
		if err := d.Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

func with(m map[string]any, name string, value any) map[string]any {
	m = maps.Clone(m)
	if value == nil {
		delete(m, name)
	} else {
		m[name] = value
	}
	return m
}

func TestTokens_BadAreRefused(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 0}}", "{id: vip, paths: [/vip], admission: {rate: 0.001, burst: 1}}",
	}}.withRedis(redistest.Server(t).URL()))
	c := newClient(t, g)
	good := c.join(g)
	pass := c.get(g, "/vip").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	header, claims := parts(t, good.Token)
	passHeader, passClaims := parts(t, pass)
	if c.poll(g, forge(header, claims, signingSecret)).State != "waiting" {
		t.Fatal("a token that is signed here is refused: the rows below would prove nothing")
	}
	c.get(g, "/vip", headers{"X-Waiting-Room-Pass": forge(passHeader, passClaims, signingSecret)}).want(http.StatusOK)

	past := time.Now().Add(-time.Hour).Unix()
	signature := good.Token[strings.LastIndex(good.Token, ".")+1:]
	body := strings.Split(good.Token, ".")[1]
	for name, token := range map[string]string{
		"nonsense":           "nonsense",
		"empty":              "..",
		"another secret":     forge(header, claims, "another-secret-another-secret-another"),
		"an edited order":    strings.Replace(forge(header, with(claims, "ord", 1), "x"), "x", "x", 1),
		"a cut signature":    good.Token[:len(good.Token)-2],
		"a longer signature": good.Token + "AA",
		"a changed payload":  strings.Replace(good.Token, body, body[:len(body)-4]+"AAAA", 1),
		"alg none":           strings.TrimSuffix(forge(with(header, "alg", "none"), claims, signingSecret), signature),
		"alg none, unsigned": strings.Join(strings.Split(forge(with(header, "alg", "none"), claims, ""), ".")[:2], ".") + ".",
		"alg HS512":          forge(with(header, "alg", "HS512"), claims, signingSecret),
		"alg EdDSA":          forge(with(header, "alg", "EdDSA"), claims, signingSecret),
		"no kid":             forge(with(header, "kid", nil), claims, signingSecret),
		"another kid":        forge(with(header, "kid", "../../dev/null"), claims, signingSecret),
		"no typ":             forge(with(header, "typ", nil), claims, signingSecret),
		"typ JWT":            forge(with(header, "typ", "JWT"), claims, signingSecret),
		"a pass":             pass,
		"another room":       forge(header, with(claims, "aud", "vip"), signingSecret),
		"rooms as a list":    forge(header, with(claims, "aud", []string{"sale"}), signingSecret),
		"another issuer":     forge(header, with(claims, "iss", "evil"), signingSecret),
		"no exp":             forge(header, with(claims, "exp", nil), signingSecret),
		"expired":            forge(header, with(claims, "exp", past), signingSecret),
		"5 KB":               forge(header, with(claims, "pad", strings.Repeat("x", 5000)), signingSecret),
		"a set of keys":      forge(with(header, "jwk", map[string]string{"kty": "oct"}), claims, signingSecret),
		"crit":               forge(with(header, "crit", []string{"exp"}), claims, signingSecret),
	} {
		if token == good.Token {
			t.Fatalf("%s: it is the good token", name)
		}
		for _, h := range []headers{{"X-Waiting-Room-Token": token}, {"Authorization": "Bearer " + token}, {"Cookie": "wr_sale_ticket=" + token}} {
			if name == "a set of keys" {
				continue // an unknown header member is ignored, or refused: both are right
			}
			a := c.get(g, "/.waiting-room/sale/status", h)
			if a.code != http.StatusUnauthorized {
				t.Errorf("%s: %d %s, want 401", name, a.code, a.body)
				break
			}
			a.problem(http.StatusUnauthorized, "")
		}
		// On a gated path an invalid ticket is replaced, and admits no visitor.
		a := c.get(g, "/sale", headers{"Cookie": "wr_sale_ticket=" + token}).want(http.StatusAccepted)
		if s := a.status(); s.Token == "" || s.Token == token {
			t.Errorf("%s: on a gated path it is not replaced", name)
		}
	}
	for name, token := range map[string]string{
		"a waiting token": good.Token,
		"another room's":  forge(passHeader, with(passClaims, "aud", "sale2"), signingSecret),
		"expired":         forge(passHeader, with(passClaims, "exp", past), signingSecret),
		"another secret":  forge(passHeader, passClaims, "another-secret-another-secret-another"),
		"alg none":        forge(with(passHeader, "alg", "none"), passClaims, signingSecret),
		"typ of a token":  forge(with(passHeader, "typ", "wait+jwt"), passClaims, signingSecret),
		"no session":      forge(passHeader, with(passClaims, "sid", nil), signingSecret),
		"5 KB":            forge(passHeader, with(passClaims, "pad", strings.Repeat("x", 5000)), signingSecret),
	} {
		for _, h := range []headers{{"X-Waiting-Room-Pass": token}, {"Cookie": "wr_vip_pass=" + token}} {
			if a := c.get(g, "/vip", h); a.code != http.StatusAccepted {
				t.Errorf("as a pass: %s: %d, want 202", name, a.code)
			}
		}
	}
	// The pass of vip is valid for vip only.
	c.get(g, "/sale", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusAccepted)
	c.get(g, "/sale", headers{"Cookie": "wr_sale_pass=" + pass}).want(http.StatusAccepted)
}

// Of two cookies of one name the valid one counts, in either order: another path or a sibling domain may have set the other.
func TestCookies_TwoOfOneName(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1}")}})
	c := newClient(t, g)
	pass := c.get(g, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	ticket := c.join(g).Token
	for _, cookie := range []string{"wr_sale_pass=bad; wr_sale_pass=" + pass, "wr_sale_pass=" + pass + "; wr_sale_pass=bad", "x=1; wr_sale_pass=; wr_sale_pass=" + pass} {
		c.get(g, "/", headers{"Cookie": cookie}).want(http.StatusOK)
	}
	for _, cookie := range []string{"wr_sale_ticket=bad; wr_sale_ticket=" + ticket, "wr_sale_ticket=" + ticket + "; wr_sale_ticket=bad"} {
		if s := c.get(g, "/.waiting-room/sale/status", headers{"Cookie": cookie}).want(http.StatusOK).status(); s.State != "waiting" {
			t.Errorf("%v", s)
		}
	}
}

// A pass that is bound to an address or a user agent is not valid for others.
func TestPass_Bound(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1}")}}
	byIP, byUA := s, s
	byIP.more, byUA.more = "tokens: {bind: ip}\n", "tokens: {bind: ua}\n"
	g := start(t, byIP)
	c := newClient(t, g)
	c.ip = "203.0.113.1"
	pass := headers{"X-Waiting-Room-Pass": c.get(g, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")}
	c.ip = "203.0.113.200"
	c.get(g, "/", pass).want(http.StatusOK) // the same /24
	c.ip = "203.0.114.1"
	c.get(g, "/", pass).want(http.StatusAccepted)

	g = start(t, byUA)
	c = newClient(t, g)
	pass = headers{"X-Waiting-Room-Pass": c.get(g, "/", headers{"User-Agent": "one"}).want(http.StatusOK).header.Get("X-Waiting-Room-Pass")}
	c.get(g, "/", pass, headers{"User-Agent": "one"}).want(http.StatusOK)
	c.get(g, "/", pass, headers{"User-Agent": "two"}).want(http.StatusAccepted)
}

// After a reload the new key signs; tokens of the old key stay valid.
func TestKeys_RotateWithoutRestart(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	dir := tempDir(t)
	write(t, dir+"/one", signingSecret+"\n")
	write(t, dir+"/two", "a-second-secret-of-thirty-two-bytes-or-more\n")
	keys := func(active string) string {
		return "tokens: {keys: [{id: k1, secret_file: " + dir + "/one, active: " + map[bool]string{true: "true", false: "false"}[active == "k1"] +
			"}, {id: k2, secret_file: " + dir + "/two, active: " + map[bool]string{true: "true", false: "false"}[active == "k2"] + "}]}\n"
	}
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}, more: keys("k1")}
	g := start(t, s)
	c := newClient(t, g)
	old := c.join(g)
	if h, _ := decode(t, old.Token); h["kid"] != "k1" {
		t.Fatalf("kid %v", h["kid"])
	}
	s.more, s.store = keys("k2"), ownStore(g.dir)
	g.rewrite(s.yaml())
	g.signal(sighup)
	var fresh status
	until(t, "the new key signs", func() bool {
		fresh = c.join(g)
		h, _ := decode(t, fresh.Token)
		return h["kid"] == "k2"
	})
	if s := c.poll(g, old.Token); s.State != "waiting" || *s.Position != 1 {
		t.Errorf("the old key's ticket: %v", s)
	}
	// A changed key file is loaded without a signal, and tokens of the former key are refused.
	write(t, dir+"/one", "a-third-secret-of-thirty-two-bytes-or-more\n")
	until(t, "the old key is gone", func() bool {
		return c.get(g, "/.waiting-room/sale/status", headers{"X-Waiting-Room-Token": old.Token}).code == http.StatusUnauthorized
	})
	c.poll(g, fresh.Token)
}
