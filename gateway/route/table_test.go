package route

import (
	"regexp"
	"strings"
	"testing"
)

func rule(room string, hosts, paths []string) Rule {
	return Rule{Room: room, Hosts: hosts, Paths: paths}
}

func found(t testing.TB, rules []Rule, tab *Table, host, path string) string {
	t.Helper()
	p := tab.Locate([]byte(host), []byte(path), new(Readings))
	switch p.Kind {
	case TwoRooms:
		return "two rooms"
	case TooMany:
		return "too many"
	case ToOwn:
		return "own:" + string(p.Rest)
	case ToOrigin:
		return ""
	}
	return rules[p.Room].Room
}

func TestMatch(t *testing.T) {
	rules := []Rule{
		rule("all", []string{"shop.test"}, []string{"/"}),
		rule("sale", []string{"shop.test"}, []string{"/sale", "/Angebot"}),
		rule("vip", []string{"shop.test"}, []string{"/sale/vip"}),
		rule("wild", []string{"*.shop.test"}, []string{"/sale"}),
		rule("deep", []string{"*.eu.shop.test"}, []string{"/sale"}),
		rule("regex", []string{"re.test"}, []string{`~^/item/\d+$`, "/buy"}),
		rule("any", []string{"*.test"}, []string{"/any"}),
		rule("one", []string{"one.example"}, []string{"/sale", "/buy"}),
	}
	tab, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ host, path, want string }{
		{"shop.test", "/", "all"},
		{"shop.test", "/sale", "sale"},
		{"shop.test", "/sale/", "sale"},
		{"shop.test", "/sale/x", "sale"},
		{"shop.test", "/sale;x", "sale"},
		{"shop.test", "/sales", "all"},
		{"shop.test", "/sale/vip", "vip"},
		{"shop.test", "/sale/vip/7", "vip"},
		{"shop.test", "/SALE", "sale"},
		{"shop.test", "/sale//x", "sale"},
		{"shop.test", "/sale/.", "sale"},
		{"shop.test", "/angebot", "sale"},
		{"shop.test", "/%2573ale", "all"}, // decoded once
		{"shop.test", "/search/100%25", "all"},
		{"shop.test", "/a/../b//c;d", "all"},
		{"shop.test", "/sale;a=b", "sale"},
		{"shop.test", "/sale%3ba=b", "sale"},
		{"shop.test", "/sale;a/vip", "vip"}, // only parameters tell the readings apart: the path without them counts
		{"shop.test", "/sale%0a", "sale"},
		// If readings lead to different rooms, no room is chosen.
		{"shop.test", "//sale", "two rooms"},
		{"shop.test", "/./sale", "two rooms"},
		{"shop.test", "/%73ale", "two rooms"},
		{"shop.test", "/%2e/sale", "two rooms"},
		{"shop.test", "/x/../sale", "two rooms"},
		{"shop.test", "/x/%2E%2e/sale", "two rooms"},
		{"shop.test", "/x%2f..%2fsale", "two rooms"},
		{"shop.test", "/x%5c..%5csale", "two rooms"},
		{"shop.test", `/x\..\sale`, "two rooms"},
		{"shop.test", "/sale%00.png", "two rooms"},
		{"shop.test", "/sale%2fvip", "two rooms"},
		{"shop.test", "/x/..;a=b/sale", "two rooms"},
		{"shop.test", "/a;x/../sale", "two rooms"},
		{"shop.test", "/%u0073ale", "two rooms"},
		{"shop.test", "/sale/../about", "two rooms"},
		{"shop.test", "/sale/vip/../x", "two rooms"},
		{"shop.test", "/x/..;/sale/a/..%3b/..%3b/..%3b/", "two rooms"},
		{"shop.test", "//h%2f..%5csale;a/%00/../b", "too many"},
		// On a host with one room, any reading that leads to the room counts.
		{"a.shop.test", "/x/../sale", "wild"},
		{"a.shop.test", "/sale/../x", "wild"},
		{"a.shop.test", "//host/sale", "wild"},
		{"a.shop.test", "/%73ale", "wild"},
		{"a.shop.test", "/sale%2fx", "wild"},
		{"a.shop.test", "/sales/../x", ""},
		{"one.example", "//h%2f..%5cx;a/%00/../b", "one"}, // more readings than are checked
		{"one.example", "/x", ""},
		{"a.shop.test", "/sale", "wild"},
		{"a.eu.shop.test", "/sale", "deep"},
		{"a.shop.test", "/any", "any"},
		{"a.shop.test", "/other", ""},
		{"re.test", "/item/42", "regex"},
		{"re.test", "/item/%D9%A5", "regex"}, // Python reads an Arabic five as a digit
		{"re.test", "/ITEM/42", "regex"},
		{"re.test", "/item/42/x", ""},
		{"re.test", "/buy", "regex"},
		{"else.test", "/any/x", "any"},
		{"else.test", "/", ""},
		{"shop.test", "/.waiting-room/sale/status", "own:/sale/status"},
		{"shop.test", "/.waiting-room", "own:"},
		{"shop.test", "//.waiting-room/sale", "own:/sale"},
		{"shop.test", "/x;/..%2f.waiting-room", "own:"},
		{"shop.test", "/a/../.Waiting-Room/sale", "own:/sale"},
		{"shop.test", "/%2ewaiting-room/sale", "own:/sale"},
		{"shop.test", "/.waiting-roomy", "all"},
	} {
		if got := found(t, rules, tab, row.host, row.path); got != row.want {
			t.Errorf("%s%s: %q, want %q", row.host, row.path, got, row.want)
		}
	}
	if !tab.Knows([]byte("x.test")) || tab.Knows([]byte("x.example")) {
		t.Error("knows")
	}
	if !tab.Serves(3, []byte("a.shop.test")) || tab.Serves(1, []byte("a.shop.test")) {
		t.Error("serves")
	}
}

