package token

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
)

const (
	vectorNow = testNow + 55
	vectorExp = testNow + 300
	vectorJTI = "AgkQFx4lLDM6QUhPVl1kaw"
	vectorSID = "AwoRGB8mLTQ7QklQV15lbA"
	otherSID  = "BAsSGSAnLjU8Q0pRWF9mbQ"
	headES    = `{"alg":"ES256","kid":"e1","typ":"pass+jwt"}`
	headED    = `{"alg":"EdDSA","kid":"d1","typ":"pass+jwt"}`
	headHS    = `{"alg":"HS256","kid":"h1","typ":"pass+jwt"}`
	goodClaim = `{"iss":"anteroom","aud":"sale","jti":"` + vectorJTI + `","iat":1767323045,"exp":1767323345,"sid":"` + vectorSID + `","ord":1767323001234567,"fn":3}`
	hostPass  = "__Host-wr_sale_pass="
)

// vectorList collects the cases.
type vectorList struct{ list []vector }

// add adds a case with one token in the cookie. An empty reason means a pass.
func (l *vectorList) add(name, raw, reason string) *vector {
	v := vector{Name: name, Room: testRoom, Now: vectorNow, Headers: [][2]string{{"Cookie", hostPass + raw}}, raw: raw,
		Config: vectorConfig{Issuer: testIssuer, JWKS: vectorJWKS("e1", "d1"), Secrets: map[string]string{"h1": vectorSecret("h1")}}}
	v.want(reason)
	l.list = append(l.list, v)
	return &l.list[len(l.list)-1]
}

// request adds a case about the header fields of a request.
func (l *vectorList) request(name, reason string, headers ...[2]string) *vector {
	v := l.add(name, "", reason)
	v.Headers = headers
	if headers == nil {
		v.Headers = [][2]string{}
	}
	return v
}

func (v *vector) want(reason string) {
	ended := vectorResult{Session: vectorSID, Expires: vectorExp, Reason: reason, State: reason}
	switch reason {
	case "":
		ended.State = "pass"
		v.Want = ended
	case "none":
		v.Want = vectorResult{State: "none"}
	case "expired", "revoked":
		v.Want = ended
	default:
		v.Want = vectorResult{State: "invalid", Reason: reason}
	}
}

func (v *vector) sdkOnly() *vector { v.onlySDK = true; return v }

func (v *vector) session(sid string) *vector { v.Want.Session = sid; return v }

func (v *vector) until(exp int64) *vector { v.Want.Expires = exp; return v }

