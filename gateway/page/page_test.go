package page

import (
	"bytes"
	"html/template"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/net/html"
	"pgregory.net/rapid"
)

var options = Options{Room: "sale", Title: "Harbour Hall", Absence: 10 * time.Minute}

func mustNew(t testing.TB, o Options) *Page {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// document is the parsed page: the text of each element with an id, and main's data attributes.
type document struct {
	title, lang, dir, reload string
	texts, data              map[string]string
	elements                 []string
}

func parse(t testing.TB, page []byte) document {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	d := document{texts: map[string]string{}, data: map[string]string{}}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		d.elements = append(d.elements, n.Data)
		text := ""
		if n.FirstChild != nil && n.FirstChild.Type == html.TextNode {
			text = n.FirstChild.Data
		}
		switch n.Data {
		case "title":
			d.title = text
		case "noscript":
			if _, after, ok := strings.Cut(text, `http-equiv="refresh" content="`); ok {
				d.reload, _, _ = strings.Cut(after, `"`)
			}
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				d.texts[a.Val] = text
			case strings.HasPrefix(a.Key, "data-"):
				d.data[a.Key[5:]] = a.Val
			case n.Data == "html" && a.Key == "lang":
				d.lang = a.Val
			case n.Data == "html" && a.Key == "dir":
				d.dir = a.Val
			}
		}
	}
	return d
}

func TestPage_ShowsView(t *testing.T) {
	p := mustNew(t, options)
	const joined = "2026-01-02T03:04:05.000000Z"
	for _, row := range []struct {
		name  string
		view  View
		title string
		want  map[string]string // text by id; an id that is left out may say anything
	}{
		{"waiting", View{State: "waiting", Position: 1234, Ahead: 1233, Waiting: 50210, ETAKnown: true, ETASeconds: 700, ETALow: 610, ETAHigh: 880, JoinedAt: joined},
			"1,234 in the queue · Harbour Hall",
			map[string]string{"heading": "You are in the queue", "place": "1,234", "ahead": "1,233 people ahead of you", "waiting": "50,210", "wait": "about 10 to 15 minutes",
				"note": "", "paused": "", "message": "", "opens": "", "keep": "You can close this tab. Your place is kept for 10 minutes."}},
		{"one ahead", View{State: "waiting", Position: 2, Ahead: 1}, "2 in the queue · Harbour Hall", map[string]string{"ahead": "1 person ahead of you", "wait": "Not known yet", "waiting": "2"}},
		{"next", View{State: "waiting", Position: 1, Waiting: 8, ETAKnown: true, ETASeconds: 5}, "1 in the queue · Harbour Hall", map[string]string{"ahead": "You are next", "wait": "less than a minute"}},
		{"position unknown", View{State: "waiting"}, "You are in the queue · Harbour Hall", map[string]string{"place": "…", "ahead": "", "waiting": ""}},
		{"state unknown", View{State: "lapsed", Position: 3, Ahead: 2}, "3 in the queue · Harbour Hall", map[string]string{"heading": "You are in the queue", "place": "3"}},
		{"paused, message", View{State: "waiting", Position: 5, Ahead: 4, Paused: true, Message: "Hall 2"}, "5 in the queue · Harbour Hall",
			map[string]string{"paused": "Entry is paused for a moment. Your place is safe.", "message": "Hall 2"}},
		{"prequeue", View{State: "prequeue", OpensAt: "2026-03-02T10:00:00.000000+01:00"}, "Not open yet · Harbour Hall", map[string]string{"opens": "Opens 2026-03-02 09:00 UTC", "place": ""}},
		{"prequeue, no time", View{State: "prequeue", OpensAt: "soon"}, "Not open yet · Harbour Hall", map[string]string{"opens": ""}},
		{"expired late", View{State: "expired", Reason: "late", Position: 9, Ahead: 8}, "9 in the queue · Harbour Hall",
			map[string]string{"heading": "You are in the queue", "place": "9", "note": "We had not heard from you for too long, so your place was lost. You have been given a new place."}},
		{"expired lapsed", View{State: "expired", Reason: "lapsed"}, "You are in the queue · Harbour Hall", map[string]string{"note": "Your turn came while you were away and has passed. You have been given a new place."}},
		{"expired, a key that is no reason", View{State: "expired", Reason: "site"}, "You are in the queue · Harbour Hall",
			map[string]string{"note": "We had not heard from you for too long, so your place was lost. You have been given a new place."}},
		{"closed", View{State: "rejected", Reason: "closed"}, "Closed for now · Harbour Hall", map[string]string{"heading": "Closed for now", "place": ""}},
		{"draining", View{State: "rejected", Reason: "draining"}, "No new visitors right now · Harbour Hall", nil},
		{"full", View{State: "rejected", Reason: "full"}, "The queue is full · Harbour Hall", nil},
		{"rejected, no reason", View{State: "rejected"}, "Closed for now · Harbour Hall", nil},
		{"admitted", View{State: "admitted"}, "It is your turn · Harbour Hall", map[string]string{"heading": "It is your turn", "place": ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := parse(t, p.Append(nil, &row.view))
			if d.title != row.title {
				t.Errorf("title %q, want %q", d.title, row.title)
			}
			for id, want := range row.want {
				if d.texts[id] != want {
					t.Errorf("%s says %q, want %q", id, d.texts[id], want)
				}
			}
		})
	}
	d := parse(t, p.Append(nil, &View{State: "waiting", Position: 1234, Ahead: 1233, RefreshAfter: 12, JoinedAt: joined}))
	for key, want := range map[string]string{"room": "sale", "site": "Harbour Hall", "absence": "600", "state": "waiting", "place": "1234", "joined": joined, "refresh": "12"} {
		if d.data[key] != want {
			t.Errorf("data-%s is %q, want %q", key, d.data[key], want)
		}
	}
}

