package gateway

import (
	"strings"
	"testing"
)

// saleAndVIP is a gateway with two rooms: /sale admits nobody, /vip everybody.
func saleAndVIP(t *testing.T) (*bench, *site) {
	t.Helper()
	return one(t, Room{ID: "sale", Paths: []string{"/sale"}, Policy: policy(0)}, Room{ID: "vip", Paths: []string{"/vip"}, Policy: policy(9)})
}

func TestAmbiguousPath_IsRedirectedOrRefused(t *testing.T) {
	b, s := saleAndVIP(t)
	for _, row := range []struct{ method, target, to string }{
		{"GET", "/vip/../sale", "/sale"},
		{"HEAD", "/vip/../sale/buy?a=/../b&c", "/sale/buy?a=/../b&c"},
		{"GET", "/vip/..;x=1/sale/", "/sale/"},
		{"GET", "/vip//..//../sale%2Fa", "/sale%2Fa"},
		{"GET", "//sale/../vip/x", "/vip/x"},
		{"GET", "//vip/sale", "/vip/sale"},
		{"GET", "/vip/%2e%2E/sale;v=1", "/sale;v=1"},
		{"POST", "/vip/../sale", ""},
		{"GET", "/vip%2f..%2fsale", ""},
		{"GET", "/vip/..%2fsale", ""},
		{"GET", "/vip%5c../%5csale", ""},
		{"GET", "/vip/..;/%2fsale%5c;%00/../x", ""}, // more readings than are checked
	} {
		a := b.call(row.method+" "+row.target, asJSON)
		if row.to != "" {
			if a.status != 308 || a.header.Get("Location") != row.to || a.header.Get("Cache-Control") != "no-store" || a.body != "" {
				t.Errorf("%s %s: %s", row.method, row.target, a.text())
			}
			continue
		}
		if a.status != 400 || a.field("code") != "ambiguous_path" {
			t.Errorf("%s %s: %s", row.method, row.target, a.text())
		}
	}
	if a := b.call("POST //sale/../vip", asPage, "", "a=b"); a.status != 400 || !strings.Contains(a.body, "several ways") {
		t.Errorf("a form: %s", a.text())
	}
	if got := s.requests(); len(got) != 0 {
		t.Errorf("the site was asked: %q", got)
	}
}

func TestPass_IsValidForItsRoomOnly(t *testing.T) {
	b, s := saleAndVIP(t)
	pass := b.call("GET /vip", asJSON).code(t, 200).jar()
	for _, target := range []string{
		"/vip/..;/sale/buy", "/vip/..%2fsale/buy", "/vip/%2e%2e%5csale/buy", "/vip;/..;/sale/buy", "/vip/../sale", "/sale/../vip", "//vip/sale",
		"/sale", "/sale;/vip", "/%73ale", "/sale%2f..%2fvip",
	} {
		for _, method := range []string{"GET", "POST"} {
			if a := b.call(method+" "+target, asJSON, pass); a.status == 200 {
				t.Errorf("%s %s: %s", method, target, a.text())
			}
		}
	}
	// A path whose readings all lead to one room is forwarded byte for byte.
	for _, target := range []string{"/vip/a/../b", "/vip//a;b/c%2fd", "/vip/./a", "/a/../b//c;d", "/VIP/%61"} {
		b.call("POST "+target, asJSON, pass, "", "x").code(t, 200)
		if got := s.requests(); !strings.HasPrefix(got[len(got)-1], "POST "+target+" ") {
			t.Errorf("%s: the site saw %s", target, got[len(got)-1])
		}
	}
}

func TestBypass_MethodRuleIgnoresOverriddenMethod(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Bypass: []Bypass{{Paths: []string{"/a"}, Methods: []string{"GET"}}, {Paths: []string{"/b"}}}})
	b.call("GET /a", asJSON).code(t, 200)
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x_http_method_override", "X.HTTP.Method", "X!Method~Override"} {
		b.call("GET /a", asJSON, name+": DELETE").code(t, 202)
		b.call("GET /b", asJSON, name+": DELETE").code(t, 200)
	}
}

func TestBypass_LongUserAgent(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Bypass: []Bypass{{UserAgents: []string{"GoodBot", "Ünde"}}}})
	fill := func(n int) string { return strings.Repeat("x", n) }
	b.call("GET /", asJSON, "User-Agent: "+fill((1<<10)-7)+"goodBOT").code(t, 200)
	b.call("GET /", asJSON, "User-Agent: "+fill((1<<10)-6)+"goodbot").code(t, 202)
	b.call("GET /", asJSON, "User-Agent: a ünDE b").code(t, 200)
}

func TestBypass_PathTooLongForPattern(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Bypass: []Bypass{{Paths: []string{"~^/static/"}}}})
	long := "/static/" + strings.Repeat("x", 1<<10-len("/static/"))
	b.call("GET "+long, asJSON).code(t, 200)
	b.call("GET "+long+"x", asJSON).code(t, 202)
	b.call("GET /static/x/../../sale", asJSON).code(t, 202)
}

// For many servers /static;x is another path than /static.
func TestBypass_EndsWithSegment(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Bypass: []Bypass{{Paths: []string{"/static"}}}})
	for path, status := range map[string]int{
		"/static": 200, "/static/": 200, "/static/a;v=1/b": 200, "/static/%3b": 200, "/static/%0a": 200,
		"/static;x": 202, "/static;x/a": 202, "/static%3bx": 202, "/static%0a": 202, "/static%0d/a": 202, "/staticx": 202,
	} {
		if a := b.call("GET "+path, asJSON); a.status != status {
			t.Errorf("%s: %d, want %d", path, a.status, status)
		}
	}
}
