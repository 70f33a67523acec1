package gateway

import (
	"regexp"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission"
)

// still is a line that is only looked at.
type still struct {
	line
	snapshot admission.Snapshot
}

func (s *still) Snapshot() *admission.Snapshot { return &s.snapshot }

func stillRoom(id string, rate int64, hosts, paths []string) *room {
	s := &still{snapshot: admission.Snapshot{Policy: admission.Policy{Enabled: true, Method: admission.FIFO, Rate: rate}}}
	return &room{id: id, line: s, options: Room{ID: id, Hosts: hosts, Paths: paths}}
}

func found(t testing.TB, tab *table, host, path string) string {
	t.Helper()
	p := tab.locate([]byte(host), []byte(path), new(readings))
	switch {
	case p.unclear == twoRooms:
		return "two rooms"
	case p.unclear == tooMany:
		return "too many"
	case p.ours:
		return "ours:" + string(p.own)
	case p.room == nil:
		return ""
	}
	return p.room.id
}

func TestMatch(t *testing.T) {
	rooms := []*room{
		stillRoom("all", 9, []string{"shop.test"}, []string{"/"}),
		stillRoom("sale", 5, []string{"shop.test"}, []string{"/sale", "/Angebot"}),
		stillRoom("vip", 1, []string{"shop.test"}, []string{"/sale/vip"}),
		stillRoom("wild", 5, []string{"*.shop.test"}, []string{"/sale"}),
		stillRoom("deep", 5, []string{"*.eu.shop.test"}, []string{"/sale"}),
		stillRoom("regex", 5, []string{"re.test"}, []string{`~^/item/\d+$`, "/buy"}),
		stillRoom("any", 5, []string{"*.test"}, []string{"/any"}),
		stillRoom("one", 5, []string{"one.example"}, []string{"/sale", "/buy"}),
	}
	tab, err := newTable(rooms)
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
		{"shop.test", "/sale;a/vip", "vip"}, // apart by ; alone: without parameters
		{"shop.test", "/sale%0a", "sale"},
		// Where servers would disagree about the room, none is chosen.
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
		// Where there is one room, any reading that leads to it holds.
		{"a.shop.test", "/x/../sale", "wild"},
		{"a.shop.test", "/sale/../x", "wild"},
		{"a.shop.test", "//host/sale", "wild"},
		{"a.shop.test", "/%73ale", "wild"},
		{"a.shop.test", "/sale%2fx", "wild"},
		{"a.shop.test", "/sales/../x", ""},
		{"one.example", "//h%2f..%5cx;a/%00/../b", "one"}, // more readings than are tried
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
		{"shop.test", "/.waiting-room/sale/status", "ours:/sale/status"},
		{"shop.test", "/.waiting-room", "ours:"},
		{"shop.test", "//.waiting-room/sale", "ours:/sale"},
		{"shop.test", "/x;/..%2f.waiting-room", "ours:"},
		{"shop.test", "/a/../.Waiting-Room/sale", "ours:/sale"},
		{"shop.test", "/%2ewaiting-room/sale", "ours:/sale"},
		{"shop.test", "/.waiting-roomy", "all"},
	} {
		if got := found(t, tab, row.host, row.path); got != row.want {
			t.Errorf("%s%s: %q, want %q", row.host, row.path, got, row.want)
		}
	}
	if !tab.knows([]byte("x.test")) || tab.knows([]byte("x.example")) {
		t.Error("knows")
	}
	if !tab.serves(rooms[3], []byte("a.shop.test")) || tab.serves(rooms[1], []byte("a.shop.test")) {
		t.Error("serves")
	}
}

func TestMatchRefuses(t *testing.T) {
	for _, row := range []struct {
		hosts, paths []string
		want         string
	}{
		{[]string{"a*b"}, []string{"/"}, `rooms.x.hosts: "a*b": give a host name, one with a leading wildcard (*.example.com), or *`},
		{[]string{"*"}, []string{"sale"}, `rooms.x.paths: "sale": a path begins with / and a regular expression with ~`},
		{[]string{"*"}, []string{"~("}, "rooms.x.paths: \"~(\": error parsing regexp: missing closing ): `(`"},
		{[]string{"*"}, []string{"/taken/"}, `rooms.x.paths: "/taken/": room other has this path too; give one of them another path or host`},
	} {
		_, err := newTable([]*room{stillRoom("other", 1, []string{"*"}, []string{"/TAKEN"}), stillRoom("x", 1, row.hosts, row.paths)})
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
		if got, _ := hostName(host, nil); string(got) != want || string(host) != in {
			t.Errorf("%q: %q, and the header became %q", in, got, host)
		}
	}
}

func TestLocate_PatternSeesOneKilobyte(t *testing.T) {
	tab, err := newTable([]*room{
		stillRoom("all", 5, []string{"two.test"}, []string{"/"}), stillRoom("sale", 5, []string{"one.test", "two.test"}, []string{"~/sale$"}),
		stillRoom("plain", 5, []string{"plain.test"}, []string{"/plain"}), stillRoom("other", 5, []string{"plain.test"}, []string{"/"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	long := func(n int, tail string) string { return "/" + strings.Repeat("x", n-1-len(tail)) + tail }
	for _, row := range []struct{ host, path, want string }{
		{"two.test", long(patternMost, ""), "all"},
		{"two.test", long(patternMost, "/sale"), "sale"},
		{"two.test", long(patternMost+1, ""), "too many"},
		{"one.test", long(patternMost, ""), ""},
		{"one.test", long(patternMost+1, ""), "sale"},
		{"two.test", long(patternMost/2, ";"), "all"}, // twice half of it
		{"two.test", long(patternMost/2+2, ";"), "too many"},
		{"plain.test", long(8<<10, ""), "other"},
	} {
		if got := found(t, tab, row.host, row.path); got != row.want {
			t.Errorf("%s, %d bytes: %q, want %q", row.host, len(row.path), got, row.want)
		}
	}
}

func TestLocateAllocatesNothing(t *testing.T) {
	tab, err := newTable([]*room{
		stillRoom("sale", 5, []string{"shop.test"}, []string{"/sale"}), stillRoom("wild", 5, []string{"*.test"}, []string{"/"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	host, path, r := []byte("shop.test"), []byte("/sale/.well-known/a.png"), &readings{text: make([]byte, 0, 256)}
	odd := []byte("/x/..//Sale/%41;b")
	if n := testing.AllocsPerRun(100, func() {
		tab.locate(host, path, r)
		tab.locate(host, odd, r)
		tab.knows(host)
		tab.serves(nil, host)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