func TestPage_ReloadsWithoutScript(t *testing.T) {
	p := mustNew(t, options)
	for refresh, want := range map[int]string{0: "10", 2: "10", 45: "45"} {
		if d := parse(t, p.Append(nil, &View{RefreshAfter: refresh})); d.reload != want {
			t.Errorf("refresh after %d s: reloads after %q s, want %s", refresh, d.reload, want)
		}
	}
}

func TestPage_AppendKeepsPrefix(t *testing.T) {
	p := mustNew(t, options)
	got := p.Append([]byte("before "), &View{State: "waiting"})
	if !bytes.HasPrefix(got, []byte("before <!doctype html>")) {
		t.Errorf("%.40q", got)
	}
}

func TestPage_NegotiatesLanguage(t *testing.T) {
	p := mustNew(t, options)
	korean := mustNew(t, Options{Room: "sale", Languages: []string{"ko", "en"}, Absence: time.Hour})
	for _, row := range []struct {
		header     string
		want       string
		wantKorean string // with Korean as the default
	}{
		{"", "en", "ko"},
		{"ko", "ko", "ko"},
		{"ko-KR,ko;q=0.9,en-US;q=0.8", "ko", "ko"},
		{"en-GB", "en", "en"},
		{"fr-FR,fr;q=0.9", "en", "ko"},
		{"fr,ko;q=0.5,en;q=0.1", "ko", "ko"},
		{"en;q=0.2,ko;q=0.9", "ko", "ko"},
		{"*", "en", "ko"},
		{"not a header at all", "en", "ko"},
		{"ko;q=1.0.0.0", "en", "ko"},
		{strings.Repeat("ko,", 1000), "en", "ko"},
	} {
		for range 2 { // asked and remembered
			if got := parse(t, p.Append(nil, &View{AcceptLanguage: row.header})).lang; got != row.want {
				t.Errorf("%.40q: %s, want %s", row.header, got, row.want)
			}
			if got := parse(t, korean.Append(nil, &View{AcceptLanguage: row.header})).lang; got != row.wantKorean {
				t.Errorf("%.40q with Korean first: %s, want %s", row.header, got, row.wantKorean)
			}
		}
	}
	for i := range 3 * maxKnown {
		p.Append(nil, &View{AcceptLanguage: "ko;q=0." + strings.Repeat("1", i%3+1) + ",x-" + time.Unix(int64(i), 0).Format("150405")})
	}
	if n := len(p.negotiator.known); n > maxKnown {
		t.Errorf("%d headers remembered, want at most %d", n, maxKnown)
	}
}

