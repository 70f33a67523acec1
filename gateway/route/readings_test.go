package route

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func readingsOf(path string) *Readings {
	r := &Readings{}
	r.Set([]byte(path))
	return r
}

func TestReadings(t *testing.T) {
	for _, row := range []struct {
		path string
		want []string
	}{
		{"", []string{"/"}},
		{"*", []string{"/*"}},
		{"/a/b.c/.d/..e/...", []string{"/a/b.c/.d/..e/..."}},
		{"/Stra%C3%9fe", []string{"/straße"}},
		{"/%C5%BFale/\u212a", []string{"/sale/k"}},
		{"/a%2Eb%20c", []string{"/a.b c"}},
		{"/100%25/%", []string{"/100%25/%25"}},
		{"/%73ale", []string{"/sale", "/%73ale"}},
		{"/a/../b", []string{"/a/../b", "/b"}},
		{"/a/%2E%2e/b", []string{"/a/%2e%2e/b", "/a/../b", "/b"}},
		{"//h/b", []string{"//h/b", "/b", "/h/b"}},
		{"/a//b", []string{"/a//b", "/a/b"}},
		{"/a//../b", []string{"/a//../b", "/a/../b", "/a/b", "/b"}},
		{"/a;v/b", []string{"/a;v/b", "/a/b"}},
		{"/a/..;v/b", []string{"/a/..;v/b", "/a/../b", "/b"}},
		{"/a%3bv", []string{"/a%3bv", "/a"}},
		{"/a%2Fb", []string{"/a%2fb", "/a/b"}},
		{"/a%2f..", []string{"/a%2f..", "/a/..", "/"}},
		{`/a%5cb\c`, []string{"/a%5cb%5cc", "/a/b/c"}},
		{"/a%00b", []string{"/a%00b", "/a"}},
		{"/%u0073%u002f%uzzzz", []string{"/%25u0073%25u002f%25uzzzz", "/s%2f%25uzzzz", "/s/%25uzzzz"}},
	} {
		if got := readingsOf(row.path); !slices.Equal(got.List(), row.want) || got.many {
			t.Errorf("%s: %q, many %v, want %q", row.path, got.List(), got.many, row.want)
		}
	}
	long := "/" + strings.Repeat("A", readLengthMax)
	if r := readingsOf(long); r.many || r.n != 1 {
		t.Errorf("a long path: %d, many %v", r.n, r.many)
	}
	for _, path := range []string{"//h//a/../b;c", "/a%2fb%5cc;d%00/../e", long + ";", long + "%41"} {
		if r := readingsOf(path); !r.many || r.n > readingsMax {
			t.Errorf("%s: %q", path, r.List())
		}
	}
}

