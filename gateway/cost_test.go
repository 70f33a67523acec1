package gateway

import (
	"io"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// heaviest are the most expensive inputs within the limits, one of each kind. The target is empty for /.
var heaviest = []struct{ name, target, fields string }{
	{"Connection, 32 names of 80 bytes", "", "Connection: " + elements(32, "x"+strings.Repeat("n", 79)) + "\r\n" + strings.Repeat(strings.Repeat("m", 80)+": 1\r\n", 90)},
	{"Trailer, 32 names", "", "Trailer: " + elements(32, "x-trailer") + "\r\n"},
	{"Cookie, 4,000 pairs", "", "Cookie: " + strings.Repeat("a;", 4000) + "\r\n"},
	{"Cookie, 90 lines", "", strings.Repeat("Cookie: wr_sale_ticket=eyJ.a.b; wr_sale_pass=eyJ.a.b\r\n", 90)},
	{"Accept, 1,500 ranges with weights", "", "Accept: " + elements(1500, "a;q=1") + "\r\n"},
	{"Accept-Language, 2,500 ranges", "", "Accept-Language: " + elements(2500, "en") + "\r\n"},
	{"X-Forwarded-For, 700 hops", "", "X-Forwarded-For: " + elements(700, "127.0.0.1") + "\r\n"},
	{"Forwarded, 600 hops", "", "Forwarded: " + elements(600, "for=127.0.0.1") + "\r\n"},
	{"a path of escapes", "/" + strings.Repeat("%61%2e", 1300), ""},
	{"a path of segments", strings.Repeat("/a", 4000), ""},
	{"a query of parameters", "/?" + strings.Repeat("a=&", 2600), ""},
	{"a query and a Referer of parameters", "/?" + strings.Repeat("t=&", 2000), "Referer: /?" + strings.Repeat("t=&", 2000) + "\r\n"},
	{"Sec-Purpose, 2,500 elements", "", "Sec-Purpose: " + elements(2500, "no") + "\r\n"},
	{"User-Agent of control bytes beyond ASCII", "", "User-Agent: " + strings.Repeat("\xff", 8000) + "\r\n"},
	{"tokens that do not verify, in all places", "", "Authorization: Bearer eyJ" + strings.Repeat("a", 1500) + ".b.c\r\nX-Waiting-Room-Token: eyJ" + strings.Repeat("a", 1500) + ".b.c\r\nX-Waiting-Room-Pass: eyJ" + strings.Repeat("a", 1500) + ".b.c\r\n"},
	{"99 header lines", "", strings.Repeat("x: 1\r\n", 96)},
	{"Range, 1,500 ranges", "", "Range: bytes=" + elements(1500, "0-1") + "\r\n"},
	{"If-None-Match, 1,500 tags", "", "If-None-Match: " + elements(1500, `"a"`) + "\r\n"},
	{"Via and Content-Encoding lists", "", "Via: " + elements(1000, "1.1 a") + "\r\nContent-Encoding: " + elements(400, "gzip") + "\r\n"},
}

func elements(n int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

// costly returns a GET request with the fields.
func costly(target, fields string) string {
	if target == "" {
		target = "/"
	}
	return "GET " + target + " HTTP/1.1\r\nHost: shop.test\r\n" + fields + "\r\n"
}

// Each of the heaviest requests is within the limits, so it is served, with few allocations however long its lists are.
func TestHeaviestRequests_AreServed(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", plainOrigin(t))}, Access: Access{Output: io.Discard, Sample: 1}, TrustedProxies: loopback(),
	})
	for _, row := range heaviest {
		request := costly(row.target, row.fields)
		ask := keepAsking(t, b.addr, request, []byte("\r\n\r\nok"))
		ask()
		if n := testing.AllocsPerRun(100, ask); n > 5 {
			t.Errorf("%s: %v allocations", row.name, n)
		}
	}
}
