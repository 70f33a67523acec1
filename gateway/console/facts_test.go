package console

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/facts"
)

const item = `{"id":"std","label":{"en":"Standing"},"state":"low","price":{"from":49.5,"to":69,"currency":"EUR"}}`

func TestFacts_ArePublishedWithVersions(t *testing.T) {
	b := newBench(t)
	const path = "/admin/v1/rooms/sale/facts"
	if w := b.ask("GET", path, ""); w.Code != 200 || w.Header().Get("ETag") != `"none"` {
		t.Errorf("without facts: %d %s", w.Code, w.Body)
	}
	w := b.ask("PUT", path, `{"items":[`+item+`]}`)
	tag := w.Header().Get("ETag")
	if w.Code != 200 || tag == "" || tag == `"none"` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got := b.sale.Snapshot().Facts; !strings.Contains(got.Text, `"from":49.5`) || facts.Hash(got.Text) != got.Hash {
		t.Errorf("the gateway has %+v", got)
	}
	version := b.sale.Snapshot().Version
	if w := b.ask("PUT", path, `{"items":[`+item+`]}`); w.Code != 200 || b.sale.Snapshot().Version != version {
		t.Errorf("equal items: %d, version %d after %d", w.Code, b.sale.Snapshot().Version, version)
	}
	wantCode(t, b.ask("PUT", path, `{"items":[]}`, `If-Match: "other"`), 412, "changed")
	if w := b.ask("PUT", "/admin/v1/rooms/sale/notices/late", `{"level":"urgent","text":{"en":"Late"},"link":"/news"}`); w.Code != 200 {
		t.Errorf("a notice: %d %s", w.Code, w.Body)
	}
	if w := b.ask("PUT", path, `{"items":[]}`, "If-Match: "+tag); w.Code != 200 {
		t.Errorf("a notice changed the version of the items: %d %s", w.Code, w.Body)
	}
	if w := b.ask("DELETE", "/admin/v1/rooms/sale/notices/late", ""); w.Code != 204 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantCode(t, b.ask("DELETE", "/admin/v1/rooms/sale/notices/late", ""), 404, "unknown_notice")
	if got := b.sale.Snapshot().Facts.Text; got != `{"items":[],"notices":[]}` {
		t.Errorf("what is left: %s", got)
	}
}

func TestFacts_FaultsNameTheirFields(t *testing.T) {
	for body, want := range map[string]string{
		`{}`:            "items",
		`{"items":{}}`:  "items",
		`{"items":[3]}`: "items[0]",
		`{"items":[{"id":"a b","label":{},"state":"gone"}]}`:                                                             "items[0].id items[0].label items[0].state",
		`{"items":[{"id":"a","id":"b","label":{"en":"A"},"state":"low"}]}`:                                               "items[0].id",
		`{"items":[` + item + `,` + item + `]}`:                                                                          "items[1].id",
		`{"items":[{"id":"a","label":{"en":"A","xx-":"B"},"state":"low","more":1}]}`:                                     "items[0].label.xx- items[0].more",
		`{"items":[{"id":"a","label":{"en":"A\u202eB"},"state":"low"}]}`:                                                 "items[0].label.en",
		`{"items":[{"id":"a","label":{"en":"A"},"state":"low","price":{"from":2,"to":1,"currency":"EUR"}}]}`:             "items[0].price.to",
		`{"items":[{"id":"a","label":{"en":"A"},"state":"low","price":{"from":-1,"to":1.0001,"currency":"eur","x":1}}]}`: "items[0].price.from items[0].price.to items[0].price.currency items[0].price.x",
	} {
		_, faults := decodeItems([]byte(body))
		var paths []string
		for _, f := range faults {
			paths = append(paths, f.Path)
		}
		if got := strings.Join(paths, " "); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	for link, ok := range map[string]bool{
		"https://shop.example/x": true, "/news": true, "//evil.example": false, "http://shop.example": false, "javascript:alert(1)": false,
		"/\\evil.example": false, "https://user@shop.example": false, "": false, "news": false,
	} {
		if wrong := facts.CheckLink(link); (wrong == "") != ok {
			t.Errorf("%q: %q", link, wrong)
		}
	}
}

// Whatever is accepted is a document that reads back as itself.
func FuzzDecodeItems(f *testing.F) {
	f.Add(`{"items":[` + item + `]}`)
	f.Add(`{"items":[{"id":"a","label":{"en":"\u003c"},"state":"sold_out","price":{"from":1e2,"currency":"JPY"}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if !json.Valid([]byte(body)) || !strings.HasPrefix(body, "{") || len(body) > facts.MaxBody {
			return
		}
		items, faults := decodeItems([]byte(body))
		if len(faults) > 0 {
			return
		}
		d := facts.Document{Items: items}
		text := d.Text()
		back, err := facts.Parse(text)
		if err != nil || back.Text() != text {
			t.Fatalf("%s is read back as %s, %v", text, back.Text(), err)
		}
	})
}

// What visitors were told is apart from the other changes of a report.
func TestReport_HasFactsAndNotices(t *testing.T) {
	b := newBench(t)
	const room = "/admin/v1/rooms/sale"
	for _, step := range [][3]string{
		{"PUT", room + "/facts", `{"items":[` + item + `]}`}, {"PUT", room + "/notices/late", `{"level":"urgent","text":{"en":"Late"}}`},
		{"DELETE", room + "/notices/late", ""}, {"PATCH", room, `{"rate":3}`}, {"PUT", room + "/facts", `{"items":[` + strings.Replace(item, "low", "sold_out", 1) + `]}`},
	} {
		if w := b.ask(step[0], step[1], step[2]); w.Code >= 300 {
			t.Fatalf("%v: %d %s", step, w.Code, w.Body)
		}
	}
	b.record(61)
	w := b.ask("GET", room+"/report?format=json", "")
	want(t, w, 200)
	actions := func(list string) (names []string) {
		for _, change := range at(decode(t, w.Body.Bytes()), list).([]any) {
			names = append(names, at(change, "action").(string))
		}
		return names
	}
	if got := strings.Join(actions("facts"), " "); got != "facts notice notice facts" {
		t.Errorf("facts: %s", got)
	}
	if got := strings.Join(actions("changes"), " "); got != "patch" {
		t.Errorf("changes: %s", got)
	}
}
