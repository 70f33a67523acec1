package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// AccountMaxLength is the longest accepted JWT of a site, in bytes: such tokens have more claims than Anteroom's.
	AccountMaxLength = 8192
	// AccountLeeway is the accepted difference between the clocks of the site and the store, in seconds.
	AccountLeeway = 60
	// accountHeaderMost is the longest header of a JWT, in base64url: the header is parsed before the signature is checked.
	accountHeaderMost = 2048
	// accountName is the longest name of an account, in bytes.
	accountName = 256
	// accountKeysMost bounds a key set.
	accountKeysMost = 100
)

// accountAlgorithms are the algorithms with which a site may sign: those that need only its public keys.
var accountAlgorithms = []string{"RS256", "ES256", EdDSA}

// AccountKeys are the public keys of a site's own JWTs. Each key accepts one algorithm (RFC 8725 §3.1). Immutable.
type AccountKeys struct {
	list []accountKey
	// Skipped has an error for each key of the set that cannot be used: broken or weak, though of a known kind.
	Skipped []error
}

type accountKey struct {
	id, alg string
	public  any
}

// AccountRules describe the JWTs that name an account.
type AccountRules struct {
	Claim    string // the claim that names the account: a string, or a whole number
	Issuer   string // iss; empty: any
	Audience string // one of aud; empty: any
}

// ParseAccountKeys reads a JWK set (RFC 7517, 7518, 8037). Keys for other uses, of other kinds and with unknown
// parameters are ignored. A broken or weak key of a known kind is skipped (RFC 7517 §5), so that the other keys can be used. A
// set without any usable key is an error.
func ParseAccountKeys(jwks []byte) (*AccountKeys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(jwks, &set); err != nil {
		return nil, fmt.Errorf("token: the key set is not JSON as in RFC 7517: %w", err)
	}
	if len(set.Keys) > accountKeysMost {
		return nil, fmt.Errorf("token: the key set has %d keys, at most %d are accepted", len(set.Keys), accountKeysMost)
	}
	keys := &AccountKeys{}
	for i, text := range set.Keys {
		var k jwk
		if err := json.Unmarshal(text, &k); err != nil {
			keys.Skipped = append(keys.Skipped, fmt.Errorf("token: key %d of the set is not as in RFC 7517: %w", i, err))
			continue
		}
		switch key, err := k.key(); {
		case err != nil:
			keys.Skipped = append(keys.Skipped, fmt.Errorf("token: key %.64q of the set: %w", k.Kid, err))
		case key.public != nil:
			keys.list = append(keys.list, key)
		}
	}
	if len(keys.list) == 0 {
		return nil, errors.Join(append(keys.Skipped, fmt.Errorf("token: none of the set's %d keys is for RS256, ES256 or EdDSA", len(set.Keys)))...)
	}
	return keys, nil
}

// jwk has the members of a key that are used.
type jwk struct {
	Kty, Use, Alg, Kid, Crv, X, Y, N, E string
	Ops                                 []string `json:"key_ops"`
}

// key returns the public key, zero if it is for another purpose.
func (k *jwk) key() (accountKey, error) {
	if k.Use != "" && k.Use != "sig" || len(k.Ops) > 0 && !slices.Contains(k.Ops, "verify") {
		return accountKey{}, nil
	}
	var alg string
	var public any
	var err error
	switch {
	case k.Kty == "RSA":
		alg = "RS256"
		public, err = rsaKey(k.N, k.E)
	case k.Kty == "EC" && k.Crv == "P-256":
		alg = "ES256"
		public, err = p256Key(k.X, k.Y)
	case k.Kty == "OKP" && k.Crv == "Ed25519":
		alg = EdDSA
		public, err = ed25519Key(k.X)
	default:
		return accountKey{}, nil
	}
	if err != nil || k.Alg != "" && k.Alg != alg && !(alg == EdDSA && k.Alg == "Ed25519") {
		return accountKey{}, err
	}
	return accountKey{k.Kid, alg, public}, nil
}

func rsaKey(n, e string) (any, error) {
	modulus, err := strict64.DecodeString(n)
	if err != nil {
		return nil, errors.New("n is not base64url")
	}
	exponent, err := strict64.DecodeString(e)
	if err != nil || len(exponent) == 0 || len(exponent) > 4 {
		return nil, errors.New("e is not base64url of a small number")
	}
	k := &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(new(big.Int).SetBytes(exponent).Int64())}
	if bits := k.N.BitLen(); bits < 2048 || bits > 8192 {
		return nil, fmt.Errorf("an RSA key of %d bits; 2048 to 8192 are accepted", bits)
	}
	if k.E < 3 || k.E%2 == 0 || k.E > 1<<31-1 {
		return nil, errors.New("e is not a valid exponent")
	}
	return k, nil
}

func p256Key(x, y string) (any, error) {
	const size = 32
	point := make([]byte, 1, 1+2*size)
	point[0] = 4 // uncompressed (SEC 1 §2.3.3)
	for _, text := range []string{x, y} {
		b, err := strict64.DecodeString(text)
		if err != nil || len(b) != size {
			return nil, errors.New("x and y are not base64url of 32 bytes each")
		}
		point = append(point, b...)
	}
	k, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return nil, errors.New("x and y are not a point of P-256")
	}
	return k, nil
}

func ed25519Key(x string) (any, error) {
	b, err := strict64.DecodeString(x)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("x is not base64url of 32 bytes")
	}
	return ed25519.PublicKey(b), nil
}

