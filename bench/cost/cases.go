package main

import (
	"crypto"
	"crypto/ecdsa"
	"encoding/base64"
	"fmt"
	"strings"
)

// endpoint is a path of the gateway that is measured.
type endpoint struct {
	name, path string
	fields     string // header lines of every request there, the plain one included
	method     string // GET, or one with a body
	host       string // empty: shop.test
}

// The endpoints, beside those that need a pass.
var (
	outside  = endpoint{name: "outside rooms", path: "/", method: "GET"}
	waiting  = endpoint{name: "waiting", path: "/sale", method: "GET"}
	admitted = endpoint{name: "admitted", path: "/free", method: "GET"}
	account  = endpoint{name: "an account's room", path: "/account", method: "GET"}
	patterns = endpoint{name: "rooms by patterns", path: "/list", method: "GET", host: "list.test"}
	upload   = endpoint{name: "outside rooms", path: "/", method: "POST"}
	join     = endpoint{name: "join", path: "/.waiting-room/sale/tickets", method: "POST"}
	guarded  = endpoint{name: "join with a proof", path: "/.waiting-room/guarded/tickets", method: "POST"}
	captcha  = endpoint{name: "join with a CAPTCHA", path: "/.waiting-room/asked/tickets", method: "POST"}
)

// trial is one case: an expensive request and the plain one beside it.
type trial struct {
	name        string
	endpoint    endpoint
	target      string // instead of the endpoint's path
	fields      string
	body        string
	chunked     bool // the body is written with its framing
	plainTarget string
	plainIsJSON bool // the plain body is an object, padded with blanks
	second      bool // for the gateway that reads Forwarded, signs with EdDSA and also verifies ES256
}

// fresh is replaced with characters that no other request has.
const fresh = "FFFFFFFF"

