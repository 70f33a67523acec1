package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// kind is the type of a token.
type kind uint8

const (
	waiting kind = iota
	pass
	permit
)

// types are the header's typ of each kind.
var types = [...]string{waiting: "wait+jwt", pass: "pass+jwt", permit: "permit+jwt"}

// Ring is a set of keys of which one signs. It is immutable and safe for concurrent use; keys are rotated by making a
// new Ring that holds the old keys, inactive, until their tokens have ended.
type Ring struct {
	issuer  string
	issJSON []byte // `{"iss":"…","aud":"`, the beginning of all claims
	keys    map[string]*ringKey
	headers map[string]header // by the header's base64url text, as AppendWaiting and AppendPass write it
	active  *ringKey
	jwks    []byte

	symmetric bool // all keys are HS256
	epochs    [16]atomic.Pointer[string]
}

// header is a token's parsed header.
type header struct {
	key  *ringKey
	kind kind
}

type ringKey struct {
	id, alg string
	secret  []byte             // HS256
	private crypto.Signer      // ES256, EdDSA
	public  crypto.PublicKey   // of private: *ecdsa.PublicKey or ed25519.PublicKey
	heads   [len(types)][]byte // base64url header and a dot
	macs    sync.Pool          // of *mac
}

// mac is HMAC-SHA-256 with the key's two inner states computed, and room for the sum.
type mac struct {
	hash hash.Hash
	sum  [sha256.Size]byte
	text [43]byte
}

// NewRing returns a Ring. The issuer is the tokens' iss: 1 to 256 characters without control characters. Exactly one key
// must be active; the error names every problem of every key.
func NewRing(issuer string, keys []Key) (*Ring, error) {
	var errs []error
	if n := utf8.RuneCountInString(issuer); n == 0 || n > 256 || !utf8.ValidString(issuer) || slices.ContainsFunc([]rune(issuer), unicode.IsControl) {
		errs = append(errs, fmt.Errorf("token: issuer %q is not valid; use 1 to 256 characters without control characters", issuer))
	}
	r := &Ring{issuer: issuer, keys: make(map[string]*ringKey, len(keys)), headers: make(map[string]header, 2*len(keys))}
	var active []string
	for i := range keys {
		k := &keys[i]
		if err := k.check(); err != nil {
			errs = append(errs, err)
		}
		if _, twice := r.keys[k.ID]; twice {
			errs = append(errs, fmt.Errorf("token: key %q: the id is used twice; ids must be unique", k.ID))
		}
		if k.Active {
			active = append(active, k.ID)
		}
		r.keys[k.ID] = newRingKey(k)
	}
	switch {
	case len(keys) == 0:
		errs = append(errs, errors.New("token: no keys; one is needed, make it with `gateway keys generate`"))
	case len(active) == 0:
		errs = append(errs, errors.New("token: no key is active; set active: true on the one that signs"))
	case len(active) > 1:
		errs = append(errs, fmt.Errorf("token: %d keys are active (%q); exactly one signs", len(active), active))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.active = r.keys[active[0]]
	r.symmetric = !slices.ContainsFunc(keys, func(k Key) bool { return k.Alg != HS256 })
	for _, k := range r.keys {
		for i, head := range k.heads {
			r.headers[string(head[:len(head)-1])] = header{key: k, kind: kind(i)}
		}
	}
	r.issJSON = append(appendJSON([]byte(`{"iss":`), issuer), `,"aud":`...)
	r.jwks = encodeJWKS(keys)
	return r, nil
}

func newRingKey(k *Key) *ringKey {
	rk := &ringKey{id: k.ID, alg: k.Alg, secret: slices.Clone(k.Secret)}
	if rk.private = copyPrivate(k.Private); rk.private != nil {
		rk.public = rk.private.Public()
	}
	for kind, typ := range types {
		text := `{"alg":"` + k.Alg + `","kid":"` + k.ID + `","typ":"` + typ + `"}`
		rk.heads[kind] = append(strict64.AppendEncode(nil, []byte(text)), '.')
	}
	rk.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, rk.secret)} }
	return rk
}

// copyPrivate returns a copy of a private key, nil if it cannot be used.
func copyPrivate(private crypto.Signer) crypto.Signer {
	switch private := private.(type) {
	case ed25519.PrivateKey:
		if len(private) == ed25519.PrivateKeySize {
			return slices.Clone(private)
		}
	case *ecdsa.PrivateKey:
		if private == nil {
			return nil
		}
		if own, err := copyP256(private); err == nil {
			return own
		}
	}
	return nil
}

// sign computes the HMAC of text, as base64url. The caller puts the mac back into k.macs.
func (k *ringKey) sign(text []byte) *mac {
	m := k.macs.Get().(*mac)
	m.hash.Reset()
	m.hash.Write(text)
	strict64.Encode(m.text[:], m.hash.Sum(m.sum[:0]))
	return m
}

// epoch returns text as a string. Nearly all tokens of a room have the same epoch, so it is cached.
func (r *Ring) epoch(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	kept := &r.epochs[int(text[len(text)-1])%len(r.epochs)]
	if s := kept.Load(); s != nil && *s == string(text) {
		return *s
	}
	s := string(text)
	kept.Store(&s)
	return s
}

// Continues returns nil if the tokens that old has signed are valid with r, and otherwise why they are not.
func (r *Ring) Continues(old *Ring) error {
	const room = "continues"
	_, err := r.VerifyWaiting(old.AppendWaiting(nil, &Waiting{Room: room, IssuedAt: 1, Expires: 2, Order: 1}), room, 1)
	return err
}

// JWKS returns the set of the public keys of ES256 and EdDSA (RFC 7517, RFC 7518 §6.2, RFC 8037), active or not, in the order of the
// keys; `{"keys":[]}` without such keys. HS256 keys are secret and never in it. The caller must not change the bytes.
func (r *Ring) JWKS() []byte { return r.jwks }

func encodeJWKS(keys []Key) []byte {
	type jwk struct {
		Kty string `json:"kty"`
		Crv string `json:"crv"`
		X   string `json:"x"`
		Y   string `json:"y,omitempty"`
		Kid string `json:"kid"`
		Use string `json:"use"`
		Alg string `json:"alg"`
	}
	set := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	for _, k := range keys {
		entry := jwk{Kid: k.ID, Use: "sig", Alg: k.Alg}
		switch private := k.Private.(type) {
		case *ecdsa.PrivateKey:
			point, err := private.PublicKey.Bytes() // 4, x, y: 32 bytes each with leading zeros (SEC 1 §2.3.3)
			if err != nil {
				panic("token: a key that was checked did not encode: " + err.Error())
			}
			entry.Kty, entry.Crv = "EC", "P-256"
			entry.X, entry.Y = strict64.EncodeToString(point[1:33]), strict64.EncodeToString(point[33:])
		case ed25519.PrivateKey:
			entry.Kty, entry.Crv, entry.X = "OKP", "Ed25519", strict64.EncodeToString(private.Public().(ed25519.PublicKey))
		default:
			continue
		}
		set.Keys = append(set.Keys, entry)
	}
	out, err := json.Marshal(set)
	if err != nil {
		panic("token: a struct of strings did not encode: " + err.Error())
	}
	return out
}
