package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// Names of the cookies. The prefix __Host- binds them to this host, to TLS and to all paths.
const (
	sessionCookie = "__Host-anteroom_session"
	loginCookie   = "__Host-anteroom_login"
)

// sealer encrypts the values of one cookie with a key from the client secret, which all gateways share.
type sealer struct {
	name string
	aead cipher.AEAD
}

func newSealer(o *Options, name string) sealer {
	key, err := hkdf.Key(sha256.New, []byte(o.ClientSecret), []byte(o.Issuer+"\x00"+o.ClientID), "anteroom "+name, 32)
	if err != nil {
		panic("signin: " + err.Error()) // only for keys of an impossible length
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("signin: " + err.Error())
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic("signin: " + err.Error())
	}
	return sealer{name, aead}
}

// seal returns a cookie with the JSON of v.
func (s sealer) seal(v any, site http.SameSite, seconds int) *http.Cookie {
	text, err := json.Marshal(v)
	if err != nil {
		panic("signin: " + err.Error())
	}
	return s.cookie(base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil)), site, seconds)
}

// end returns a cookie that removes the former one.
func (s sealer) end(site http.SameSite) *http.Cookie { return s.cookie("", site, -1) }

func (s sealer) cookie(value string, site http.SameSite, seconds int) *http.Cookie {
	return &http.Cookie{Name: s.name, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: site}
}

// open reads the cookie of a request into v. It reports false without a cookie, and for one that this key did not seal.
func (s sealer) open(r *http.Request, v any) bool {
	cookies := r.CookiesNamed(s.name)
	if len(cookies) != 1 {
		return false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cookies[0].Value)
	if err != nil {
		return false
	}
	text, err := s.aead.Open(nil, nil, sealed, nil)
	return err == nil && json.Unmarshal(text, v) == nil
}

// random returns 32 random bytes as text.
func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