func list(n int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

func numbered(n int, format, between string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(parts, between)
}

// everywhere returns header lines that are sent to each endpoint.
func everywhere() []trial {
	jwt := "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIiwidHlwIjoid2FpdCtqd3QifQ." + strings.Repeat("a", 3000) + "." + strings.Repeat("b", 43)
	pass := "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIiwidHlwIjoicGFzcytqd3QifQ." + strings.Repeat("a", 3000) + "." + strings.Repeat("b", 43)
	short := "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIiwidHlwIjoid2FpdCtqd3QifQ." + strings.Repeat("a", 100) + "." + strings.Repeat("b", 43)
	return []trial{
		{name: "Accept, 1,500 ranges with weights", fields: "Accept: " + list(1500, "a;q=0.1") + "\r\n"},
		{name: "Accept, 7,000 semicolons", fields: "Accept: text/html" + strings.Repeat(";", 7000) + "\r\n"},
		{name: "Accept, 90 lines", fields: strings.Repeat("Accept: text/plain;q=0.1,*/*;q=0\r\n", 90)},
		{name: "Accept-Language, 1,200 ranges", fields: "Accept-Language: " + numbered(1200, "x%d;q=0.5", ",") + "\r\n"},
		{name: "Accept-Language, subtags", fields: "Accept-Language: en" + strings.Repeat("-a", 3000) + "\r\n"},
		{name: "Accept-Encoding, 2,000 codings", fields: "Accept-Encoding: " + list(2000, "x;q=0.1") + "\r\n"},
		{name: "Cookie, 5,000 pairs", fields: "Cookie: " + strings.Repeat("a;", 5000) + "\r\n"},
		{name: "Cookie, 90 lines with tokens that fail", fields: strings.Repeat("Cookie: wr_sale_ticket="+short[:70]+"; wr_sale_pass="+short[:50]+"\r\n", 90)},
		{name: "Cookie, 40 tickets that fail", fields: "Cookie: " + strings.Repeat("wr_sale_ticket="+short+"; ", 40) + "a=b\r\n"},
		{name: "Cookie, long tokens that fail", fields: "Cookie: wr_sale_ticket=" + jwt + "; wr_sale_pass=" + pass + "; wr_free_pass=" + pass + "\r\n"},
		{name: "tokens that fail in all headers", fields: "Authorization: Bearer " + jwt + "\r\nX-Waiting-Room-Token: " + jwt + "\r\nX-Waiting-Room-Pass: " + pass + "\r\nCookie: wr_sale_ticket=" + short + "; wr_sale_pass=" + short + "\r\n"},
		{name: "Idempotency-Key, 10 KB", fields: "Idempotency-Key: " + strings.Repeat("k", 10000) + "\r\n"},
		{name: "Idempotency-Key, 90 lines", fields: strings.Repeat("Idempotency-Key: "+strings.Repeat("k", 100)+"\r\n", 90)},
		{name: "X-Forwarded-For, 1,000 trusted hops", fields: "X-Forwarded-For: " + list(1000, "127.0.0.1") + "\r\n"},
		{name: "X-Forwarded-For, IPv6 and ports", fields: "X-Forwarded-For: " + list(700, "[::ffff:127.0.0.1]:1") + "\r\n"},
		{name: "X-Forwarded-For, 90 lines", fields: strings.Repeat("X-Forwarded-For: "+list(10, "127.0.0.1")+"\r\n", 90)},
		{name: "X-Forwarded-For, 14,000 commas", fields: "X-Forwarded-For: " + strings.Repeat(",", 14000) + "\r\n"},
		{name: "X-Forwarded-Proto and -Host lists", fields: "X-Forwarded-Proto: " + list(2000, "a") + "\r\nX-Forwarded-Host: " + list(2000, "a") + "\r\n"},
		{name: "Forwarded, 600 trusted hops", fields: "Forwarded: " + list(600, "for=127.0.0.1") + "\r\n", second: true},
		{name: "Forwarded, 6,000 parameters", fields: "Forwarded: " + strings.Repeat("a;", 6000) + "for=127.0.0.1\r\n", second: true},
		{name: "Range, 3,000 ranges", fields: "Range: bytes=" + list(3000, "0-1") + "\r\n"},
		{name: "If-None-Match, 3,000 tags", fields: "If-None-Match: " + list(3000, `"a"`) + "\r\n"},
		{name: "Sec-Purpose, 3,000 elements", fields: "Sec-Purpose: " + list(3000, "no") + "\r\n"},
		{name: "User-Agent of bytes beyond ASCII", fields: "User-Agent: " + strings.Repeat("\xff", 15000) + "\r\n"},
		{name: "Referer of secret parameters", fields: "Referer: /?" + strings.Repeat("token=eyJ.a&", 1200) + "\r\n"},
		{name: "Connection, 32 names beside 60 lines", fields: "Connection: " + list(32, "x"+strings.Repeat("n", 79)) + "\r\n" + strings.Repeat(strings.Repeat("m", 80)+": 1\r\n", 60)},
		{name: "Connection, 32 names beside 95 lines", fields: "Connection: " + numbered(32, "x-%d", ",") + "\r\n" + numbered(94, "x-%d: 1\r\n", "")},
		{name: "Trailer, 32 names", fields: "Trailer: " + numbered(32, "x-%d", ",") + "\r\n"},
		{name: "TE, 2,500 codings", fields: "TE: " + list(2500, "x;q=1") + "\r\n"},
		{name: "98 header lines of 4 bytes", fields: strings.Repeat("x:\r\n", 94)},
		{name: "98 names like account headers", fields: strings.Repeat("X.Account_Ie: 1\r\n", 94)},
		{name: "Upgrade in 90 lines", fields: strings.Repeat("Upgrade: websocket\r\n", 90)},
		{name: "Upgrade that the site refuses", fields: "Connection: Upgrade\r\nUpgrade: websocket\r\n"},
		{name: "CORS, 1,500 header names", fields: "Origin: https://shop.test\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: " + numbered(1500, "x-%d", ",") + "\r\n"},
		{name: "Cache-Control and Via lists", fields: "Cache-Control: " + list(1500, "a=1") + "\r\nVia: " + list(1000, "1.1 a") + "\r\n"},
	}
}

// paths returns targets, sent outside rooms and below the path of each endpoint.
func paths() []trial {
	return []trial{
		{name: "a path of escapes", target: strings.Repeat("/%61%2e", 1100)},
		{name: "a path of segments", target: strings.Repeat("/a", 4000)},
		{name: "a path of dot segments", target: strings.Repeat("/a/..", 1600)},
		{name: "a path of 2 KB with two ambiguities", target: strings.Repeat("/a;b/..", 280)},
		{name: "a path of 2 KB with all of them", target: "/" + strings.Repeat("%2f%5c%00;/..%3b", 120)},
		{name: "a path of parameters", target: "/" + strings.Repeat(";", 2000)},
		{name: "a path of slashes", target: strings.Repeat("/", 2000)},
		{name: "a path of 1 KB of near hits", target: strings.Repeat("/sale/item", 100)},
		{name: "a path in Unicode capitals", target: "/" + strings.Repeat("%C3%84", 340)},
		{name: "a query of parameters", target: "?" + strings.Repeat("a=&", 2600)},
		{name: "a query of escapes", target: "?" + strings.Repeat("%41", 2600)},
		{name: "a query of secret parameters", target: "?" + strings.Repeat("token=eyJ.a&", 650)},
		{name: "a query of method overrides", target: "?" + strings.Repeat("_method=DELETE&", 530)},
	}
}

// accounts returns requests with JWTs of the site that do not verify with the keys that the gateway fetched.
func accounts(keys []siteKey) (all []trial) {
	for _, k := range keys {
		token := k.forged()
		all = append(all, trial{name: "a JWT that fails, " + k.alg, endpoint: account, fields: "Authorization: Bearer " + token + "\r\n"})
		cookies := "Cookie: " + strings.TrimSuffix(strings.Repeat("site="+token+"; ", 14000/(len(token)+8)), "; ") + "\r\n"
		all = append(all, trial{name: "as many as fit of " + k.alg, endpoint: account, fields: cookies})
	}
	return append(all, trial{name: "a JWT of 12 KB that is no JSON", endpoint: account, fields: "Authorization: Bearer " + strings.Repeat("e", 6000) + "." + strings.Repeat("e", 6000) + ".e\r\n"},
		trial{name: "a JWT with 1,000 members", endpoint: account, fields: "Authorization: Bearer " + encode(`{"alg":"RS256","kid":"x",`+numbered(500, `"a%d":1`, ",")+"}") + "." + encode("{"+numbered(500, `"a%d":[1]`, ",")+"}") + ".e\r\n"},
		trial{name: "a JWT of nested arrays", endpoint: account, fields: "Authorization: Bearer " + encode(`{"alg":"RS256","a":`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000)+"}") + ".e.e\r\n"})
}

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// siteKey is a key with which the site signs accounts.
type siteKey struct {
	alg, kid string
	private  crypto.Signer
}