// vectorJWKS returns the key set that the gateway publishes for keys: e… on P-256, d… on Ed25519.
func vectorJWKS(kids ...string) json.RawMessage {
	var list []string
	for _, kid := range kids {
		if kid[0] == 'd' {
			list = append(list, fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":%q,"kid":%q,"use":"sig","alg":"EdDSA"}`, strict64.EncodeToString(vectorPublic(kid)), kid))
			continue
		}
		point := vectorPublic(kid)
		list = append(list, fmt.Sprintf(`{"kty":"EC","crv":"P-256","x":%q,"y":%q,"kid":%q,"use":"sig","alg":"ES256"}`, strict64.EncodeToString(point[1:33]), strict64.EncodeToString(point[33:]), kid))
	}
	return json.RawMessage(`{"keys":[` + strings.Join(list, ",") + `]}`)
}

// vectorPublic returns the bytes of a public key: the uncompressed point of P-256, or Ed25519's 32 bytes.
func vectorPublic(kid string) []byte {
	if kid[0] == 'd' {
		return vectorEd25519(kid)[32:]
	}
	point, err := vectorECDSA(kid).PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	return point
}

// ofLength returns a token of exactly n bytes, filled up with an unknown claim.
func ofLength(n int, sign signer) string {
	for blanks := range 4 {
		for filling := range n {
			head, claims := headHS+strings.Repeat(" ", blanks), replaced(goodClaim, `"fn":3`, `"filling":"`+strings.Repeat("x", filling)+`"`)
			if len(b64(head))+len(b64(claims))+45 == n {
				return signed(head, claims, sign)
			}
		}
	}
	panic("no token of this length")
}

// replaced replaces a part that must be there.
func replaced(s, old, with string) string {
	if !strings.Contains(s, old) {
		panic(old + " is not in " + s)
	}
	return strings.Replace(s, old, with, 1)
}

// vectors returns the cases of sdk/vectors.json.
func vectors() []vector {
	l := &vectorList{}
	l.signatures()
	l.spellings()
	l.claims()
	l.times()
	l.requests()
	return l.list
}

// signatures adds the cases about algorithms, keys and headers.
func (l *vectorList) signatures() {
	es, ed, hs := signES256(vectorECDSA("e1")), signEdDSA(vectorEd25519("d1")), signHS256(vectorSecret("h1"))
	goodES, goodED, goodHS := signed(headES, goodClaim, es), signed(headED, goodClaim, ed), signed(headHS, goodClaim, hs)
	l.add("ES256", goodES, "")
	l.add("EdDSA", goodED, "")
	l.add("HS256", goodHS, "")
	l.add("ES256, the only algorithm allowed", goodES, "").Config.Algorithms = []string{"ES256"}
	l.add("HS256 where ES256 is the only algorithm allowed", goodHS, "alg").sdkOnly().Config.Algorithms = []string{"ES256"}
	l.add("EdDSA where ES256 is the only algorithm allowed", goodED, "alg").sdkOnly().Config.Algorithms = []string{"ES256"}
	l.add("ES256 where HS256 is the only algorithm allowed", goodES, "alg").sdkOnly().Config.Algorithms = []string{"HS256"}

	none := func(string) []byte { return nil }
	for _, alg := range []string{"none", "None", "NONE", "nOnE", ""} {
		l.add(fmt.Sprintf("alg %q without a signature", alg), signed(`{"alg":"`+alg+`","kid":"e1","typ":"pass+jwt"}`, goodClaim, none), "alg")
	}
	l.add("alg none with the signature of ES256", signed(replaced(headES, "ES256", "none"), goodClaim, es), "alg")
	l.add("alg es256 in lower case", signed(replaced(headES, "ES256", "es256"), goodClaim, es), "alg")
	l.add("alg missing", signed(`{"kid":"e1","typ":"pass+jwt"}`, goodClaim, es), "alg")
	l.add("alg a number", signed(`{"alg":256,"kid":"e1","typ":"pass+jwt"}`, goodClaim, es), "alg")
	l.add("alg null", signed(`{"alg":null,"kid":"e1","typ":"pass+jwt"}`, goodClaim, es), "alg")
	l.add("alg ES384", signed(replaced(headES, "ES256", "ES384"), goodClaim, es), "alg")
	l.add("alg RS256", signed(replaced(headES, "ES256", "RS256"), goodClaim, es), "alg")
	l.add("alg HS512", signed(replaced(headHS, "HS256", "HS512"), goodClaim, hs), "alg")

	spki, err := x509.MarshalPKIXPublicKey(&vectorECDSA("e1").PublicKey)
	if err != nil {
		panic(err)
	}
	switched := replaced(headES, "ES256", "HS256")
	for _, row := range []struct{ name, secret string }{
		{"PEM", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))}, {"DER", string(spki)}, {"point", string(vectorPublic("e1"))},
	} {
		l.add("alg switched to HS256 with the public key as secret: "+row.name, signed(switched, goodClaim, signHS256(row.secret)), "alg")
		l.add("an HMAC with the public key as the signature of ES256: "+row.name, signed(headES, goodClaim, signHS256(row.secret)), "signature")
	}
	l.add("an HMAC with the public key as the signature of EdDSA", signed(headED, goodClaim, signHS256(string(vectorPublic("d1")))), "signature")
	l.add("alg switched to HS256 with the Ed25519 key as secret", signed(replaced(headED, "EdDSA", "HS256"), goodClaim, signHS256(string(vectorPublic("d1")))), "alg")
	l.add("alg switched to HS256 with an empty secret", signed(switched, goodClaim, signHS256("")), "alg")
	l.add("ES256 with the kid of an EdDSA key", signed(replaced(headES, "e1", "d1"), goodClaim, es), "alg")
	l.add("EdDSA with the kid of an ES256 key", signed(replaced(headED, "d1", "e1"), goodClaim, ed), "alg")
	l.add("ES256 with the kid of an HS256 secret", signed(replaced(headES, "e1", "h1"), goodClaim, es), "alg")
	l.add("unknown kid", signed(replaced(headES, "e1", "e2"), goodClaim, signES256(vectorECDSA("e2"))), "kid")
	l.add("kid of a retired HS256 secret", signed(replaced(headHS, "h1", "h0"), goodClaim, signHS256(vectorSecret("h0"))), "kid")
	for _, kid := range []string{"__proto__", "constructor", "", "E1", "e1 ", "../e1"} {
		l.add(fmt.Sprintf("kid %q", kid), signed(`{"alg":"ES256","kid":"`+kid+`","typ":"pass+jwt"}`, goodClaim, es), "kid")
	}
	l.add("kid missing", signed(`{"alg":"ES256","typ":"pass+jwt"}`, goodClaim, es), "kid")
	l.add("kid a number", signed(`{"alg":"ES256","kid":1,"typ":"pass+jwt"}`, goodClaim, es), "kid")
	keys := func(name, reason, jwks string) {
		l.add(name, goodES, reason).sdkOnly().Config.JWKS = json.RawMessage(jwks)
	}
	point := strings.TrimSuffix(strings.TrimPrefix(string(vectorJWKS("e1")), `{"keys":[`), `]}`)
	keys("a key set with unusable keys before the right one", "", `{"keys":[{"kty":"new"},7,{"kty":"EC","crv":"P-256","kid":"e1","x":"AA","y":"AA"},{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB"},{"kty":"EC","crv":"P-521","kid":"e1","x":"AA"},`+point+`]}`)
	keys("a key without use and alg", "", replaced(replaced(`{"keys":[`+point+`]}`, `,"use":"sig"`, ``), `,"alg":"ES256"`, ``))
	keys("a key for encryption", "kid", replaced(`{"keys":[`+point+`]}`, `"sig"`, `"enc"`))
	keys("a key of another algorithm", "kid", replaced(`{"keys":[`+point+`]}`, `"ES256"`, `"ES384"`))
	keys("a point that is not on the curve", "kid", replaced(`{"keys":[`+point+`]}`, `"y":"N`, `"y":"O`))
	keys("a key without a kid", "kid", replaced(`{"keys":[`+point+`]}`, `"kid":"e1",`, ``))
	keys("an empty key set", "kid", `{"keys":[]}`)
	v := l.add("a secret in the key set", signed(replaced(headHS, "h1", "o1"), goodClaim, signHS256(vectorSecret("o1"))), "kid").sdkOnly()
	v.Config.JWKS = json.RawMessage(`{"keys":[{"kty":"oct","kid":"o1","alg":"HS256","k":"` + b64(vectorSecret("o1")) + `"}]}`)
	l.add("signed with another key under a known kid", signed(headES, goodClaim, signES256(vectorECDSA("e2"))), "signature")
	l.add("signed with another secret under a known kid", signed(headHS, goodClaim, signHS256(vectorSecret("h2"))), "signature")
	l.add("signed with another Ed25519 key under a known kid", signed(headED, goodClaim, signEdDSA(vectorEd25519("d2"))), "signature")

	l.add("a waiting token", signed(replaced(headES, "pass+jwt", "wait+jwt"), goodClaim, es), "type")
	l.add("typ JWT", signed(replaced(headES, "pass+jwt", "JWT"), goodClaim, es), "type")
	l.add("typ in other letters", signed(replaced(headES, "pass+jwt", "Pass+JWT"), goodClaim, es), "type")
	l.add("typ missing", signed(`{"alg":"ES256","kid":"e1"}`, goodClaim, es), "type")
	l.add("typ a list", signed(`{"alg":"ES256","kid":"e1","typ":["pass+jwt"]}`, goodClaim, es), "type")
	l.add("crit in the header", signed(replaced(headES, `{`, `{"crit":["b64"],`), goodClaim, es), "crit")
	l.add("crit with an empty list", signed(replaced(headES, `}`, `,"crit":[]}`), goodClaim, es), "crit")
	l.add("b64 in the header", signed(replaced(headES, `}`, `,"b64":false}`), goodClaim, es), "header")
	l.add("jku in the header", signed(replaced(headES, `}`, `,"jku":"https://example.org/jwks.json"}`), goodClaim, es), "header")
	l.add("a key in the header", signed(replaced(headES, `}`, `,"jwk":`+strings.TrimSuffix(strings.TrimPrefix(string(vectorJWKS("e2")), `{"keys":[`), `]}`)+`}`), goodClaim, signES256(vectorECDSA("e2"))), "header")
	l.add("alg twice", signed(replaced(headES, `{`, `{"alg":"ES256",`), goodClaim, es), "header")
	l.add("alg twice, none first", signed(replaced(headES, `{`, `{"alg":"none",`), goodClaim, es), "header")
	l.add("alg twice, once with an escape", signed(replaced(headES, `{`, `{"\u0061lg":"none",`), goodClaim, es), "header")

	l.add("an ES256 signature in DER", signed(headES, goodClaim, signDER(vectorECDSA("e1"))), "signature")
	l.add("an ES256 signature of zeros", signed(headES, goodClaim, func(string) []byte { return make([]byte, 64) }), "signature")
	l.add("an EdDSA signature of zeros", signed(headED, goodClaim, func(string) []byte { return make([]byte, 64) }), "signature")
	l.add("an ES256 signature of 63 bytes", signed(headES, goodClaim, func(s string) []byte { return es(s)[:63] }), "signature")
	l.add("an ES256 signature of 65 bytes", signed(headES, goodClaim, func(s string) []byte { return append(es(s), 0) }), "signature")
	l.add("an empty signature of HS256", signed(headHS, goodClaim, none), "signature")
	l.add("an empty signature of ES256", signed(headES, goodClaim, none), "signature")
	l.add("half a signature of HS256", signed(headHS, goodClaim, func(s string) []byte { return hs(s)[:16] }), "signature")
	l.add("SHA-256 of the text as the signature of HS256", signed(headHS, goodClaim, func(s string) []byte { sum := sha256.Sum256([]byte(s)); return sum[:] }), "signature")
	for _, row := range []struct{ alg, raw string }{{"ES256", goodES}, {"EdDSA", goodED}, {"HS256", goodHS}} {
		parts := strings.Split(row.raw, ".")
		later := b64(replaced(goodClaim, "1767323345", "1767399999"))
		l.add("claims changed after signing with "+row.alg, parts[0]+"."+later+"."+parts[2], "signature")
	}
}

