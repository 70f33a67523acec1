package token

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The two algorithms. HS256 is for a gateway that checks its own tokens; EdDSA (Ed25519, RFC 8037) lets an origin check
// passes with public keys.
const (
	HS256 = "HS256"
	EdDSA = "EdDSA"
)

// Key is one key of a Ring.
type Key struct {
	ID      string             // the token's kid: 1-64 characters of A-Z a-z 0-9 . _ -
	Alg     string             // HS256 or EdDSA
	Secret  []byte             // HS256: at least 32 bytes
	Private ed25519.PrivateKey // EdDSA
	Active  bool               // signs; the others only verify
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
			bad("alg HS256 takes a secret, not a private key; set alg EdDSA or leave the private key out")
		}
		if len(k.Secret) < minSecret {
			bad("the secret has %d bytes, at least %d are needed; make one with `gateway keys generate`", len(k.Secret), minSecret)
		} else if why := weakness(k.Secret); why != "" {
			bad("the secret %s and could be guessed; make one with `gateway keys generate`", why)
		}
	case EdDSA:
		if len(k.Secret) != 0 {
			bad("alg EdDSA takes a private key, not a secret; set alg HS256 or leave the secret out")
		}
		if len(k.Private) != ed25519.PrivateKeySize {
			bad("the private key has %d bytes, an Ed25519 key has %d; make one with `gateway keys generate --alg EdDSA`", len(k.Private), ed25519.PrivateKeySize)
		} else if !ed25519.NewKeyFromSeed(k.Private.Seed()).Equal(k.Private) {
			bad("the public half of the private key is that of another key; make one with `gateway keys generate --alg EdDSA`")
		}
	default:
		bad("alg %q is not one of HS256, EdDSA", k.Alg)
	}
	return errors.Join(errs...)
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

// GenerateKeyPEM returns an Ed25519 private key as a PKCS#8 PEM file, for `private_key_file`.
func GenerateKeyPEM() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("token: generate an Ed25519 key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("token: encode an Ed25519 key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), nil
}
