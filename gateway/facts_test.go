package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/facts"
)

// publishFacts publishes a document in a room of the bench and returns its text.
func (b *bench) publishFacts(room string, d facts.Document) string {
	b.t.Helper()
	q := b.state.Load().byID[room].queue
	before, err := q.ReadFacts(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	was, err := facts.Parse(before)
	if err != nil {
		b.t.Fatal(err)
	}
	text := d.Text()
	done, err := q.PublishFacts(b.t.Context(), "shop", "facts", admission.Facts{Text: before, SoldOut: was.SoldOut()},
		admission.Facts{Text: text, Hash: facts.Hash(text), SoldOut: d.SoldOut()})
	if err != nil || !done {
		b.t.Fatal(done, err)
	}
	return text
}

const hostile = `</script><script>alert("1")</script>"'&<img src=x onerror=alert(1)>`

func ticketDocument(state string) facts.Document {
	return facts.Document{
		Items: []facts.Item{{ID: "standing", Label: map[string]string{"en": "Standing " + hostile, "ko": "스탠딩"}, State: state,
			Price: &facts.Price{From: 49500, To: 69000, Currency: "EUR"}}},
	}
}

func TestFacts_AreServedByVersion(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	const path = "/.waiting-room/sale/facts"
	if a := b.call("GET "+path).code(t, 404); !strings.Contains(a.body, `"no_facts"`) {
		t.Error(a.text())
	}
	join := b.call("POST /.waiting-room/sale/tickets").code(t, 201)
	if strings.Contains(join.body, `"facts"`) {
		t.Errorf("a room without facts: %s", join.body)
	}
	token := "Authorization: Bearer " + join.field("token")
	text := b.publishFacts("sale", ticketDocument(facts.Low))
	version := facts.Version(facts.Hash(text))
	status := b.call("GET /.waiting-room/sale/status", token).code(t, 200)
	url := path + "?v=" + version
	if want := `"facts":{"version":"` + version + `","url":"` + url + `"}`; !strings.Contains(status.body, want) {
		t.Errorf("the status has no %s:\n%s", want, status.body)
	}
	a := b.call("GET "+url).code(t, 200)
	if a.body != text || a.header.Get("Etag") != `"`+version+`"` || a.header.Get("Cache-Control") != "public, max-age=31536000, immutable" || a.header.Get("Vary") != "" {
		t.Errorf("by its version:\n%s", a.text())
	}
	_, router := visitorAPI(t)
	conforms(t, router, status, "GET /.waiting-room/sale/status")
	conforms(t, router, a, "GET "+url)
	if got := b.call("GET "+path+"?v=0123456789abcdef").code(t, 200).header.Get("Cache-Control"); got != "public, max-age=1" {
		t.Errorf("another version: Cache-Control %s", got)
	}
	b.call("GET "+url, `If-None-Match: "`+version+`"`).code(t, 304)
	module := b.call("GET "+url+"&js").code(t, 200)
	if got := module.header.Get("Content-Type"); got != "text/javascript; charset=utf-8" || strings.Contains(module.body, "<script") || strings.Contains(module.body, "{/*") {
		t.Errorf("the module, %s:\n%s", got, module.body)
	}
}

func TestFacts_ReachEventStreams(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	_, r := listenTo(t, b.addr, b.call("POST /.waiting-room/sale/tickets").code(t, 201).field("token"))
	began := time.Now()
	text := b.publishFacts("sale", ticketDocument(facts.Available))
	readUntil(t, r, "event: facts")
	data := readUntil(t, r, "data: ")
	t.Logf("after %v", time.Since(began))
	if !strings.Contains(data, facts.Version(facts.Hash(text))) {
		t.Errorf("the event has %s", data)
	}
}

// While all is sold out and the room closes, visitors who wait and newcomers learn it, and everybody keeps the place.
func TestFacts_SoldOutIsShown(t *testing.T) {
	p := policy(0)
	p.SoldOutCloses = true
	b, _ := one(t, Room{ID: "sale", Policy: p, Board: "on"})
	token := "Authorization: Bearer " + b.call("POST /.waiting-room/sale/tickets").code(t, 201).field("token")
	b.publishFacts("sale", ticketDocument(facts.SoldOut))
	a := b.call("GET /.waiting-room/sale/status", token).code(t, 200)
	if a.field("state") != "rejected" || a.field("reason") != "sold_out" {
		t.Errorf("a ticket: %s", a.text())
	}
	if a := b.call("POST /.waiting-room/sale/tickets").code(t, 503); a.field("code") != "room_sold_out" {
		t.Errorf("a join: %s", a.text())
	}
	page := b.call("GET /", "Accept: text/html", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
	if !strings.Contains(page.body, "Sold out") || !strings.Contains(page.body, `data-reason="sold_out"`) || page.header.Get("X-Waiting-Room") != "rejected" {
		t.Errorf("the page: %s", page.text())
	}
	var board struct{ State, Reason string }
	if err := json.Unmarshal([]byte(b.call("GET /.waiting-room/sale/board.json").code(t, 200).body), &board); err != nil || board.State != "closed" || board.Reason != "sold_out" {
		t.Errorf("the board: %+v, %v", board, err)
	}
	b.publishFacts("sale", ticketDocument(facts.Low))
	if a := b.call("GET /.waiting-room/sale/status", token).code(t, 200); a.field("state") != "waiting" || a.field("position") != "1" {
		t.Errorf("the ticket after the reopening: %s", a.text())
	}
}

func TestBoard_IsPublicAndEscaped(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Board: "on"}, Room{ID: "vip", Paths: []string{"/vip"}, Policy: policy(0)})
	if a := b.call("GET /.waiting-room/vip/board").code(t, 404); !strings.Contains(a.body, "no_board") {
		t.Error(a.text())
	}
	b.publishFacts("sale", ticketDocument(facts.Low))
	for range 3 {
		b.call("POST /.waiting-room/sale/tickets").code(t, 201)
	}
	a := b.call("GET /.waiting-room/sale/board?wall=1", "Accept-Language: ko").code(t, 200)
	for _, want := range []string{`class="wall"`, "스탠딩", "49.50 – 69.00 EUR", `http-equiv="refresh"`, "매진 임박"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the board has no %s:\n%s", want, a.body)
		}
	}
	if english := b.call("GET /.waiting-room/sale/board", "Accept-Language: en").code(t, 200).body; strings.Contains(english, "<img") || strings.Contains(english, `"1")</script>`) || !strings.Contains(english, "&lt;img") {
		t.Errorf("hostile text is HTML:\n%s", english)
	}
	if csp := a.header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("the policy is %s", csp)
	}
}