// spellings adds the cases about base64url, JSON and length.
func (l *vectorList) spellings() {
	es, hs := signES256(vectorECDSA("e1")), signHS256(vectorSecret("h1"))
	good := signed(headHS, goodClaim, hs)
	parts := strings.Split(good, ".")
	rejoin := func(h, c, s string) string { return h + "." + c + "." + s }
	resign := func(h, c string) string { return h + "." + c + "." + strict64.EncodeToString(hs(h+"."+c)) }

	l.add("one part", "x", "malformed")
	l.add("two parts", parts[0]+"."+parts[1], "malformed")
	l.add("four parts", good+".", "malformed")
	l.add("two dots", "..", "malformed")
	l.add("a header that is not JSON", rejoin(b64("alg"), parts[1], parts[2]), "malformed")
	l.add("a header that is a list", rejoin(b64(`["HS256"]`), parts[1], parts[2]), "malformed")
	l.add("a header with text behind it", signed(headHS+"{}", goodClaim, hs), "malformed")
	l.add("a header with padding", resign(parts[0]+"=", parts[1]), "malformed")
	l.add("a header with a byte order mark", signed("\ufeff"+headHS, goodClaim, hs), "malformed")
	l.add("claims with padding", resign(parts[0], base64.URLEncoding.EncodeToString([]byte(goodClaim+" "))), "malformed")
	standard := replaced(goodClaim, `"fn":3`, `"text":"???>>>"`)
	l.add("claims in the alphabet of base64url", signed(headHS, standard, hs), "")
	l.add("claims in the standard alphabet", resign(parts[0], base64.RawStdEncoding.EncodeToString([]byte(standard))), "malformed")
	l.add("claims with non-zero trailing bits", resign(parts[0], trailing(goodClaim)), "malformed")
	l.add("a header with non-zero trailing bits", resign(trailing(headHS+" "), parts[1]), "malformed")
	l.add("claims with one character too many", resign(parts[0], b64(goodClaim+spaces(goodClaim, 0))+"A"), "malformed")
	l.add("a signature with padding", good+"=", "signature")
	l.add("a signature with non-zero trailing bits", good[:len(good)-1]+next(good[len(good)-1]), "signature")
	l.request("a line break in the signature", "signature", [2]string{"X-Waiting-Room-Pass", good[:len(good)-9] + "\n" + good[len(good)-9:]})
	esRaw := signed(headES, goodClaim, es)
	l.add("an ES256 signature with padding", esRaw+"==", "signature")
	l.add("an ES256 signature with non-zero trailing bits", esRaw[:len(esRaw)-1]+next(esRaw[len(esRaw)-1]), "signature")
	l.add("an ES256 signature in the standard alphabet", replaceTail(esRaw, parts64(esRaw)), "signature")

	l.add("blanks and another order in the header", signed(" {\t\"typ\" : \"pass+jwt\" ,\n\"kid\" : \"h1\" , \"alg\" : \"HS256\" } ", goodClaim, hs), "")
	l.add("escapes in header and claims", signed(`{"alg":"HS\u0032\u00356","kid":"h1","t\u0079p":"pass\u002bjwt"}`, replaced(goodClaim, "anteroom", `\u0061nteroom`), hs), "")
	l.add("a header without members", signed(`{}`, goodClaim, hs), "alg")
	l.add("claims without members", signed(headHS, `{}`, hs), "issuer")
	l.add("claims that are null", signed(headHS, `null`, hs), "malformed")
	l.add("claims that are empty", signed(headHS, ``, hs), "malformed")
	l.add("claims with text behind them", signed(headHS, goodClaim+"x", hs), "malformed")
	l.add("claims with a comma too many", signed(headHS, replaced(goodClaim, "}", ",}"), hs), "malformed")
	l.add("claims in single quotes", signed(headHS, strings.ReplaceAll(goodClaim, `"`, `'`), hs), "malformed")
	l.add("claims that are not UTF-8", signed(headHS, replaced(goodClaim, `"fn":3`, "\"text\":\"\xff\""), hs), "malformed")
	l.add("claims with a NUL in a string", signed(headHS, replaced(goodClaim, `"fn":3`, "\"text\":\"\x00\""), hs), "malformed")

	l.add("4096 bytes", ofLength(4096, hs), "")
	l.add("4097 bytes", ofLength(4097, hs), "too_long")
	l.add("4097 bytes that are no token", strings.Repeat("a", 4097), "too_long")
	l.add("4096 dots", strings.Repeat(".", 4096), "malformed")
}

// trailing returns text in base64url with the lowest bit of the last character set. The text is filled up with blanks.
func trailing(text string) string {
	text = b64(text + spaces(text, 1))
	return text[:len(text)-1] + next(text[len(text)-1])
}

// spaces returns blanks that make the length of text rest modulo 3.
func spaces(text string, rest int) string { return strings.Repeat(" ", (rest+3-len(text)%3)%3) }

// next returns the character after c in the alphabet of base64url.
func next(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)+1:][:1]
}

func parts64(raw string) string {
	return strings.NewReplacer("-", "+", "_", "/").Replace(raw[strings.LastIndexByte(raw, '.'):])
}

func replaceTail(raw, tail string) string {
	if strings.HasSuffix(raw, tail) {
		panic("the signature has no character that differs between the alphabets")
	}
	return raw[:strings.LastIndexByte(raw, '.')] + tail
}