func TestMatch_Refuses(t *testing.T) {
	for _, row := range []struct {
		hosts, paths []string
		want         string
	}{
		{[]string{"a*b"}, []string{"/"}, `rooms.x.hosts: "a*b": give a host name, one with a leading wildcard (*.example.com), or *`},
		{[]string{"*"}, []string{"sale"}, `rooms.x.paths: "sale": a path begins with / and a regular expression with ~`},
		{[]string{"*"}, []string{"~("}, "rooms.x.paths: \"~(\": error parsing regexp: missing closing ): `(`"},
		{[]string{"*"}, []string{"/taken/"}, `rooms.x.paths: "/taken/": room other has this path too; give one of them another path or host`},
	} {
		_, err := New([]Rule{rule("other", []string{"*"}, []string{"/TAKEN"}), rule("x", row.hosts, row.paths)})
		if err == nil || err.Error() != row.want {
			t.Errorf("%v %v: %v", row.hosts, row.paths, err)
		}
	}
}

// An expression is matched against paths in lower case, so it need not ignore case itself, which takes up to ten times as long.
func TestCompile_MatchesAsIfCaseWereIgnored(t *testing.T) {
	paths := []string{"/", "/sale", "/sale/buy", "/saLe", "/item/12", "/straße", "/k", "/stra\u00e9", "/shop/sale.html", "/a\nb", "//sale"}
	for _, pattern := range []string{"^/SALE", "Sale$", "^/(?:Sale|[A-K]tem)(/\\d+)?$", "STRASSE|STRAßE", "\\.HTML$", "^/[^a-r]ale", "(?s)A.B", "(?-i)SALE", "\\bSale\\b", "^/K$", "S{1}ale", "/ſale", "\\p{Lu}ale", ""} {
		re, err := compile(pattern)
		if err != nil {
			t.Fatal(pattern, err)
		}
		want := regexp.MustCompile("(?is)" + strings.ReplaceAll(pattern, "(?-i)", ""))
		for _, path := range paths {
			path = string(fold([]byte(path), 0))
			if got := re.MatchString(path); got != want.MatchString(path) {
				t.Errorf("%q matches %q: %v", pattern, path, got)
			}
		}
	}
	re, err := compile("/SALE/item")
	if prefix, whole := re.LiteralPrefix(); err != nil || prefix != "/sale/item" || !whole {
		t.Errorf("the expression does not begin with its letters, but with %q: %s, %v", prefix, re, err)
	}
}

func TestHostName(t *testing.T) {
	for in, want := range map[string]string{
		"shop.test": "shop.test", "Shop.Test:8080": "shop.test", "shop.test.": "shop.test", "[::1]:80": "[::1]", "[::1]": "[::1]", "": "",
		"SHOP.TEST.:1": "shop.test",
	} {
		host := []byte(in)
		if got, _ := HostName(host, nil); string(got) != want || string(host) != in {
			t.Errorf("%q: %q, and the header became %q", in, got, host)
		}
	}
}

func TestLocate_PatternReadsOneKilobyte(t *testing.T) {
	rules := []Rule{
		rule("all", []string{"two.test"}, []string{"/"}), rule("sale", []string{"one.test", "two.test"}, []string{"~/sale$"}),
		rule("plain", []string{"plain.test"}, []string{"/plain"}), rule("other", []string{"plain.test"}, []string{"/"}),
	}
	tab, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	long := func(n int, tail string) string { return "/" + strings.Repeat("x", n-1-len(tail)) + tail }
	for _, row := range []struct{ host, path, want string }{
		{"two.test", long(patternMax, ""), "all"},
		{"two.test", long(patternMax, "/sale"), "sale"},
		{"two.test", long(patternMax+1, ""), "too many"},
		{"one.test", long(patternMax, ""), ""},
		{"one.test", long(patternMax+1, ""), "sale"},
		{"two.test", long(patternMax/2, ";"), "all"}, // two readings of half that size
		{"two.test", long(patternMax/2+2, ";"), "too many"},
		{"plain.test", long(8<<10, ""), "other"},
	} {
		if got := found(t, rules, tab, row.host, row.path); got != row.want {
			t.Errorf("%s, %d bytes: %q, want %q", row.host, len(row.path), got, row.want)
		}
	}
}

func TestLocate_AllocatesNothing(t *testing.T) {
	tab, err := New([]Rule{
		rule("sale", []string{"shop.test"}, []string{"/sale"}), rule("wild", []string{"*.test"}, []string{"/"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	host, path, r := []byte("shop.test"), []byte("/sale/.well-known/a.png"), &Readings{text: make([]byte, 0, 256)}
	odd := []byte("/x/..//Sale/%41;b")
	if n := testing.AllocsPerRun(100, func() {
		tab.Locate(host, path, r)
		tab.Locate(host, odd, r)
		tab.Knows(host)
		tab.Serves(0, host)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