// forged returns a token whose signature has the right length and does not verify.
func (k *siteKey) forged() string {
	signature := strings.Repeat("\x01", 64)
	switch public := k.private.Public().(type) {
	case interface{ Size() int }: // RSA
		signature = strings.Repeat("\x01", public.Size())
	case *ecdsa.PublicKey:
		signature = strings.Repeat("\x01", 2*((public.Curve.Params().BitSize+7)/8))
	}
	text := encode(signature)
	return encode(fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"JWT"}`, k.alg, k.kid)) + "." + encode(`{"sub":"4711","exp":4102444800}`) + "." + text[:20] + fresh + text[20+len(fresh):]
}

// forgeries returns requests with as many invalid tokens of EdDSA and ES256 as the gateway verifies.
func forgeries() (all []trial) {
	for _, key := range []struct{ alg, kid string }{{"EdDSA", "k1"}, {"ES256", "k2"}} {
		forged := func(kind string) string {
			signature := encode(strings.Repeat("\x01", 64))
			return encode(fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"%s+jwt"}`, key.alg, key.kid, kind)) + "." + encode(strings.Repeat("a", 60)) + "." + signature[:20] + fresh + signature[20+len(fresh):]
		}
		pass, ticket := forged("pass"), forged("wait")
		pairs := strings.Repeat("; wr_sale_pass="+pass+"; wr_sale_ticket="+ticket, 4)
		fields := "X-Waiting-Room-Pass: " + pass + "\r\nX-Waiting-Room-Token: " + ticket + "\r\nCookie: a=b" + pairs + "\r\n"
		for _, p := range []endpoint{waiting, {name: "status", path: "/.waiting-room/sale/status", method: "GET"}} {
			all = append(all, trial{name: key.alg + " tokens that fail in all headers", endpoint: p, fields: fields, second: true})
		}
	}
	return all
}

