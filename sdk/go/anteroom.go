// Package anteroom verifies the passes of an Anteroom gateway in a backend, without a request to the gateway for each pass.
//
// Send a visitor without a pass to /.waiting-room/{room}/: redirect a navigation, and return 401 with application/problem+json
// from an API. Treat every state but Pass in this way: a backend that serves such visitors has no waiting room.
package anteroom

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The states of a Result.
const Pass, None, Invalid, Expired, Revoked = "pass", "none", "invalid", "expired", "revoked"

// Result is the result of Verify. Session and Expires (Unix seconds) are set in the states Pass, Expired and Revoked.
type Result struct {
	State, Reason, Session string
	Expires                int64
}

// Config describes the gateway and its keys. Issuer and one of JWKSURL, JWKS and Secrets are required.
type Config struct {
	Issuer      string            // the gateway's tokens.issuer
	Algorithms  []string          // those allowed of ES256, EdDSA and HS256; nil: all
	JWKSURL     string            // the gateway's https://HOST/.waiting-room/jwks.json
	JWKS        []byte            // instead of JWKSURL: a key set
	Secrets     map[string]string // secrets of HS256 by kid, at least 32 bytes each
	RevokedURL  string            // the gateway's https://HOST/.waiting-room/{room}/revoked with the text {room}; empty: not checked
	PlainHTTP   bool              // the site has no TLS: the cookie's name has no prefix __Host-
	AcceptBound bool              // accept passes that are bound to a network or browser, without checking the binding
	OnError     func(error)       // called when a fetch fails; the data of the last successful fetch stays in use
	Transport   http.RoundTripper // nil: http.DefaultTransport
	Now         func() time.Time  // nil: time.Now
}

// Verifier verifies passes. It is safe for concurrent use.
type Verifier struct {
	Config
	secrets map[string]key
	keys    *document
	revoked sync.Map // room: *document
}

type key struct {
	alg    string
	verify func(text, signature []byte) bool

	ct, iat int64 // of the last evacuation, which is the entry "evacuated" of a list of revoked sessions
}

