package console

import (
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	visitorspage "github.com/anteroom/anteroom/gateway/page"
)

// Every file of the page is served with its policy, and none is longer than a reader can follow.
func TestPage_ServesItsFiles(t *testing.T) {
	b := newBench(t)
	err := fs.WalkDir(pageFiles, "page", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		path := pagePath + strings.TrimPrefix(name, "page/")
		w := b.ask("GET", path, "", "Authorization:")
		kind := map[bool]string{true: "text/javascript; charset=utf-8", false: "text/"}[strings.HasSuffix(name, ".js")]
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Header().Get("Content-Security-Policy") != pagePolicy {
			t.Errorf("%s: %d with %v", path, w.Code, w.Header())
		}
		if w = b.ask("GET", path, "", "If-None-Match: "+w.Header().Get("ETag")); w.Code != http.StatusNotModified && !strings.HasSuffix(name, ".html") {
			t.Errorf("%s with its ETag: %d", path, w.Code)
		}
		if body, _ := pageFiles.ReadFile(name); !strings.Contains(name, "vendor/") && strings.Count(string(body), "\n") > 400 {
			t.Errorf("%s has over 400 lines", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/console/", "/console/none.js", "/console/vendor/", "/console/%2e%2e/page.go", "/console/" + strings.Repeat("x", 10_000)} {
		if w := b.ask("GET", path, ""); w.Code != http.StatusNotFound && w.Code != http.StatusMovedPermanently && w.Code != http.StatusTemporaryRedirect {
			t.Errorf("%.40s: %d", path, w.Code)
		}
	}
	for _, banned := range []string{"'unsafe-inline'", "'unsafe-eval'", "http:", "https:", "*"} {
		if strings.Contains(pagePolicy, banned) {
			t.Errorf("the policy allows %s", banned)
		}
	}
}

func TestPreview_ShowsTheVisitorsPage(t *testing.T) {
	visitors, err := visitorspage.New(visitorspage.Options{Room: "sale", Languages: []string{"en", "ko"}, Absence: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	rooms := b.console.o.Rooms
	b.console.o.Rooms = func() []Room {
		list := rooms()
		list[0].Page = visitors
		return list
	}
	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"message":"<img src=x onerror=alert(1)>"}`), http.StatusOK)
	w := b.ask("GET", "/admin/v1/rooms/sale/preview", "")
	want(t, w, http.StatusOK)
	listed := decode(t, w.Body.Bytes())
	for _, language := range listed["languages"].([]any) {
		for _, state := range listed["states"].([]any) {
			w := b.ask("GET", "/console/preview?room=sale&state="+strings.ReplaceAll(state.(string), " ", "+")+"&language="+language.(string), "", "Authorization:")
			body, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
			if w.Code != http.StatusOK || !strings.Contains(body, `lang="`+language.(string)+`"`) || !strings.Contains(body, "&lt;img src=x onerror=alert(1)&gt;") {
				t.Errorf("%s in %s: %d: %.200s", state, language, w.Code, body)
			}
			if strings.Contains(body, "<script") || strings.Contains(body, "<noscript") || strings.Contains(body, "<img") {
				t.Errorf("%s in %s has a script, noscript or img element", state, language)
			}
			if !strings.Contains(policy, "script-src 'none'") || !strings.Contains(policy, "frame-ancestors 'self'") || !strings.HasSuffix(policy, "; sandbox") {
				t.Errorf("%s in %s has the policy %s", state, language, policy)
			}
		}
	}
	for _, query := range []string{"", "?room=sale", "?room=sale&state=waiting&language=xx", "?room=vip&state=waiting&language=en", "?room=none&state=waiting&language=en"} {
		wantCode(t, b.ask("GET", "/console/preview"+query, ""), http.StatusNotFound, "not_found")
	}
	want(t, b.ask("GET", "/admin/v1/rooms/vip/preview", ""), http.StatusOK, `{"states":[],"languages":[]}`)
}

func TestEvents_OfAllRooms(t *testing.T) {
	b := newBench(t)
	file := filePolicy
	file.Plan = admission.NewPlan(nil, "vip", &file, []admission.Event{
		{Name: "late", Starts: 1_900_000_000e6, Ends: 1_900_003_600e6, Rate: 2500}, {Starts: 1_700_000_000e6, Ends: 1_700_003_600e6, Method: admission.Reject},
	})
	b.core.Room("vip", file)
	want(t, b.ask("GET", "/admin/v1/events", ""), http.StatusOK, `{"events":[
		{"room":"vip","origin":"shop","live":false,"starts_at":"2023-11-14T22:13:20.000000Z","ends_at":"2023-11-14T23:13:20.000000Z","method":"reject"},
		{"room":"vip","origin":"shop","live":false,"name":"late","starts_at":"2030-03-17T17:46:40.000000Z","ends_at":"2030-03-17T18:46:40.000000Z","rate":2.5}]}`)
}