// hostile are strings that break a page if any is inserted unescaped.
var hostile = []string{
	`<script>alert(1)</script>`, `</title><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
	`" autofocus onfocus="alert(1)`, `</script><script>alert(1)</script>`, `<!--<script>`, `]]><svg/onload=alert(1)>`, `&lt;b&gt;`, `{{.Site}}`,
	"a\x00b<", "\xff\xfe<script>", "zSLOT03z", "zSLOTzz03z", "\u2028<b>", `javascript:alert(1)`, `</noscript><script>alert(1)</script>`, `+ADw-script+AD4-`,
	`</style><script>alert(1)</script>`, `{t}{n}{site}`,
}

func TestPage_EscapesText(t *testing.T) {
	want := parse(t, mustNew(t, options).Append(nil, &View{State: "waiting"})).elements
	for _, attack := range hostile {
		checkInert(t, attack, want)
	}
}

func FuzzPage_EscapesText(f *testing.F) {
	for _, attack := range hostile {
		f.Add(attack)
	}
	want := parse(f, mustNew(f, options).Append(nil, &View{State: "waiting"})).elements
	f.Fuzz(func(t *testing.T, attack string) { checkInert(t, attack, want) })
}

// checkInert puts the attack in each place for outside text. The page must keep its elements, show the text as it is, and
// keep the inline script and style that the policy names.
func checkInert(t *testing.T, attack string, elements []string) {
	t.Helper()
	p := mustNew(t, Options{Room: "sale", Title: attack, Absence: time.Hour})
	for _, state := range []string{"waiting", "expired", "prequeue", "rejected", attack} {
		page := p.Append(nil, &View{State: state, Reason: attack, Position: 3, Ahead: 2, Message: attack, JoinedAt: attack, OpensAt: attack, AcceptLanguage: attack})
		d := parse(t, page)
		if !slices.Equal(d.elements, elements) {
			t.Fatalf("%q became elements: %v", attack, d.elements)
		}
		if got, want := d.texts["message"], parsed(attack); got != want {
			t.Fatalf("the message %q reads %q", want, got)
		}
		checkHashes(t, page, p.Header())
	}
	small := ErrorPage(nil, &Error{Status: 400, Title: attack, Detail: attack, Lang: attack})
	if d := parse(t, small); len(d.elements) != len(parse(t, ErrorPage(nil, &Error{Title: "x", Detail: "x"})).elements) || d.texts["lead"] != parsed(attack) {
		t.Fatalf("%q in an error page: %v %q", attack, d.elements, d.texts["lead"])
	}
	checkHashes(t, small, ErrorHeader())
}

// parsed returns a text as an HTML parser reads it.
func parsed(s string) string {
	s = strings.ReplaceAll(clean(s), "\x00", "\uFFFD")
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// checkHashes compares the inline scripts and styles of a page with what its policy allows.
func checkHashes(t *testing.T, page []byte, policy string) {
	t.Helper()
	found := inline{}
	if err := found.add(string(page)); err != nil {
		t.Fatal(err)
	}
	directives := map[string]string{}
	for directive := range strings.SplitSeq(policy, "; ") {
		name, value, _ := strings.Cut(directive, " ")
		directives[name] = value
	}
	if got := strings.Join(found.styles, " "); got != directives["style-src"] {
		t.Fatalf("the styles hash to %s, the policy allows %s", got, directives["style-src"])
	}
	if got := strings.Join(found.scripts, " "); got != strings.TrimSuffix(directives["script-src"], " 'strict-dynamic'") {
		t.Fatalf("the scripts hash to %s, the policy allows %s", got, directives["script-src"])
	}
}

func TestPage_Policy(t *testing.T) {
	want := "default-src 'none'; script-src " + hash(script) + " 'strict-dynamic'; style-src " + hash(style) +
		"; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
	if got := mustNew(t, options).Header(); got != want+"'none'" {
		t.Errorf("got  %s\nwant %s'none'", got, want)
	}
	o := options
	o.FrameAncestors = "'self' https://*.example.com:8443"
	if got := mustNew(t, o).Header(); got != want+o.FrameAncestors {
		t.Errorf("got  %s\nwant %s%s", got, want, o.FrameAncestors)
	}
	for _, bad := range []string{"'self'; script-src *", "a,b", "a\r\nSet-Cookie: x=1", " ", "'self'  x", "'self' ", "é"} {
		o.FrameAncestors = bad
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "page.frame_ancestors") {
			t.Errorf("%q: %v, want an error that names page.frame_ancestors", bad, err)
		}
	}
}

// The spliced page equals the one that html/template renders.
func TestSplice_EqualsTemplate(t *testing.T) {
	structure := template.Must(template.New("").Parse(pageHTML))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostile))
		o := options
		o.Title = text.Draw(t, "title")
		o.Languages = []string{rapid.SampledFrom([]string{"en", "ko"}).Draw(t, "language")}
		p, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		v := View{
			State: rapid.SampledFrom([]string{"waiting", "admitted", "prequeue", "rejected", "expired", "<"}).Draw(t, "state"), Reason: text.Draw(t, "reason"),
			Position: rapid.Int64().Draw(t, "position"), Ahead: rapid.Int64().Draw(t, "ahead"), Waiting: rapid.Int64().Draw(t, "waiting"),
			ETASeconds: rapid.Int64Range(-1, 1e9).Draw(t, "seconds"), ETALow: rapid.Int64Range(-1, 1e9).Draw(t, "low"), ETAHigh: rapid.Int64Range(-1, 1e9).Draw(t, "high"),
			ETAKnown: rapid.Bool().Draw(t, "known"), RefreshAfter: rapid.Int().Draw(t, "refresh"), Message: text.Draw(t, "message"),
			Paused: rapid.Bool().Draw(t, "paused"), JoinedAt: text.Draw(t, "joined"), OpensAt: rapid.SampledFrom([]string{"", "2026-03-02T10:00:00Z", "<"}).Draw(t, "opens"),
		}
		var want strings.Builder
		if err := structure.Execute(&want, p.languages[0].data(&v)); err != nil {
			t.Fatal(err)
		}
		if got := string(p.Append(nil, &v)); got != want.String() {
			t.Fatalf("spliced:\n%s\nby the template:\n%s", got, want.String())
		}
	})
}

// limit is the largest size of a page that arrives in the first flight of a new connection.
const limit = 14 << 10

func TestPage_IsSmall(t *testing.T) {
	o := options
	o.Guard.Script = func(lang string) string { return "/.waiting-room/pow-" + lang + "-0123456789ab.js" }
	p := mustNew(t, o)
	for i := range p.languages {
		e := &p.languages[i]
		for _, v := range samples {
			if n := len(e.splice.append(nil, e.data(&v))); n > limit {
				t.Errorf("%s, %s: %d bytes, want at most %d", e.words.code, v.State, n, limit)
			} else {
				t.Logf("%s, %s: %d bytes", e.words.code, v.State, n)
			}
		}
	}
	if n := len(ErrorPage(nil, &Error{Status: 502, Title: "The site does not answer", Detail: "Please try again in a minute."})); n > limit/2 {
		t.Errorf("the error page has %d bytes", n)
	}
}

func TestPage_SendsNoOutsideRequest(t *testing.T) {
	p := mustNew(t, options)
	page := string(p.Append(nil, &samples[1]))
	for _, no := range []string{"http://", "https://", `="//`, "@import", "url(", " src=", "style=\"", "onclick=\"", "zSLOT"} {
		if strings.Contains(page, no) {
			t.Errorf("the page holds %s", no)
		}
	}
	if strings.Contains(strings.ToLower(script), "</script") || strings.Contains(script, "<!--") || strings.Contains(style, "</") {
		t.Error("the script or the style ends its own element")
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTemplate_IsUsed(t *testing.T) {
	o := options
	o.TemplateFile = write(t, `<!doctype html><html lang="{{.Lang}}"><style>b { color: red }</style><style>{{.Style}}</style>`+
		`<main data-room="{{.Room}}" data-state="{{.State}}"><b id="place">{{.Place}}</b> {{.Text.place}} <i id="message">{{.Message}}</i></main>`+
		`<script type="application/json" id="text">{{.Texts}}</script><script>{{.Script}}</script><script type="module">1</script></html>`)
	p := mustNew(t, o)
	page := string(p.Append(nil, &View{State: "waiting", Position: 12345, Message: "<b>", AcceptLanguage: "ko"}))
	for _, want := range []string{`<html lang="ko">`, `<b id="place">12,345</b> 내 대기 순번 <i id="message">&lt;b&gt;</i>`, `data-state="waiting"`, script} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, want := range []string{hash("b { color: red }"), hash(style), hash(script), hash("1"), "img-src data: 'self'", "font-src 'self'"} {
		if !strings.Contains(p.Header(), want) {
			t.Errorf("the policy %s lacks %s", p.Header(), want)
		}
	}
}

func TestTemplate_RefusesFaults(t *testing.T) {
	for name, row := range map[string]struct{ file, want string }{
		"missing":             {filepath.Join(t.TempDir(), "none.html"), "no such file"},
		"does not parse":      {write(t, `{{.Site`), "unclosed action"},
		"no such field":       {write(t, `{{.Pos}}`), "Pos"},
		"unsafe place":        {write(t, `<a href=x {{.Site`+`}}y="`), "ends in"},
		"script per visitor":  {write(t, `<script>let place = {{.Place}}</script>`), "differs from visitor to visitor"},
		"nothing asks again":  {write(t, `<h1>{{.Heading}}</h1><script type="application/json">{{.Texts}}</script><meta name="refresh">`), "never polls again"},
		"for some alone":      {write(t, `<noscript><meta http-equiv="Refresh" content="{{.Reload}}"></noscript>`), "never polls again"},
		"style for one state": {write(t, `{{if eq .State "rejected"}}<style>b{}</style>{{end}}`), "differs from visitor to visitor"},
	} {
		o := options
		o.TemplateFile = row.file
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "page.template_file") || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want page.template_file and %q", name, err, row.want)
		}
	}
}

