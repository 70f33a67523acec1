package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"maps"
	"slices"
)

// Fingerprint returns a text that is equal for rings with the same issuer and keys, and from which no key can be computed.
func (r *Ring) Fingerprint() string {
	sum := sha256.New()
	sum.Write(r.issJSON)
	for _, id := range slices.Sorted(maps.Keys(r.keys)) {
		k := r.keys[id]
		of := []byte(nil)
		if k.public != nil {
			of, _ = x509.MarshalPKIXPublicKey(k.public) // the ring has encoded it before
		} else {
			mac := hmac.New(sha256.New, k.secret)
			mac.Write([]byte("fingerprint of a signing key"))
			of = mac.Sum(nil)
		}
		sum.Write([]byte("\x00" + id + "\x00" + k.alg + "\x00"))
		sum.Write(of)
	}
	if r.active != nil {
		sum.Write([]byte("\x00active\x00" + r.active.id))
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}
