package token

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"math/big"
	"os"
	"strings"
	"testing"
)

var updateVectors = flag.Bool("update", false, "write sdk/vectors.json")

const vectorsFile = "../sdk/vectors.json"

// vector is one case of sdk/vectors.json: a request, a room, the settings of a verifier, and the result that every SDK returns.
type vector struct {
	Name    string       `json:"name"`
	Room    string       `json:"room"`
	Now     int64        `json:"now"`
	Headers [][2]string  `json:"headers"`
	Config  vectorConfig `json:"config"`
	Want    vectorResult `json:"want"`

	raw     string // the only token of the request
	onlySDK bool   // not compared with the gateway, which has no such setting or decides differently
}

type vectorConfig struct {
	Issuer      string            `json:"issuer"`
	Algorithms  []string          `json:"algorithms,omitempty"`
	JWKS        json.RawMessage   `json:"jwks,omitempty"`
	Secrets     map[string]string `json:"secrets,omitempty"`
	Revoked     []string          `json:"revoked,omitempty"`
	Evacuated   map[string]int64  `json:"evacuated,omitempty"`
	PlainHTTP   bool              `json:"plain_http,omitempty"`
	AcceptBound bool              `json:"accept_bound,omitempty"`
}

type vectorResult struct {
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Session string `json:"session"`
	Expires int64  `json:"expires"`
}

// signer signs text with a fixed key, so that the file is the same in every run.
type signer func(text string) []byte

func vectorSecret(name string) string {
	sum := sha256.Sum256([]byte("vectors " + name))
	return strict64.EncodeToString(sum[:])
}

func signHS256(secret string) signer {
	return func(text string) []byte {
		m := hmac.New(sha256.New, []byte(secret))
		m.Write([]byte(text))
		return m.Sum(nil)
	}
}

func vectorECDSA(name string) *ecdsa.PrivateKey {
	scalar := sha256.Sum256([]byte("vectors " + name))
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar[:])
	if err != nil {
		panic(err)
	}
	return k
}

func vectorEd25519(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("vectors " + name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// signDER signs as RFC 6979 describes, without random numbers, and returns the signature in ASN.1.
func signDER(k *ecdsa.PrivateKey) signer {
	return func(text string) []byte {
		sum := sha256.Sum256([]byte(text))
		der, err := k.Sign(nil, sum[:], crypto.SHA256)
		if err != nil {
			panic(err)
		}
		return der
	}
}

// signES256 returns r and s in 32 bytes each (RFC 7518 §3.4).
func signES256(k *ecdsa.PrivateKey) signer {
	return func(text string) []byte {
		der := signDER(k)(text)
		r, rest := derInteger(der[2:])
		s, _ := derInteger(rest)
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
}

func derInteger(b []byte) (*big.Int, []byte) {
	n := int(b[1])
	return new(big.Int).SetBytes(b[2 : 2+n]), b[2+n:]
}

func signEdDSA(k ed25519.PrivateKey) signer {
	return func(text string) []byte { return ed25519.Sign(k, []byte(text)) }
}

// signed returns a token with a header and claims, which need not be valid.
func signed(header, claims string, sign signer) string {
	text := b64(header) + "." + b64(claims)
	return text + "." + strict64.EncodeToString(sign(text))
}

// encodeVectors returns the file. A case takes a few lines, so that diffs are readable.
func encodeVectors(t *testing.T, list []vector) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("[\n")
	for i := range list {
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(&list[i]); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSuffix(line.String(), "\n")
		for _, part := range []string{`"headers":`, `"config":`, `"want":`} {
			text = strings.Replace(text, ","+part, ",\n  "+part, 1)
		}
		b.WriteString(" " + text)
		if i < len(list)-1 {
			b.WriteString(",")
		}
		b.WriteString("\n")
	}
	b.WriteString("]\n")
	if !json.Valid(b.Bytes()) {
		t.Fatal("the file would not be JSON")
	}
	return b.Bytes()
}

func TestVectors_AreCurrent(t *testing.T) {
	want := encodeVectors(t, vectors())
	if *updateVectors {
		if err := os.WriteFile(vectorsFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the cases; run go test ./token -run Vectors -update", vectorsFile)
	}
}