func TestTemplate_FallsBackToBuiltIn(t *testing.T) {
	o := options
	o.TemplateFile = write(t, `{{if eq .Message "break"}}{{index .Text.site 999}}{{end}}<meta http-equiv=refresh content="{{.Reload}}">fine`)
	p := mustNew(t, o)
	if got := string(p.Append(nil, &View{State: "waiting"})); got != `<meta http-equiv=refresh content="10">fine` {
		t.Errorf("got %q", got)
	}
	if got := string(p.Append([]byte("x"), &View{State: "waiting", Message: "break"})); !strings.HasPrefix(got, "x<!doctype html>") || !strings.Contains(got, "You are in the queue") {
		t.Errorf("got %.60q, want the built-in page", got)
	}
}

func TestNew_RefusesUnknownLanguage(t *testing.T) {
	o := options
	o.Languages = []string{"en", "tlh"}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "page.languages") || !strings.Contains(err.Error(), `"tlh"`) || !strings.Contains(err.Error(), "en, ko") {
		t.Errorf("%v, want an error that names the setting, the value and what there is", err)
	}
}

func TestLanguages_AddedByOneFile(t *testing.T) {
	english, err := sources.ReadFile("languages/en.json")
	if err != nil {
		t.Fatal(err)
	}
	arabic := strings.Replace(string(english), `"ltr"`, `"rtl"`, 1)
	arabic = strings.Replace(arabic, `{"one": "{n} person ahead of you", "other": "{n} people ahead of you"}`,
		`{"zero": "z{n}", "one": "o{n}", "two": "t{n}", "few": "f{n}", "many": "m{n}", "other": "x{n}"}`, 1)
	all, err := loadLanguages(fstest.MapFS{"languages/en.json": {Data: english}, "languages/ar.json": {Data: []byte(arabic)}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPage(options, all)
	if err != nil {
		t.Fatal(err)
	}
	for ahead, form := range map[int64]string{1: "o", 2: "t", 5: "f", 11: "m", 100: "x"} {
		d := parse(t, p.Append(nil, &View{State: "waiting", Position: ahead + 1, Ahead: ahead, AcceptLanguage: "ar-EG"}))
		if d.lang != "ar" || d.dir != "rtl" || !strings.HasPrefix(d.texts["ahead"], form) {
			t.Errorf("%d ahead: lang %s, dir %s, %q, want the form %s", ahead, d.lang, d.dir, d.texts["ahead"], form)
		}
	}
	for name, files := range map[string]fstest.MapFS{
		"no tag":  {"languages/klingon_x.json": {Data: english}},
		"no JSON": {"languages/fr.json": {Data: []byte("{")}},
		"a list":  {"languages/fr.json": {Data: []byte(`{"site": ["a"]}`)}},
	} {
		if _, err := loadLanguages(files); err == nil || !strings.Contains(err.Error(), "languages/") {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	p := mustNew(b, options)
	v := samples[1]
	v.AcceptLanguage = "ko-KR,ko;q=0.9"
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = p.Append(dst[:0], &v)
	}
}

// Each field of Data is in the documentation for template authors.
func TestData_IsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/page.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Data]()) {
		if !strings.Contains(string(text), "`."+f.Name+"`") {
			t.Errorf("docs/page.md lacks .%s", f.Name)
		}
	}
}
