package token

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The algorithms. HS256 is for a gateway that verifies its own tokens. ES256 (ECDSA on P-256 with SHA-256, RFC 7518 §3.4) and EdDSA
// (Ed25519, RFC 8037) let others verify passes with public keys; more proxies and CDNs support ES256.
const (
	HS256 = "HS256"
	ES256 = "ES256"
	EdDSA = "EdDSA"
)

// Key is one key of a Ring.
type Key struct {
	ID      string        // the token's kid: 1-64 characters of A-Z a-z 0-9 . _ -
	Alg     string        // HS256, ES256 or EdDSA
	Secret  []byte        // HS256: at least 32 bytes
	Private crypto.Signer // ES256: *ecdsa.PrivateKey of P-256; EdDSA: ed25519.PrivateKey
	Active  bool          // signs; the others only verify
}

const minSecret = 32

// check returns every problem of the key.
func (k *Key) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("token: key %q: %w", k.ID, fmt.Errorf(format, args...)))
	}
	if !validKeyID(k.ID) {
		bad("the id is not valid; use 1 to 64 characters of A-Z a-z 0-9 . _ -")
	}
	switch k.Alg {
	case HS256:
		if k.Private != nil {
			bad("alg HS256 takes a secret, not a private key; set alg ES256 or EdDSA, or leave the private key out")
		}
		if len(k.Secret) < minSecret {
			bad("the secret has %d bytes, at least %d are needed; make one with `gateway keys generate`", len(k.Secret), minSecret)
		} else if why := weakness(k.Secret); why != "" {
			bad("the secret %s and could be guessed; make one with `gateway keys generate`", why)
		}
	case ES256, EdDSA:
		if len(k.Secret) != 0 {
			bad("alg %s takes a private key, not a secret; set alg HS256 or leave the secret out", k.Alg)
		}
		if why := k.wrongPrivate(); why != "" {
			bad("%s; make one with `gateway keys generate --alg %s`", why, k.Alg)
		}
	default:
		bad("alg %q is not one of HS256, ES256, EdDSA", k.Alg)
	}
	return errors.Join(errs...)
}

// wrongPrivate returns why the private key cannot be used with the algorithm of the key, or "".
func (k *Key) wrongPrivate() string {
	const otherPublic = "the public half of the private key is that of another key"
	switch private := k.Private.(type) {
	case nil:
		return "the private key is missing"
	case ed25519.PrivateKey:
		switch {
		case k.Alg != EdDSA:
			return "the private key is an Ed25519 key, ES256 needs one of the curve P-256"
		case len(private) != ed25519.PrivateKeySize:
			return fmt.Sprintf("the private key has %d bytes, an Ed25519 key has %d", len(private), ed25519.PrivateKeySize)
		case !ed25519.NewKeyFromSeed(private.Seed()).Equal(private):
			return otherPublic
		}
		return ""
	case *ecdsa.PrivateKey:
		switch {
		case k.Alg != ES256:
			return "the private key is an ECDSA key, EdDSA needs an Ed25519 key"
		case private == nil || private.Curve != elliptic.P256():
			return "the private key is not of the curve P-256, which ES256 needs"
		}
		if own, err := copyP256(private); err != nil || !own.PublicKey.Equal(&private.PublicKey) {
			return otherPublic
		}
		return ""
	}
	return fmt.Sprintf("the private key is a %T, which no algorithm of a key takes", k.Private)
}

// copyP256 returns a copy of a private key of P-256, with the public half that belongs to it.
func copyP256(private *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	raw, err := private.Bytes()
	if err != nil {
		return nil, fmt.Errorf("token: the private key cannot be used: %w", err)
	}
	own, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return nil, fmt.Errorf("token: the private key cannot be used: %w", err)
	}
	return own, nil
}

// Material returns the secret part of a key that NewRing accepts: 32 bytes or more, from which other secrets can be derived.
func (k *Key) Material() []byte {
	switch private := k.Private.(type) {
	case ed25519.PrivateKey:
		return private.Seed()
	case *ecdsa.PrivateKey:
		raw, _ := private.Bytes() // only fails for keys that NewRing refuses
		return raw
	}
	return k.Secret
}

// validKeyID keeps ids to characters that need no escaping in JSON, files or logs.
func validKeyID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	return !strings.ContainsFunc(id, func(c rune) bool { return c > 127 || !isBase64URL(byte(c)) && c != '.' })
}

// placeholders are the words that examples use for a secret.
var placeholders = strings.NewReplacer(
	"changeme", "", "changethis", "", "changeit", "", "replaceme", "", "password", "", "passphrase", "", "topsecret", "",
	"supersecret", "", "yoursecret", "", "mysecret", "", "secretkey", "", "signingkey", "", "secret", "", "private", "",
	"anteroom", "", "waitingroom", "", "default", "", "example", "", "insecure", "", "please", "", "qwertyuiop", "", "qwerty", "",
	"letmein", "", "foobar", "", "token", "", "hs256", "", "jwt", "", "key", "", "your", "", "256bit", "", "bits", "",
)

// weakness returns why a secret of sufficient length is guessable, or "". It finds typical typed secrets; it cannot prove that
// a secret is random.
func weakness(secret []byte) string {
	if distinct(secret) < 8 {
		return "has fewer than 8 different bytes"
	}
	if p := period(secret); p < minSecret/2 {
		return fmt.Sprintf("repeats the same %d bytes", p)
	}
	steps := 0
	for i := 1; i < len(secret); i++ {
		if d := int(secret[i]) - int(secret[i-1]); d >= -1 && d <= 1 {
			steps++
		}
	}
	if 4*steps >= 3*(len(secret)-1) {
		return "counts up or down"
	}
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ' || r == '-' || r == '_' || r == '.' || r == '!':
			return -1
		}
		return r
	}, string(secret))
	if rest := placeholders.Replace(plain); len(rest) < len(plain) && distinct([]byte(rest)) < 8 {
		return "is a well-known placeholder"
	}
	return ""
}

func distinct(b []byte) int {
	sorted := slices.Sorted(slices.Values(b))
	return len(slices.Compact(sorted))
}

// period returns the length of the shortest beginning of b that b repeats.
func period(b []byte) int {
	for p := 1; p < len(b); p++ {
		if bytes.Equal(b[p:], b[:len(b)-p]) {
			return p
		}
	}
	return len(b)
}

// GenerateSecret returns an HS256 secret: 32 random bytes as 43 characters of base64url, to be used as they are.
func GenerateSecret() string {
	var b [minSecret]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b[:])
}

const pemType = "PRIVATE KEY"

// GenerateKeyPEM returns a private key for ES256 or EdDSA as a PKCS#8 PEM file, for `private_key_file`.
func GenerateKeyPEM(alg string) ([]byte, error) {
	var private crypto.Signer
	var err error
	switch alg {
	case ES256:
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case EdDSA:
		_, private, err = ed25519.GenerateKey(nil)
	default:
		return nil, fmt.Errorf("token: alg %q has no private key; use ES256 or EdDSA", alg)
	}
	if err != nil {
		return nil, fmt.Errorf("token: generate a key for %s: %w", alg, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("token: encode a key for %s: %w", alg, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), nil
}