// Account checks a site's JWT and returns the account and the end of its validity. The end and now are in seconds of the
// store's clock. exp is required, nbf optional; both have AccountLeeway. Every error is a Rejection. ErrKey is returned if the
// set has no key for the token; a newer set may have it.
func (k *AccountKeys) Account(raw string, rules *AccountRules, now int64) (account string, expires int64, err error) {
	if len(raw) > AccountMaxLength {
		return "", 0, ErrTooLong
	}
	key, err := k.verify(raw)
	if err != nil {
		return "", 0, err
	}
	options := []jwt.ParserOption{
		jwt.WithStrictDecoding(), jwt.WithJSONNumber(), jwt.WithExpirationRequired(),
		jwt.WithLeeway(AccountLeeway * time.Second), jwt.WithTimeFunc(func() time.Time { return time.Unix(now, 0) }),
	}
	if rules.Issuer != "" {
		options = append(options, jwt.WithIssuer(rules.Issuer))
	}
	if rules.Audience != "" {
		options = append(options, jwt.WithAudience(rules.Audience))
	}
	claims := jwt.MapClaims{}
	t, _, err := jwt.NewParser(options...).ParseUnverified(raw, claims)
	if err != nil {
		return "", 0, rejection(err)
	}
	if err := checkHeader(t.Header, key); err != nil {
		return "", 0, err
	}
	if err := jwt.NewValidator(options...).Validate(claims); err != nil {
		return "", 0, rejection(err)
	}
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil {
		return "", 0, ErrClaims
	}
	switch name := claims[rules.Claim].(type) {
	case string:
		account = name
	case json.Number:
		account = name.String()
		if strings.ContainsAny(account, ".eE") {
			return "", 0, ErrClaims
		}
	}
	if account == "" || len(account) > accountName {
		return "", 0, ErrClaims
	}
	return account, min(exp.Unix(), now+MaxLife) + AccountLeeway, nil
}

// verify checks the signature of a JWT, reading nothing but the header's alg and kid, and returns the key.
func (k *AccountKeys) verify(raw string) (*accountKey, error) {
	head, rest, _ := strings.Cut(raw, ".")
	_, text, ok := strings.Cut(rest, ".")
	switch {
	case !ok:
		return nil, ErrMalformed
	case len(head) > accountHeaderMost:
		return nil, ErrTooLong
	}
	header, err := strict64.DecodeString(head)
	if err != nil {
		return nil, ErrMalformed
	}
	signature, err := strict64.DecodeString(text)
	if err != nil {
		return nil, ErrMalformed
	}
	var h struct {
		Alg, Kid json.RawMessage
	}
	if json.Unmarshal(header, &h) != nil {
		return nil, ErrMalformed
	}
	var alg, kid string
	if json.Unmarshal(h.Alg, &alg) != nil || !slices.Contains(accountAlgorithms, alg) {
		return nil, ErrAlgorithm
	}
	if h.Kid != nil && (h.Kid[0] != '"' || json.Unmarshal(h.Kid, &kid) != nil) {
		return nil, ErrHeader
	}
	key := k.find(alg, kid, h.Kid != nil)
	if key == nil {
		return nil, ErrKey
	}
	if jwt.GetSigningMethod(alg).Verify(raw[:len(raw)-len(text)-1], signature, key.public) != nil {
		return nil, ErrSignature
	}
	return key, nil
}

// find returns the key of a token by its kid; without one, the only key of its algorithm.
func (k *AccountKeys) find(alg, kid string, named bool) (found *accountKey) {
	for i := range k.list {
		switch key := &k.list[i]; {
		case key.alg != alg:
		case named && key.id == kid:
			return key
		case !named && found != nil:
			return nil // ambiguous
		case !named:
			found = key
		}
	}
	return found
}

// checkHeader checks the header of a token that the key has signed.
func checkHeader(header map[string]any, key *accountKey) error {
	if _, critical := header["crit"]; critical {
		return ErrCritical
	}
	if alg, _ := header["alg"].(string); alg != key.alg {
		return ErrAlgorithm
	}
	if id, given := header["kid"]; given && id != key.id {
		return ErrHeader
	}
	if typ, _ := header["typ"].(string); ourType(typ) {
		return ErrType
	}
	return nil
}

// rejection returns the Rejection of a signed token that jwt does not accept.
func rejection(err error) error {
	var own *Rejection
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		return ErrExpired
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return ErrIssuer
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return ErrAudience
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing), errors.Is(err, jwt.ErrTokenInvalidClaims):
		return ErrClaims
	case errors.Is(err, jwt.ErrTokenMalformed):
		return ErrMalformed
	case strings.Contains(err.Error(), "signing method"):
		return ErrAlgorithm
	}
	return ErrClaims
}

func ourType(typ string) bool {
	return slices.ContainsFunc(types[:], func(t string) bool { return strings.EqualFold(typ, t) })
}

// Ours reports whether a JWT's header is that of one of Anteroom's tokens, valid or not.
func Ours(raw []byte) bool {
	if len(raw) > MaxLength {
		return false
	}
	head, _, ok := strings.Cut(string(raw), ".")
	if !ok {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return false
	}
	var h struct {
		Typ string `json:"typ"`
	}
	return json.Unmarshal(text, &h) == nil && ourType(h.Typ)
}