// New returns a Verifier. It fetches nothing before the first pass.
func New(c Config) (v *Verifier, err error) {
	if c.Issuer == "" || c.JWKSURL == "" && c.JWKS == nil && c.Secrets == nil || c.RevokedURL != "" && !strings.Contains(c.RevokedURL, "{room}") {
		return nil, errors.New("anteroom: set Issuer; JWKSURL, JWKS or Secrets; and in RevokedURL the text {room}")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Algorithms == nil {
		c.Algorithms = []string{"ES256", "EdDSA", "HS256"}
	}
	v = &Verifier{Config: c, secrets: map[string]key{}, keys: &document{c: &c, url: c.JWKSURL, entries: map[string]key{}}}
	for kid, secret := range c.Secrets {
		v.secrets[kid] = key{alg: "HS256", verify: func(text, signature []byte) bool {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write(text)
			return hmac.Equal(mac.Sum(nil), signature)
		}}
		if len(secret) < 32 {
			err = fmt.Errorf("anteroom: Secrets: %q has %d bytes; use at least 32", kid, len(secret))
		}
	}
	if c.JWKSURL != "" {
		v.keys.entries = nil
	} else if c.JWKS != nil && err == nil {
		v.keys.entries, err = parse(bytes.NewReader(c.JWKS))
	}
	return v, err
}

// Verify returns the state of a request's visitor in a room. Of the header field X-Waiting-Room-Pass
// and at most four cookies, the first valid pass counts. If none is valid, the result is that of a revoked pass, else of an
// expired one, else of the first one.
func (v *Verifier) Verify(r *http.Request, room string) Result {
	name, tokens := "__Host-wr_"+room+"_pass", []string{r.Header.Get("X-Waiting-Room-Pass")}
	if v.PlainHTTP {
		name = "wr_" + room + "_pass"
	}
	for pair := range strings.SplitSeq(strings.Join(r.Header["Cookie"], ";"), ";") {
		if m := cookie.FindStringSubmatch(pair); m != nil && m[1] == name && m[2]+m[3] != "" && len(tokens) < 5 {
			tokens = append(tokens, m[2]+m[3])
		}
	}
	result, rank := Result{State: None}, []string{None, Invalid, Expired, Revoked, Pass}
	for _, raw := range tokens {
		if one := v.token(raw, room); raw != "" && slices.Index(rank, one.State) > slices.Index(rank, result.State) {
			result = one
		}
	}
	return result
}

// refuse panics with the reason if a token is to be refused; token recovers.
func refuse(when bool, reason refusal) {
	if when {
		panic(reason)
	}
}

type refusal string

var (
	known = regexp.MustCompile(`^(iss|aud|jti|sid|ep|ah|bnd|iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi|off|acc|nbf)=`)
	typed = regexp.MustCompile(`^((iss|aud|jti|sid|ep|ah|bnd)=string|(off|acc)=bool|(iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi)=json.Number(0|[1-9][0-9]{0,14}|[1-8][0-9]{15})$)`)
	other = regexp.MustCompile(`^[a-z0-9_]{1,32}=(string|bool|json.Number|<nil>)`) // a claim of a newer gateway
	id    = regexp.MustCompile(`^[A-Za-z0-9_-]{21}[AQgw]$`)

	cookie = regexp.MustCompile(`^[ \t]*([^=]*?)[ \t]*=[ \t]*(?:"(.*)"|(.*?))[ \t]*$`)
	member = regexp.MustCompile(`"(?:[^"\\]|\\.)*"[ \t\r\n]*:[ \t\r\n]*(?:"(?:[^"\\]|\\.)*")?`)
)

func (v *Verifier) token(raw, room string) (result Result) {
	defer func() {
		if cause := recover(); cause != nil {
			reason := string(cause.(refusal))
			if result.State, result.Reason = reason, reason; reason != Expired && reason != Revoked {
				result = Result{State: Invalid, Reason: reason}
			}
		}
	}()
	refuse(len(raw) > 4096, "too_long")
	parts := strings.Split(raw, ".")
	refuse(len(parts) != 3, "malformed")
	header, wrong := object(parts[0], "header"), false
	alg, _ := header["alg"].(string)
	kid, _ := header["kid"].(string)
	for name := range header {
		refuse(name == "crit", "crit")
		wrong = wrong || name != "alg" && name != "kid" && name != "typ"
	}
	refuse(wrong, "header")
	refuse(!slices.Contains(v.Algorithms, alg), "alg")
	k, found := v.secrets[kid]
	if !found {
		keys := v.keys.load(5*time.Minute, false)
		if k, found = keys[kid]; !found && alg != "HS256" {
			keys = v.keys.load(30*time.Second, true)
			k, found = keys[kid]
		}
		refuse(keys == nil, "keys")
	}
	refuse(!found, "kid")
	refuse(k.alg != alg, "alg")
	refuse(header["typ"] != "pass+jwt", "type")
	refuse(!k.verify([]byte(parts[0]+"."+parts[1]), decode(parts[2], "signature")), "signature")
	claims := object(parts[1], "claims")
	for name, value := range claims {
		claim := fmt.Sprintf("%s=%T%v", name, value, value)
		wrong = wrong || !typed.MatchString(claim) && (known.MatchString(claim) || !other.MatchString(claim))
	}
	refuse(claims["iss"] != v.Issuer, "issuer")
	refuse(room == "" || claims["aud"] != room, "audience")
	now, jti, sid := v.Now().Unix(), fmt.Sprint(claims["jti"]), fmt.Sprint(claims["sid"])
	iat, noIAT := strconv.ParseInt(fmt.Sprint(claims["iat"]), 10, 64)
	exp, noEXP := strconv.ParseInt(fmt.Sprint(claims["exp"]), 10, 64)
	refuse(wrong || noIAT != nil || noEXP != nil || exp < 1 || exp-now > 366*24*3600 || !id.MatchString(jti) || !id.MatchString(sid), "claims")
	result = Result{Pass, "", sid, exp}
	refuse(iat > now+5, "future")
	refuse(now >= exp+5, Expired)
	refuse(claims["bnd"] != nil && claims["bnd"] != "" && !v.AcceptBound, "bound")
	if v.RevokedURL != "" {
		list, _ := v.revoked.LoadOrStore(room, &document{c: &v.Config, url: strings.ReplaceAll(v.RevokedURL, "{room}", room)})
		sessions := list.(*document).load(2*time.Second, false)
		_, revoked := sessions[sid]
		refuse(sessions == nil, "revocations")
		ct, noCT := strconv.ParseInt(fmt.Sprint(claims["ct"]), 10, 64)
		out := sessions["evacuated"] // sessions that were claimed by then have ended
		refuse(revoked || noCT == nil && ct <= out.ct || noCT != nil && iat <= out.iat, Revoked)
	}
	return result
}

// object returns the members of a JSON object. It refuses a token that names one twice.
func object(part string, twice refusal) (members map[string]any) {
	text := decode(part, "malformed")
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	refuse(!json.Valid(text) || !utf8.Valid(text) || d.Decode(&members) != nil || members == nil, "malformed")
	refuse(len(member.FindAll(text, -1)) != len(members), twice)
	return members
}

// decode reads base64url in its only spelling (RFC 4648 §3.5).
func decode(part string, reason refusal) []byte {
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	refuse(err != nil || strings.ContainsAny(part, "\r\n"), reason)
	return b
}

// document is a key set, with the keys by kid, or a list of revoked sessions by id. The entries are nil until a fetch succeeds.
type document struct {
	c           *Config
	url         string
	mu          sync.Mutex
	entries     map[string]key
	etag        []string
	tried, done time.Time
	running     chan struct{}
}

// load returns the entries. It fetches them if the last fetch began at least every ago; concurrent calls share the fetch. It
// waits for the fetch if wait is set, if the last one ended long ago, or if there are no entries.
func (d *document) load(every time.Duration, wait bool) map[string]key {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.c.Now()
	wait = wait || d.entries == nil || now.Sub(d.done).Abs() >= every*3/2
	if d.entries == nil {
		every = 3 * time.Second
	}
	if d.url != "" && d.running == nil && now.Sub(d.tried).Abs() >= every {
		d.tried, d.running = now, make(chan struct{})
		go d.fetch(d.etag)
	}
	if running := d.running; running != nil && wait {
		d.mu.Unlock()
		<-running
		d.mu.Lock()
	}
	return d.entries
}

func (d *document) fetch(etag []string) {
	var entries map[string]key
	client := http.Client{Transport: d.c.Transport, Timeout: 2 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	address, err := url.Parse(d.url)
	response, failed := client.Do(&http.Request{URL: address, Header: http.Header{"If-None-Match": etag}})
	if err = errors.Join(err, failed); err == nil {
		defer response.Body.Close()
		if etag = response.Header["Etag"]; response.StatusCode == http.StatusOK {
			entries, err = parse(response.Body)
		} else if response.StatusCode != http.StatusNotModified {
			err = errors.New(response.Status)
		}
	}
	if err != nil && d.c.OnError != nil {
		d.c.OnError(fmt.Errorf("anteroom: cannot fetch %s: %w", d.url, err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if entries != nil {
		d.entries, d.etag = entries, etag
	}
	close(d.running)
	d.done, d.running = d.c.Now(), nil
}

// parse returns the keys for ES256 and EdDSA of a key set (RFC 7517), or the sessions of a list.
func parse(body io.Reader) (map[string]key, error) {
	var list struct {
		Keys    []json.RawMessage
		Revoked []struct{ SID string }

		Evacuated struct{ CT, IAT int64 }
	}
	if err := json.NewDecoder(io.LimitReader(body, 16<<20)).Decode(&list); err != nil || list.Keys == nil && list.Revoked == nil {
		return nil, errors.Join(errors.New("anteroom: the JSON has neither keys nor revoked"), err)
	}
	entries := map[string]key{"evacuated": {ct: list.Evacuated.CT, iat: list.Evacuated.IAT}}
	for _, session := range list.Revoked {
		entries[session.SID] = key{}
	}
	for _, raw := range list.Keys {
		var k struct{ Kty, Crv, X, Y, Kid, Use, Alg string }
		if json.Unmarshal(raw, &k) != nil || k.Kid == "" || k.Use != "" && k.Use != "sig" {
			continue // a key for another use
		}
		x, _ := base64.RawURLEncoding.DecodeString(k.X)
		y, _ := base64.RawURLEncoding.DecodeString(k.Y)
		if k.Kty == "OKP" && k.Crv == "Ed25519" && (k.Alg == "" || k.Alg == "EdDSA") && len(x) == ed25519.PublicKeySize {
			entries[k.Kid] = key{alg: "EdDSA", verify: func(text, signature []byte) bool { return ed25519.Verify(x, text, signature) }}
		}
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if k.Kty == "EC" && k.Crv == "P-256" && (k.Alg == "" || k.Alg == "ES256") && len(x) == 32 && err == nil {
			entries[k.Kid] = key{alg: "ES256", verify: func(text, signature []byte) bool {
				sum := sha256.Sum256(text)
				return len(signature) == 64 && ecdsa.Verify(public, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
			}}
		}
	}
	return entries, nil
}
