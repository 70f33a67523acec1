package sdk

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

const (
	issuer  = "anteroom"
	room    = "sale"
	start   = int64(1_767_323_045) // 2026-01-02T03:04:05Z
	cookie  = "__Host-wr_sale_pass="
	session = "AwoRGB8mLTQ7QklQV15lbA"
	another = "BAsSGSAnLjU8Q0pRWF9mbQ"
)

var b64 = base64.RawURLEncoding

// The keys are derived from their kid alone. A kid begins with h (HS256), e (ES256) or d (EdDSA).
func secretOf(kid string) string {
	sum := sha256.Sum256([]byte("sdk " + kid))
	return b64.EncodeToString(sum[:])
}

func ecdsaOf(kid string) *ecdsa.PrivateKey {
	sum := sha256.Sum256([]byte("sdk " + kid))
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), sum[:])
	if err != nil {
		panic(err)
	}
	return k
}

func ed25519Of(kid string) ed25519.PrivateKey {
	sum := sha256.Sum256([]byte("sdk " + kid))
	return ed25519.NewKeyFromSeed(sum[:])
}

var algorithms = map[byte]string{'h': "HS256", 'e': "ES256", 'd': "EdDSA"}

// signed returns a token with a header and claims, which need not be valid.
func signed(kid, header, claims string) string {
	text := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString([]byte(claims))
	var signature []byte
	switch kid[0] {
	case 'h':
		mac := hmac.New(sha256.New, []byte(secretOf(kid)))
		mac.Write([]byte(text))
		signature = mac.Sum(nil)
	case 'd':
		signature = ed25519.Sign(ed25519Of(kid), []byte(text))
	case 'e':
		sum := sha256.Sum256([]byte(text))
		der, err := ecdsaOf(kid).Sign(nil, sum[:], crypto.SHA256)
		var number struct{ R, S *big.Int }
		if _, err2 := asn1.Unmarshal(der, &number); err != nil || err2 != nil {
			panic(fmt.Sprint(err, err2))
		}
		signature = append(number.R.FillBytes(make([]byte, 32)), number.S.FillBytes(make([]byte, 32))...)
	}
	return text + "." + b64.EncodeToString(signature)
}

func headerOf(kid string) string {
	return fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"pass+jwt"}`, algorithms[kid[0]], kid)
}

func claimsOf(session string) string {
	return fmt.Sprintf(`{"iss":%q,"aud":%q,"jti":"AgkQFx4lLDM6QUhPVl1kaw","iat":%d,"exp":%d,"sid":%q,"ord":1767323001234567,"fn":3}`, issuer, room, start, start+3600, session)
}

// pass returns a request with a pass of a session, signed with the key of a kid.
func pass(kid, session string) request {
	return requestWith(signed(kid, headerOf(kid), claimsOf(session)))
}

// requestWith returns a request with a pass in the cookie.
func requestWith(raw string) request { return request{room, [][2]string{{"Cookie", cookie + raw}}} }

func jwks(kids ...string) json.RawMessage {
	var list []string
	for _, kid := range kids {
		if kid[0] == 'd' {
			list = append(list, fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":%q,"kid":%q,"use":"sig","alg":"EdDSA"}`, b64.EncodeToString(ed25519Of(kid)[32:]), kid))
			continue
		}
		point, err := ecdsaOf(kid).PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		list = append(list, fmt.Sprintf(`{"kty":"EC","crv":"P-256","x":%q,"y":%q,"kid":%q,"use":"sig","alg":"ES256"}`, b64.EncodeToString(point[1:33]), b64.EncodeToString(point[33:]), kid))
	}
	return json.RawMessage(`{"keys":[` + strings.Join(list, ",") + `]}`)
}