// bodies returns requests with a body.
func bodies() []trial {
	proof := encode(`{"algorithm":"SHA-256","challenge":"` + strings.Repeat("0", 64) + `","number":1,"salt":"` + strings.Repeat("s", 2000) + `","signature":"` + strings.Repeat("0", 64) + `"}`)
	tiny := strings.Repeat("1\r\nx\r\n", 10000) + "0\r\n\r\n"
	extended := strings.Repeat("40;"+strings.Repeat("e", 60)+"\r\n"+strings.Repeat("x", 64)+"\r\n", 400) + "0\r\n\r\n"
	trailers := "1\r\nx\r\n0\r\n" + numbered(90, "x-%d: 1\r\n", "") + "\r\n"
	return []trial{
		{name: "10,000 chunks of a byte", endpoint: upload, body: tiny, chunked: true},
		{name: "chunks with extensions", endpoint: upload, body: extended, chunked: true},
		{name: "90 trailer lines of 32 names", endpoint: upload, fields: "Trailer: " + numbered(32, "x-%d", ",") + "\r\n", body: trailers, chunked: true},
		{name: "Expect: 100-continue", endpoint: upload, fields: "Expect: 100-continue\r\n", body: strings.Repeat("x", 1000)},
		{name: "a chunked join of single bytes", endpoint: join, body: strings.Repeat("1\r\n \r\n", 1000) + "2\r\n{}\r\n0\r\n\r\n", chunked: true, plainIsJSON: true},
		{name: "a join of 400 members", endpoint: join, body: "{" + numbered(400, `"a%d":1`, ",") + "}", plainIsJSON: true},
		{name: "a join of nested arrays", endpoint: join, body: `{"nonce":` + strings.Repeat("[", 1900) + strings.Repeat("]", 1900) + "}", plainIsJSON: true},
		{name: "a join of escapes", endpoint: join, body: `{"nonce":"` + strings.Repeat(`\u0061`, 600) + `"}`, plainIsJSON: true},
		{name: "a join that names nonce 300 times", endpoint: join, body: "{" + list(300, `"nonce":"a"`) + "}", plainIsJSON: true},
		{name: "a join with an Idempotency-Key", endpoint: join, fields: "Idempotency-Key: " + strings.Repeat("k", 64) + fresh + "\r\n", body: "{}", plainIsJSON: true},
		{name: "a proof that is not the gateway's", endpoint: guarded, body: `{"altcha":"` + proof + `"}`, plainIsJSON: true},
		{name: "a CAPTCHA solution that is rejected", endpoint: captcha, body: `{"captcha":"` + fresh + `"}`, plainIsJSON: true},
		{name: "a proof of nested arrays", endpoint: guarded, body: `{"altcha":"` + encode(strings.Repeat("[", 2500)) + `"}`, plainIsJSON: true},
	}
}

// refusals returns requests just beyond a limit. Each closes its connection.
func refusals() []trial {
	return []trial{
		{name: "33 names in Connection", fields: "Connection: " + numbered(33, "x-%d", ",") + "\r\n"},
		{name: "8,000 names in Connection", fields: "Connection: " + list(8000, "a") + "\r\n"},
		{name: "8,000 names in Trailer", fields: "Trailer: " + list(8000, "a") + "\r\n"},
		{name: "200 header lines", fields: strings.Repeat("x: 1\r\n", 200)},
		{name: "a target of 8,300 bytes", target: "/" + strings.Repeat("a", 8300)},
		{name: "a coding list", fields: "Transfer-Encoding: " + list(2000, "gzip") + "\r\n"},
		{name: "an Expect that is not known", fields: "Expect: " + list(3000, "x") + "\r\n"},
	}
}

// originResponses returns requests with a response of 490 header lines, which a visitor cannot choose.
func originResponses(pass endpoint) []trial {
	return []trial{
		{name: "490 lines of the site's, as they are", endpoint: outside, target: "/lines", plainTarget: "/long"},
		{name: "490 lines of the site's, with a pass", endpoint: pass, target: pass.path + "/lines", plainTarget: pass.path + "/long"},
		{name: "490 lines of the site's, cookies added", endpoint: admitted, target: admitted.path + "/lines", plainTarget: admitted.path + "/long"},
	}
}
