package dashboard

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func ask(t *testing.T, o Options, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	Handler(o).ServeHTTP(w, r)
	return w
}

func TestDashboard_Answers(t *testing.T) {
	etag := ask(t, Options{}, "GET", "/").Header().Get("ETag")
	for _, row := range []struct {
		name, method, path string
		headers            []string
		status             int
		cache              string
	}{
		{"the page", "GET", "/", nil, 200, "no-cache"},
		{"its head", "HEAD", "/", nil, 200, "no-cache"},
		{"with a query, which it does not read", "GET", "/?token=x", nil, 200, "no-cache"},
		{"the page that the browser has", "GET", "/", []string{"If-None-Match: " + etag}, 304, "no-cache"},
		{"another one", "GET", "/", []string{`If-None-Match: "old"`}, 200, "no-cache"},
		{"a form sent to it", "POST", "/", nil, 405, "no-store"},
		{"another path", "GET", "/index.html", nil, 404, "no-store"},
		{"a path beyond it", "GET", "//", nil, 404, "no-store"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := ask(t, Options{}, row.method, row.path, row.headers...)
			h := w.Header()
			if w.Code != row.status || h.Get("Cache-Control") != row.cache || h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("status %d, headers %v", w.Code, h)
			}
			if (w.Body.Len() > 0) != (row.method != "HEAD" && row.status != 304) {
				t.Errorf("%d bytes of body", w.Body.Len())
			}
			if (h.Get("Allow") == "GET, HEAD") != (row.status == 405) {
				t.Errorf("Allow %q", h.Get("Allow"))
			}
		})
	}
}

func TestHandler_ETagFollowsContent(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range []Options{{}, {Version: "1"}, {Version: "2"}, {Version: "2", Types: []string{"email"}}} {
		seen[ask(t, o, "GET", "/").Header().Get("ETag")] = true
	}
	if len(seen) != 4 || seen[""] {
		t.Errorf("ETags of four different pages: %v", slices.Collect(maps.Keys(seen)))
	}
}

// The Content-Security-Policy is compared with the document as a browser parses it, not with the parts it was built from.
func TestHandler_PolicyMatchesPage(t *testing.T) {
	w := ask(t, Options{Types: []string{"webhook"}, Version: "1.2.3"}, "GET", "/")
	var script, style string
	root, err := html.Parse(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script":
			script += n.FirstChild.Data
		case "style":
			style += n.FirstChild.Data
		case "iframe", "object", "embed", "base", "meta":
			if n.Data != "meta" || slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "http-equiv" }) {
				t.Errorf("the page has a <%s>", n.Data)
			}
		}
		for _, a := range n.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "action" {
				t.Errorf("<%s %s=%q> is inline or loads something", n.Data, a.Key, a.Val)
			}
			if a.Key == "href" && !strings.HasPrefix(a.Val, "#") && a.Val != "data:," {
				t.Errorf("<%s href=%q> leads away", n.Data, a.Val)
			}
		}
	}
	want := "default-src 'none'; script-src 'sha256-" + digest(script) + "'; style-src 'sha256-" + digest(style) + "'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	if got := w.Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("policy\n  %s\nwant\n  %s", got, want)
	}
	for name, value := range map[string]string{"Content-Type": "text/html; charset=utf-8", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

func TestPage_IsSmallAndSelfContained(t *testing.T) {
	w := ask(t, Options{Types: []string{"webhook"}, Version: "1.2.3"}, "GET", "/")
	if n := w.Body.Len(); n > 57_000 {
		t.Errorf("the page has %d bytes, at most 57,000", n)
	}
	// SVG's name space is asked of an element; no address is left in the page.
	if found := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.]+`).FindAll(w.Body.Bytes(), -1); found != nil {
		t.Errorf("addresses in the page: %q", found)
	}
	for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "document.cookie"} {
		if bytes.Contains(w.Body.Bytes(), []byte(word)) {
			t.Errorf("the page has %s", word)
		}
	}
}

func TestPage_EscapesOptions(t *testing.T) {
	for _, row := range []struct {
		o         Options
		kind, has string
	}{
		{Options{}, "webhook", "</main>\n\n<template"},
		{Options{Types: []string{"email", "push"}}, "email", ""},
		{Options{Types: []string{"email", "push", "webhook"}}, "webhook", ""},
		{Options{Types: []string{`"><script>alert(1)</script>`}, Version: "<b>1</b>"}, `"><script>alert(1)</script>`, "bulk worker &lt;b&gt;1&lt;/b&gt;</footer>"},
	} {
		body := ask(t, row.o, "GET", "/").Body.Bytes()
		root, err := html.Parse(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		scripts, kind := 0, ""
		for n := range root.Descendants() {
			if n.Data == "script" {
				scripts++
			}
			if n.Data == "body" && len(n.Attr) == 1 {
				kind = n.Attr[0].Val
			}
		}
		if scripts != 1 || kind != row.kind || !bytes.Contains(body, []byte(row.has)) {
			t.Errorf("%+v: %d scripts, data-type %q", row.o, scripts, kind)
		}
	}
}

func TestSqueeze_KeepsCode(t *testing.T) {
	const text = "  // why\n\n\tconst a = 'x // y'; // said\n   b()\n"
	if got, want := squeeze(text), "const a = 'x // y'; // said\nb()\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// squeeze would change a text of several lines.
	if strings.Contains(coreJS+listJS+limitsJS+workersJS+jobJS+groupJS, "`") {
		t.Error("the script has a template literal, which squeeze does not know")
	}
	if strings.Contains(strings.ToLower(script+style), "</s") {
		t.Error("the script or style would end its own element")
	}
}

func TestHandler_ServesConcurrentRequests(t *testing.T) {
	s := httptest.NewServer(Handler(Options{}))
	defer s.Close()
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != 200 || answer.ContentLength < 1000 {
			t.Errorf("status %d, %d bytes", answer.StatusCode, answer.ContentLength)
		}
	}
}
