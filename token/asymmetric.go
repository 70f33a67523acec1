package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"

	"github.com/golang-jwt/jwt/v5"
)

// methods are the algorithms with public keys.
var methods = map[string]jwt.SigningMethod{ES256: jwt.SigningMethodES256, EdDSA: jwt.SigningMethodEdDSA}

// signatureSize is the length of a signature in bytes. An ES256 signature is r and s of 32 bytes each, most significant byte first
// (RFC 7518 §3.4); an EdDSA signature is that of RFC 8032.
const signatureSize = 64

// signature returns the signature of text by a private key.
func (k *ringKey) signature(text []byte) (sig [signatureSize]byte) {
	switch private := k.private.(type) {
	case ed25519.PrivateKey:
		copy(sig[:], ed25519.Sign(private, text))
	case *ecdsa.PrivateKey:
		digest := sha256.Sum256(text)
		r, s, err := ecdsa.Sign(rand.Reader, private, digest[:])
		if err != nil { // neither the random source nor a key that NewRing accepts can fail
			panic("token: sign with ES256: " + err.Error())
		}
		r.FillBytes(sig[:signatureSize/2])
		s.FillBytes(sig[signatureSize/2:])
	}
	return sig
}

// matches reports whether signature, in base64url, is a signature of text by the private key. For an ES256 signature (r, s) it accepts
// (r, -s) too, so a pass has two valid texts, of the same session.
func (k *ringKey) matches(text, signature []byte) bool {
	var sig [signatureSize]byte
	if len(signature) != strict64.EncodedLen(len(sig)) {
		return false
	}
	if _, ok := decode(sig[:], signature); !ok {
		return false
	}
	return methods[k.alg].Verify(string(text), sig[:], k.public) == nil
}
