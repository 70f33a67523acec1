package config

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

// SigningKey is one of tokens.keys with its material read.
type SigningKey struct {
	ID     string
	Alg    string        // HS256, ES256 or EdDSA
	Secret []byte        // HS256
	Key    crypto.Signer // ES256, EdDSA
	Active bool
}

// SigningKeys reads the material of tokens.keys. Without keys the list is empty, and the embedded store's key is used. Exactly
// one key is Active.
func (c *Config) SigningKeys() ([]SigningKey, error) {
	keys := make([]SigningKey, 0, len(c.Tokens.Keys))
	for i := range c.Tokens.Keys {
		key, setting, err := c.Tokens.Keys[i].material()
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", settings.Element("tokens.keys", i), setting, err)
		}
		key.Active = key.Active || len(c.Tokens.Keys) == 1
		keys = append(keys, key)
	}
	return keys, nil
}

// Bearer is a token of the operators' API.
type Bearer struct {
	Name  string // for the audit log
	Token string
	Role  string   // viewer, operator, admin or facts
	Rooms []string // empty: all
}

// Bearers reads the operators' tokens; the one of admin.token is named admin.
func (c *Config) Bearers() ([]Bearer, error) {
	var bearers []Bearer
	if c.Admin.Token != "" {
		bearers = append(bearers, Bearer{Name: "admin", Token: c.Admin.Token, Role: "admin"})
	}
	for i, t := range c.Admin.Tokens {
		data, err := readSmall(t.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("%s.token_file: %w", settings.Element("admin.tokens", i), err)
		}
		token := strings.TrimSpace(string(data))
		if token == "" {
			return nil, fmt.Errorf("%s.token_file: %q is empty", settings.Element("admin.tokens", i), t.TokenFile)
		}
		bearers = append(bearers, Bearer{Name: t.Name, Token: token, Role: currentRole(t.Role), Rooms: t.Rooms})
	}
	return bearers, nil
}

// currentRole returns the role that a name of earlier versions stands for.
func currentRole(name string) string {
	switch name {
	case "read":
		return "viewer"
	case "write":
		return "admin"
	}
	return name
}

const (
	minSecret = 32
	generate  = "make one with: gateway keys generate"
)

var kidPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func (c gatewayChecker) tokens() {
	keys := c.cfg.Tokens.Keys
	if len(keys) == 0 {
		if c.cfg.Store.URL != "" {
			c.Add("tokens.keys", "is empty; with a store.url every gateway needs the same key, so %s", generate)
		}
		return
	}
	active, ids := 0, make(map[string]bool)
	for i := range keys {
		key, path := &keys[i], settings.Element("tokens.keys", i)
		switch {
		case !kidPattern.MatchString(key.ID):
			c.Add(path+".id", "%q is not a key id; use 1 to 64 letters, digits, dots, dashes and underscores", settings.Clip(key.ID))
		case ids[key.ID]:
			c.Add(path+".id", "%q is there already; ids are unique", key.ID)
		}
		ids[key.ID] = true
		if key.Active {
			active++
		}
		if _, setting, err := key.material(); err != nil && setting != "alg" { // alg: by the bounds
			c.Add(path+"."+setting, "%v", err)
		}
	}
	if active != 1 && (len(keys) > 1 || active > 1) {
		c.Add("tokens.keys", "%d of %d keys are active; use exactly one with active: true; the others only verify", active, len(keys))
	}
}

// material reads the key. It also returns the name of the setting that an error concerns.
func (k *Key) material() (SigningKey, string, error) {
	key := SigningKey{ID: k.ID, Alg: k.Alg, Active: k.Active}
	switch k.Alg {
	case "HS256":
		if k.PrivateKeyFile != "" {
			return key, "private_key_file", errors.New("belongs to ES256 and EdDSA, and alg is HS256; give secret_file instead, or alg: ES256 or EdDSA")
		}
		setting := "secret"
		key.Secret = []byte(k.Secret)
		if k.SecretFile != "" {
			setting = "secret_file"
			if k.Secret != "" {
				return key, setting, errors.New("is given beside secret; keep one of them")
			}
			data, err := readSmall(k.SecretFile)
			if err != nil {
				return key, setting, err
			}
			key.Secret = bytes.TrimSpace(data)
		}
		return key, setting, checkSecret(key.Secret)
	case "ES256", "EdDSA":
		if k.Secret != "" || k.SecretFile != "" {
			return key, "secret", fmt.Errorf("belongs to HS256, and alg is %s; give private_key_file instead, or alg: HS256", k.Alg)
		}
		if k.PrivateKeyFile == "" {
			return key, "private_key_file", fmt.Errorf("is missing; %s --alg %s", generate, k.Alg)
		}
		private, err := readPrivateKey(k.PrivateKeyFile, k.Alg)
		key.Key = private
		return key, "private_key_file", err
	}
	return key, "alg", fmt.Errorf("%q is not known; use HS256, ES256 or EdDSA", k.Alg)
}

func checkSecret(secret []byte) error {
	if len(secret) == 0 {
		return errors.New("is missing; " + generate)
	}
	if string(secret) == settings.Mask {
		return errors.New("is the mask that print-config writes; give the real secret")
	}
	if len(secret) < minSecret {
		return fmt.Errorf("has %d bytes; use at least %d; %s", len(secret), minSecret, generate)
	}
	return nil
}

// wanted describes the private key of each algorithm.
var wanted = map[string]string{
	"ES256": "use a PEM block PRIVATE KEY (PKCS #8) or EC PRIVATE KEY (SEC 1) with a key of the curve P-256; " + generate + " --alg ES256",
	"EdDSA": "use a PEM block PRIVATE KEY (PKCS #8) with an Ed25519 key; " + generate + " --alg EdDSA",
}

// readPrivateKey reads the private key of an algorithm from a PEM file.
func readPrivateKey(name, alg string) (crypto.Signer, error) {
	data, err := readSmall(name)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(data)
	if block != nil && block.Type == "EC PARAMETERS" && alg == "ES256" { // openssl ecparam -genkey writes it before the key
		block, rest = pem.Decode(rest)
	}
	var parsed any
	switch {
	case block == nil:
		return nil, fmt.Errorf("%q: %s", name, wanted[alg])
	case block.Type == "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY" && alg == "ES256":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	case block.Type == "ENCRYPTED PRIVATE KEY":
		return nil, fmt.Errorf("%q is encrypted; decrypt it with: openssl pkey -in %s -out key.pem", name, name)
	default:
		return nil, fmt.Errorf("%q: %s", name, wanted[alg])
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, fmt.Errorf("%q holds more than one PEM block; use the private key alone", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %s", name, wanted[alg])
	}
	switch private := parsed.(type) {
	case ed25519.PrivateKey:
		if alg == "EdDSA" {
			return private, nil
		}
	case *ecdsa.PrivateKey:
		switch {
		case alg != "ES256":
		case private.Curve != elliptic.P256():
			return nil, fmt.Errorf("%q holds a key of the curve %s; %s", name, private.Curve.Params().Name, wanted[alg])
		default:
			return private, nil
		}
	}
	return nil, fmt.Errorf("%q holds another kind of key; %s", name, wanted[alg])
}