func TestAppendResolved(t *testing.T) {
	for path, want := range map[string]string{
		"/": "/", "": "/", "//": "/", "/a": "/a", "/a/": "/a/", "//evil.example/x": "/evil.example/x", "///a//b//": "/a/b/",
		"/a/../b": "/b", "/a/..": "/", "/a/.": "/a/", "/../../a": "/a", "/a/b/../../../c/./d": "/c/d",
		"/a/%2e%2E/B": "/B", "/a/.%2e;v=1/b": "/b", "/a;v=1/%2F/..%2f": "/a;v=1/%2F/..%2f", "/.//..//evil": "/evil",
	} {
		if got := string(AppendResolved(nil, []byte(path))); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// handlers are models of servers behind a gateway: each function returns the path by which that server chooses a handler.
var handlers = map[string]func(string) string{
	"Express":                     func(p string) string { return p },
	"Node's new URL":              func(p string) string { return browserPath(withoutHost(p)) },
	"Python's urlsplit":           func(p string) string { return unescaped(urlsplit(p)) },
	"Flask":                       func(p string) string { return merge(unescaped(p)) },
	"Django":                      func(p string) string { return unescaped(p) },
	"Tomcat":                      func(p string) string { return path.Clean("/" + unescaped(cutParameters(p))) },
	"decodes, resolves":           func(p string) string { return path.Clean("/" + unescaped(p)) },
	"resolves, decodes":           func(p string) string { return unescaped(browserPath(p)) },
	"resolves, decodes, resolves": func(p string) string { return path.Clean("/" + unescaped(path.Clean(p))) },
	"decodes, cuts parameters":    func(p string) string { return path.Clean("/" + cutParameters(unescaped(p))) },
	"backslashes are slashes":     func(p string) string { return path.Clean("/" + strings.ReplaceAll(unescaped(p), `\`, "/")) },
	"ends at NUL":                 func(p string) string { p, _, _ = strings.Cut(unescaped(p), "\x00"); return path.Clean("/" + p) },
	"IIS": func(p string) string {
		for c := 'a'; c <= 'z'; c++ {
			p = strings.ReplaceAll(p, fmt.Sprintf("%%u%04x", c), string(c))
		}
		return path.Clean("/" + strings.ReplaceAll(unescaped(p), `\`, "/"))
	},
}

// browserPath resolves dot segments, also escaped ones, as browsers do (https://url.spec.whatwg.org). An empty segment counts as a
// segment.
func browserPath(p string) string {
	var out []string
	segments := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			out = out[:max(0, len(out)-1)]
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}

// withoutHost reads a path that begins with several slashes as a host and a path.
func withoutHost(p string) string {
	if !strings.HasPrefix(p, "//") {
		return p
	}
	_, rest, _ := strings.Cut(strings.TrimLeft(p, "/"), "/")
	return "/" + rest
}

// urlsplit reads a path like Python's urlsplit: the host, which may be empty, ends at the next slash.
func urlsplit(p string) string {
	if !strings.HasPrefix(p, "//") {
		return p
	}
	_, rest, _ := strings.Cut(p[2:], "/")
	return "/" + rest
}

func merge(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

func cutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// unescaped decodes all valid escapes.
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

// runsSale reports whether a server that handles a path by its prefix runs the handler of the sale.
func runsSale(handled string) bool {
	handled = strings.ToLower(handled)
	return handled == "/sale" || strings.HasPrefix(handled, "/sale/")
}

// A path that any server handles below /sale never leads to no room, to another room or through a bypass rule.
func TestReadings_OfServers(t *testing.T) {
	tables := saleTables(t)
	for _, path := range []string{
		"/sale", "/sale/buy", "/SALE/buy", "/sale/", "/sale/.", "/sale;v=1/buy", "/%73ale", "/sale%2fbuy", "/sale%5cbuy", "/sale%00.png",
		"/sale/buy/../../x", "/sale/buy/%2e%2e/%2e%2e/x", "/sale/../x", "/sale/buy/../../static/x", "/sale/buy//../../static/x",
		"/static/../sale", "/static/%2e%2e/sale", "/static/..%2fsale", "/static%2f..%2fsale", "/static/..;/sale/buy", "/static/..;a=b/sale",
		"/static;/..;/sale", "/static/%2e%2e%5csale", "/static/a/p%2fq/../..%2f..%2fsale", "/static/.//..//sale", "/static//../sale", "/static/x%2f../../sale",
		"//h/sale", "///h/sale/buy", "//sale", "//static/sale", "//static/x/../sale", "/static/../sale%2f../../static/x", "//h//sale", "///sale",
		"/a/%2e%2e/sale/%2e%2e/../static", "/%u0073ale/buy", "/static/%u002e%u002e/sale", "/sale%2f..%2fstatic/x", "/static/..%2f/h/sale",
	} {
		for how, read := range handlers {
			if handled := read(path); runsSale(handled) {
				heldBack(t, tables, path, fmt.Sprintf("%s handles %s", how, handled))
			}
		}
	}
}

type saleTable struct {
	*Table
	rules []Rule
}

// saleTables are ways to protect /sale: alone, beside a room for all paths, by a pattern, and by a room for all paths with a bypass
// for /static.
func saleTables(t testing.TB) map[string]saleTable {
	tables := map[string]saleTable{}
	for name, rules := range map[string][]Rule{
		"alone":             {rule("sale", []string{"*"}, []string{"/sale"})},
		"beside others":     {rule("all", []string{"*"}, []string{"/"}), rule("sale", []string{"*"}, []string{"/sale"})},
		"by a pattern":      {rule("all", []string{"*"}, []string{"/"}), rule("sale", []string{"*"}, []string{"~^/sale([/;%]|[[:cntrl:]]|$)"})},
		"beside a free one": {rule("sale", []string{"*"}, []string{"/"})},
	} {
		tab, err := New(rules)
		if err != nil {
			t.Fatal(err)
		}
		tables[name] = saleTable{tab, rules}
	}
	return tables
}

var staticFree = func() Bypass {
	rules, err := NewBypass([]BypassRule{{Paths: []string{"/static"}}})
	if err != nil {
		panic(err)
	}
	return rules[0]
}()

type failer interface {
	Helper()
	Errorf(string, ...any)
}

// heldBack fails if a path leads anywhere else than to the room of the sale.
func heldBack(t failer, tables map[string]saleTable, path, why string) {
	t.Helper()
	for name, tab := range tables {
		var r Readings
		p := tab.Locate([]byte("h"), []byte(path), &r)
		if p.Kind != ToRoom && p.Kind != ToOrigin {
			continue
		}
		if p.Kind == ToOrigin || tab.rules[p.Room].Room != "sale" {
			t.Errorf("%s: %s, but the room %s is passed by as %+v", path, why, name, p)
		}
		if staticFree.paths.bypasses(&r) {
			t.Errorf("%s: %s, but a bypass of /static lets it past", path, why)
		}
	}
}

// drawPath draws a path of pieces that servers read in different ways.
func drawPath(t *rapid.T) string {
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
		"/", "/", "/", "sale", "sale", "static", "buy", "h", "..", ".", "%2e", "%2e%2e", "%2f", "%5c", ";", ";a=b", "%3b", "%00", "%73ale", "Sale", "%u0073", "%u002f", "%25", "\n",
	}), 1, 9).Draw(t, "pieces")
	return "/" + strings.Join(pieces, "")
}

// A path that a server reads as below /sale, after any steps in any order, leads only to the room of the sale.
func TestReadings_OfAnyServer(t *testing.T) {
	tables := saleTables(t)
	does := map[string]func(string) string{
		"decode": unescaped, "merge": merge, "cut parameters": cutParameters, "urlsplit": urlsplit, "new URL": func(p string) string { return browserPath(withoutHost(p)) },
		"resolve": browserPath, "clean": path.Clean, "lower": strings.ToLower,
		"backslash": func(p string) string { return strings.ReplaceAll(p, `\`, "/") },
		"NUL":       func(p string) string { p, _, _ = strings.Cut(p, "\x00"); return "/" + strings.TrimPrefix(p, "/") },
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range does {
			if !yield(name) {
				return
			}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		sent := drawPath(t)
		server := rapid.SliceOfN(rapid.SampledFrom(names), 0, 5).Draw(t, "server")
		handled, decoded := sent, false
		for _, name := range server {
			if name == "decode" && decoded { // once
				continue
			}
			decoded = decoded || name == "decode"
			handled = does[name](handled)
		}
		if runsSale(handled) {
			heldBack(t, tables, sent, fmt.Sprintf("a server that does %s handles %q", server, handled))
		}
	})
}

func FuzzLocate(f *testing.F) {
	for _, s := range []string{"/", "/sale", "//sale", "/%73ale", "/x/../sale", `/x\..\sale`, "/%2e%2e/%00", "/.waiting-room/x", "/a;b/c", "http://h/p?q", "/%", "/%f", "/ÄÖ", "/\u212a", "/sale%2f..", "/x%2f..%2fsale", "/;a/../sale", "/sale;x/..;/y", "/%2e%2e%5csale%00", "/sale%3bx", "/x/..%3b/sale", "//h/sale", "/static/../sale", "/%u0073ale"} {
		f.Add(s)
	}
	tables := saleTables(f)
	f.Fuzz(func(t *testing.T, target string) {
		sent := PathOf([]byte(target))
		r := readingsOf(string(sent))
		if p := tables["beside others"].Locate([]byte("h"), sent, new(Readings)); p.Kind == ToOrigin {
			t.Fatalf("%q: the root's room does not hold it", target)
		}
		seen := map[string]bool{}
		for _, s := range r.List() {
			if seen[s] || !strings.HasPrefix(s, "/") {
				t.Fatalf("%q reads %q", target, r.List())
			}
			seen[s] = true
		}
		if plain, _ := inspect(sent); plain && string(normalize(nil, sent, false)) != string(sent) {
			t.Fatalf("%q counts as its own reading, but reads %q", target, r.List())
		}
		if resolved := AppendResolved(nil, sent); resolved[0] != '/' || len(resolved) > 1 && resolved[1] == '/' || !bytes.Equal(AppendResolved(nil, resolved), resolved) {
			t.Fatalf("%q resolves to %q, and that to %q", target, resolved, AppendResolved(nil, resolved))
		}
		if target[:min(1, len(target))] != "/" || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return // such a target is refused earlier
		}
		if u, err := url.Parse("http://shop.test" + string(AppendResolved(nil, sent))); err == nil && u.Host != "shop.test" {
			t.Fatalf("%q redirects to another host: %s", target, u)
		}
		for how, read := range handlers {
			if handled := read(string(sent)); runsSale(handled) {
				heldBack(t, tables, string(sent), how+" handles "+handled)
			}
		}
	})
}
