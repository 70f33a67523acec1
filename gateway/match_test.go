package gateway

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

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
	p, _ := tab.locate([]byte(host), []byte(path), nil)
	switch {
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
		stillRoom("any", 5, []string{"*"}, []string{"/any"}),
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
		{"shop.test", "//sale", "sale"},
		{"shop.test", "/./sale", "sale"},
		{"shop.test", "/sale/.", "sale"},
		{"shop.test", "/%73ale", "sale"},
		{"shop.test", "/%2e/sale", "sale"},
		{"shop.test", "/x/../sale", "sale"},
		{"shop.test", "/x/%2E%2e/sale", "sale"},
		{"shop.test", "/../../sale", "sale"},
		{"shop.test", "/x%2f..%2fsale", "sale"},
		{"shop.test", "/x%5c..%5csale", "sale"},
		{"shop.test", `/x\..\sale`, "sale"},
		{"shop.test", "/sale%00.png", "sale"},
		{"shop.test", "/sale%2fvip", "vip"},
		{"shop.test", "/x/..;a=b/sale", "sale"},
		{"shop.test", "/sale;a/vip", "vip"},
		{"shop.test", "/sale%3ba/vip", "vip"},
		{"shop.test", "/x/..;/sale/a/..%3b/..%3b/..%3b/", "sale"}, // servers that cut parameters off before they decode
		{"shop.test", "/a;x/../sale", "sale"},
		{"shop.test", "/angebot", "sale"},
		{"shop.test", "/%2573ale", "all"}, // decoded once
		{"shop.test", "/sale/../about", "all"},
		{"a.shop.test", "/sale", "wild"},
		{"a.eu.shop.test", "/sale", "deep"},
		{"a.shop.test", "/any", "any"},
		{"a.shop.test", "/other", ""},
		{"re.test", "/item/42", "regex"},
		{"re.test", "/ITEM/42", "regex"},
		{"re.test", "/item/42/x", ""},
		{"re.test", "/buy", "regex"},
		{"else.test", "/any/x", "any"},
		{"else.test", "/", ""},
		{"shop.test", "/.waiting-room/sale/status", "ours:/sale/status"},
		{"shop.test", "/.waiting-room", "ours:"},
		{"shop.test", "//.waiting-room/sale", "ours:/sale"},
		{"shop.test", "/a/../.Waiting-Room/sale", "ours:/sale"},
		{"shop.test", "/%2ewaiting-room/sale", "ours:/sale"},
		{"shop.test", "/.waiting-roomy", "all"},
	} {
		if got := found(t, tab, row.host, row.path); got != row.want {
			t.Errorf("%s%s: %q, want %q", row.host, row.path, got, row.want)
		}
	}
	if tab.knows([]byte("x.test")) != true {
		t.Error("a room over * knows every host")
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
		{[]string{"*"}, []string{"~("}, "rooms.x.paths: \"~(\": error parsing regexp: missing closing ): `(?i)(`"},
		{[]string{"*"}, []string{"/taken/"}, `rooms.x.paths: "/taken/": room other has this path too; give one of them another path or host`},
	} {
		_, err := newTable([]*room{stillRoom("other", 1, []string{"*"}, []string{"/TAKEN"}), stillRoom("x", 1, row.hosts, row.paths)})
		if err == nil || err.Error() != row.want {
			t.Errorf("%v %v: %v", row.hosts, row.paths, err)
		}
	}
}

