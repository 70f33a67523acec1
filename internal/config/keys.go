package config

import (
	"bytes"
	"crypto/ed25519"
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
	Alg    string             // HS256 or EdDSA
	Secret []byte             // HS256
	Key    ed25519.PrivateKey // EdDSA
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
	Write bool
}

// Bearers reads the operators' tokens; the one of admin.token is named admin.
func (c *Config) Bearers() ([]Bearer, error) {
	var bearers []Bearer
	if c.Admin.Token != "" {
		bearers = append(bearers, Bearer{Name: "admin", Token: c.Admin.Token, Write: true})
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
		bearers = append(bearers, Bearer{Name: t.Name, Token: token, Write: t.Role == "write"})
	}
	return bearers, nil
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
			return key, "private_key_file", errors.New("belongs to EdDSA, and alg is HS256; give secret_file instead, or alg: EdDSA")
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
	case "EdDSA":
		if k.Secret != "" || k.SecretFile != "" {
			return key, "secret", errors.New("belongs to HS256, and alg is EdDSA; give private_key_file instead, or alg: HS256")
		}
		if k.PrivateKeyFile == "" {
			return key, "private_key_file", errors.New("is missing; " + generate + " --alg EdDSA")
		}
		private, err := readEd25519(k.PrivateKeyFile)
		key.Key = private
		return key, "private_key_file", err
	}
	return key, "alg", fmt.Errorf("%q is not known; use HS256 or EdDSA", k.Alg)
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

func readEd25519(name string) (ed25519.PrivateKey, error) {
	data, err := readSmall(name)
	if err != nil {
		return nil, err
	}
	const want = "use a PEM block PRIVATE KEY (PKCS #8) with an Ed25519 key; " + generate + " --alg EdDSA"
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%q: %s", name, want)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, fmt.Errorf("%q holds more than one PEM block; use the private key alone", name)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%q: %s", name, want)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%q holds another kind of key; %s", name, want)
	}
	return private, nil
}