// spell writes a path in another way that some server takes for the same.
func spell(t *rapid.T, path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch kind := rapid.IntRange(0, 11).Draw(t, "spelling"); {
		case c == '/' && kind == 0:
			b.WriteString("//")
		case c == '/' && kind == 1:
			b.WriteString("/./")
		case c == '/' && kind == 2:
			b.WriteString("/x/../")
		case c == '/' && kind == 3:
			b.WriteString("/%2e/")
		case c == '/' && kind == 4:
			b.WriteString("/a/b/%2E./..//")
		case c == '/' && kind == 5 && i > 0:
			b.WriteString("%2f")
		case c == '/' && kind == 6 && i > 0:
			b.WriteString(`%5C`)
		case c == '/' && kind == 7 && i > 0:
			b.WriteString(";p=1/")
		case c == '/' && kind == 8:
			b.WriteString("/x/..;y/")
		case c != '/' && kind < 3:
			fmt.Fprintf(&b, "%%%02x", c)
		case c != '/' && kind < 5:
			b.WriteString(strings.ToUpper(string(c)))
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + rapid.SampledFrom([]string{"", "/", "/more", ";p", "%00", "%00.css", "/.", "/x/..", "?q", "//"}).Draw(t, "tail")
}

// No spelling of a gated path dodges its room.
func TestNoSpellingDodges(t *testing.T) {
	tab, err := newTable([]*room{
		stillRoom("all", 50, []string{"*"}, []string{"/"}), stillRoom("sale", 5, []string{"*"}, []string{"/shop/sale"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		target := spell(t, "/shop/sale")
		p, _ := tab.locate([]byte("shop.test"), pathOf([]byte(target)), nil)
		if p.room == nil || p.room.id != "sale" {
			t.Fatalf("%s: %+v", target, p)
		}
	})
}

// servers are how those behind a gateway come to the path that they serve. All resolve dots in the end: one that serves
// /sale/.. below /sale does not read paths as a room's prefix does.
var servers = map[string]func(string) string{
	"resolves, decodes, resolves": func(p string) string { return path.Clean(strings.ToLower(unescaped(path.Clean("/" + p)))) },
	"decodes, then resolves":      func(p string) string { return path.Clean("/" + strings.ToLower(unescaped(p))) },
	"takes backslashes for slashes": func(p string) string {
		return path.Clean("/" + strings.ReplaceAll(strings.ToLower(unescaped(p)), `\`, "/"))
	},
	"drops parameters": func(p string) string {
		segments := strings.Split(p, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		return path.Clean("/" + strings.ToLower(unescaped(strings.Join(segments, "/"))))
	},
	"ends at NUL": func(p string) string {
		p, _, _ = strings.Cut(unescaped(p), "\x00")
		return path.Clean("/" + strings.ToLower(p))
	},
}

// unescaped decodes what can be decoded.
func unescaped(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if c, ok := unhex([]byte(p[i:])); ok {
			b.WriteByte(c)
			i += 2
		} else {
			b.WriteByte(p[i])
		}
	}
	return b.String()
}

func FuzzLocate(f *testing.F) {
	for _, s := range []string{"/", "/sale", "//sale", "/%73ale", "/x/../sale", `/x\..\sale`, "/%2e%2e/%00", "/.waiting-room/x", "/a;b/c", "http://h/p?q", "/%", "/%f", "/ÄÖ", "/\u212a", "/sale%2f..", "/x%2f..%2fsale", "/;a/../sale", "/sale;x/..;/y", "/%2e%2e%5csale%00", "/sale%3bx", "/x/..%3b/sale"} {
		f.Add(s)
	}
	tab, err := newTable([]*room{
		stillRoom("all", 50, []string{"*"}, []string{"/"}), stillRoom("sale", 5, []string{"*"}, []string{"/sale"}),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target string) {
		sent := pathOf([]byte(target))
		p, _ := tab.locate([]byte("h"), sent, nil)
		if !p.ours && p.room == nil {
			t.Fatalf("%q: the root's room does not hold it", target)
		}
		plain := string(appendReading(nil, sent, 0))
		if again := string(appendReading(nil, []byte(strings.ReplaceAll(plain, "%", "%25")), 0)); again != plain {
			t.Fatalf("%q: read %q, and again %q", target, plain, again)
		}
		if clean, _ := inspect(sent); clean && plain != string(sent) {
			t.Fatalf("%q counts as its own reading, but reads %q", target, plain)
		}
		for how, read := range servers {
			if target[:min(1, len(target))] != "/" || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r > '~' }) {
				break // no such target is let in
			}
			if path := read(string(sent)); (path == "/sale" || strings.HasPrefix(path, "/sale/")) && !p.ours && p.room.id != "sale" {
				t.Fatalf("%q: a server that %s reads %s, but it goes to room %s", target, how, path, p.room.id)
			}
		}
		for segment := range strings.SplitSeq(plain[1:], "/") {
			if segment == "." || segment == ".." {
				t.Fatalf("%q reads %q", target, plain)
			}
		}
	})
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

func TestLocateAllocatesNothing(t *testing.T) {
	tab, err := newTable([]*room{stillRoom("sale", 5, []string{"shop.test"}, []string{"/sale"})})
	if err != nil {
		t.Fatal(err)
	}
	host, path, scratch := []byte("shop.test"), []byte("/sale/.well-known/a.png"), make([]byte, 0, 256)
	odd := []byte("/x/..//Sale/%41;b")
	if n := testing.AllocsPerRun(100, func() {
		tab.locate(host, path, scratch)
		tab.locate(host, odd, scratch)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
