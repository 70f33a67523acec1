package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/token"
)

// Every response matches api/openapi-admin.yaml, and every response of that document except 500 occurs here.
func TestResponses_MatchOpenAPI(t *testing.T) {
	text, err := os.ReadFile("../../api/openapi-admin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/vnd.anteroom.rows+json", openapi3filter.JSONBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.FileBodyDecoder)

	b := newBench(t)
	waiting := b.join(16)
	first, last := waiting[0].Ticket.ID.String(), waiting[5].Ticket.ID.String()
	active, _, err := b.vip.Join(t.Context(), admission.Arrival{ID: admission.ID{7}})
	if err != nil {
		t.Fatal(err)
	}
	session := active.Ticket.ID.String()
	const room = "/admin/v1/rooms/sale"
	asked := map[string][]int{} // "GET /path/{template}" → statuses seen
	ask := func(status int, method, path, body string, headers ...string) {
		t.Helper()
		w := b.ask(method, path, body, headers...)
		if w.Code != status {
			t.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, w.Code, status, w.Body)
		}
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		route, params, err := router.FindRoute(r)
		if err != nil {
			t.Fatalf("%s %s is not documented: %v", method, path, err)
		}
		key := method + " " + route.Path
		asked[key] = append(asked[key], status)
		input := &openapi3filter.RequestValidationInput{Request: r, Route: route, PathParams: params,
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
		if status < 300 {
			if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
				t.Errorf("%s %s %s was taken, the document refuses it: %v", method, path, body, err)
			}
		}
		answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: w.Code, Header: w.Header(),
			Options: &openapi3filter.Options{IncludeResponseStatus: true}}
		answer.SetBodyBytes(bytes.Clone(w.Body.Bytes()))
		if err := openapi3filter.ValidateResponse(t.Context(), answer); err != nil {
			t.Errorf("%s %s %s: %v", method, path, body, err)
		}
	}

	ask(200, "GET", "/admin/v1/rooms", "")
	ask(200, "GET", room, "")
	ask(200, "PATCH", room, `{"rate":2.5,"burst":3,"max_active":100,"message":"hi","method":"fifo","paused":true,"enabled":true,"session":{"ttl":"2m"}}`)
	ask(200, "PATCH", room, `{"admission":{"rate":5,"burst":null},"queue":{"method":null},"page":{"message":"x"},"paused":null}`)
	ask(200, "GET", room, "")
	ask(200, "PATCH", room, `{"admission":null,"queue":null,"session":null,"page":null}`)
	for _, action := range []string{"/pause", "/drain", "/resume"} {
		ask(200, "POST", room+action, "")
		ask(400, "POST", room+action, `{`)
		ask(413, "POST", room+action, `{"x":"`+strings.Repeat("x", 64<<10)+`"}`)
		ask(415, "POST", room+action, `{}`, "Content-Type: text/plain")
		ask(422, "POST", room+action, `{"x":1}`)
	}
	ask(200, "GET", room+"/history", "")
	ask(200, "GET", room+"/preview", "")
	if _, _, err := b.vip.Join(t.Context(), admission.Arrival{ID: admission.ID([]byte("jane............"))}); err != nil {
		t.Fatal(err)
	}
	ask(200, "GET", "/admin/v1/rooms/vip/tickets?account=jane", "")
	if got := decode(t, b.ask("GET", "/admin/v1/rooms/vip/tickets?account=jane", "").Body.Bytes())["tickets"].([]any); len(got) != 1 || at(got[0], "state") != "active" {
		t.Errorf("the account has %v", got)
	}
	want(t, b.ask("GET", "/admin/v1/rooms/vip/tickets?account=john", ""), 200, `{"tickets":[]}`)
	ask(409, "GET", room+"/tickets?account=jane", "")
	ask(404, "GET", "/admin/v1/rooms/none/tickets?account=jane", "")
	ask(422, "GET", room+"/tickets?account=", "")
	ask(200, "GET", "/admin/v1/events", "")
	ask(200, "GET", room+"/clients?address=203.0.113.0/24", "")
	ask(422, "GET", room+"/clients?address=x", "")
	ask(200, "GET", room+"/tickets/"+first, "")
	ask(204, "DELETE", room+"/tickets/"+first, "")
	ask(200, "GET", room+"/tickets/"+first, "")
	b.tick(time.Second)
	ask(200, "GET", room+"/tickets/"+last, "")
	ask(204, "POST", "/admin/v1/rooms/vip/sessions/"+session+"/revoke", "")
	ask(200, "GET", "/admin/v1/rooms/vip/tickets/"+session, "")
	ask(200, "POST", room+"/reset", `{"confirm":"sale"}`)
	ask(400, "POST", room+"/reset", `[]`)
	ask(413, "POST", room+"/reset", strings.Repeat(" ", 64<<10+1))
	ask(415, "POST", room+"/reset", `{"confirm":"sale"}`, "Content-Type: text/plain")
	ask(422, "POST", room+"/reset", `{"confirm":"vip"}`)
	b.record(3)
	ask(200, "GET", room, "")
	ask(200, "GET", "/admin/v1/fleet", "")
	ask(200, "GET", room+"/series?step=1s", "")
	ask(422, "GET", room+"/series?step=2s", "")
	ask(200, "GET", room+"/figures", "")
	ask(422, "GET", room+"/figures?from=5&to=4", "")
	for _, form := range []string{"html", "csv", "json", "rows"} {
		ask(200, "GET", room+"/report?format="+form, "")
	}
	ask(422, "GET", room+"/report?format=pdf", "")
	ask(200, "POST", "/admin/v1/explain", `{"host":"shop.test","path":"/a?b=1","headers":{"Accept":"text/html"},"address":"192.0.2.1","https":true}`)
	ask(400, "POST", "/admin/v1/explain", `[`)
	ask(413, "POST", "/admin/v1/explain", strings.Repeat(" ", 64<<10+1))
	ask(415, "POST", "/admin/v1/explain", `{"host":"shop.test","path":"/"}`, "Content-Type: text/plain")
	ask(422, "POST", "/admin/v1/explain", `{"host":"shop.test"}`)
	leaving, leave := context.WithCancel(t.Context())
	leave()
	b.leaving = leaving
	ask(200, "GET", "/admin/v1/stream", "")
	b.leaving = nil
	b.console.frames.open.all += streamsMost
	ask(503, "GET", "/admin/v1/stream", "")
	b.console.frames.open.all -= streamsMost
	ask(200, "POST", "/admin/v1/rooms/vip/evacuate", `{"reason":"the origin is down"}`)
	ask(404, "GET", room+"/ramp", "")
	ask(404, "DELETE", room+"/ramp", "")
	ask(201, "POST", room+"/ramp", `{"from":5,"step":2.5,"every":"1m","until":20,"while":{"p95_ms":300,"errors":0.05},"on_breach":"back"}`)
	ask(409, "POST", room+"/ramp", `{"step":2.5,"every":"1m","until":20}`)
	ask(200, "GET", room+"/ramp", "")
	ask(200, "GET", room, "")
	ask(200, "DELETE", room+"/ramp", "")
	ask(201, "POST", room+"/ramp", `{"step":-1,"every":"1m","until":2}`)
	ask(200, "POST", room+"/simulate", `{"rate":2.5,"max_active":10,"pause":false}`)
	ask(409, "POST", "/admin/v1/rooms/vip/simulate", "")
	ask(400, "DELETE", room+"/ramp", `[]`)
	ask(413, "DELETE", room+"/ramp", strings.Repeat(" ", 64<<10+1))
	ask(415, "DELETE", room+"/ramp", `{}`, "Content-Type: text/plain")
	ask(422, "DELETE", room+"/ramp", `{"x":1}`)
	for _, action := range []string{"/evacuate", "/simulate", "/ramp"} {
		ask(400, "POST", room+action, `[]`)
		ask(413, "POST", room+action, strings.Repeat(" ", 64<<10+1))
		ask(415, "POST", room+action, `{"reason":"x"}`, "Content-Type: text/plain")
		ask(422, "POST", room+action, `{"x":1}`)
	}
	const event = `{"name":"sale","starts_at":"2028-01-01T10:00:00Z","ends_at":"2028-01-01T11:00:00Z","rate":2.5,"method":"fifo"}`
	ask(201, "POST", room+"/events", event)
	ask(409, "POST", room+"/events", event)
	planned := room + "/events/" + b.sale.LiveEvents()[0].ID
	ask(200, "GET", "/admin/v1/events", "")
	ask(200, "GET", room, "")
	ask(200, "PUT", planned, event)
	ask(404, "PUT", room+"/events/none", strings.ReplaceAll(event, "2028", "2029"))
	for _, row := range [][2]string{{"POST", room + "/events"}, {"PUT", planned}, {"DELETE", planned}} {
		ask(400, row[0], row[1], `[]`)
		ask(413, row[0], row[1], strings.Repeat(" ", 64<<10+1))
		ask(415, row[0], row[1], `{}`, "Content-Type: text/plain")
		ask(422, row[0], row[1], `{"x":1}`)
	}
	ask(409, "PUT", room+"/events/none", event)
	ask(204, "DELETE", planned, "")
	ask(404, "DELETE", planned, "")
	ask(200, "PATCH", room, `{"challenge":"hardest"}`)
	ask(200, "GET", "/admin/v1/audit", "")
	newest := fmt.Sprint(room, "/audit/", b.newest()["seq"], "/undo")
	ask(200, "POST", newest, "")
	ask(409, "POST", newest, "")
	ask(400, "POST", newest, `[]`)
	ask(404, "POST", room+"/audit/9999/undo", "")
	ask(413, "POST", newest, strings.Repeat(" ", 64<<10+1))
	ask(415, "POST", newest, `{}`, "Content-Type: text/plain")
	ask(422, "POST", newest, `{"x":1}`)
	ask(422, "GET", "/admin/v1/audit?limit=0", "")
	b.deadEvent()
	ask(200, "GET", "/admin/v1/webhooks", "")
	ask(422, "GET", "/admin/v1/webhooks?limit=0", "")
	ask(422, "GET", room+"/history?minutes=0", "")
	ask(400, "PATCH", room, `{"rate":1,"rate":2}`)
	ask(413, "PATCH", room, `{"message":"`+strings.Repeat("x", 64<<10)+`"}`)
	ask(415, "PATCH", room, `{"rate":1}`, "Content-Type: text/plain")
	ask(422, "PATCH", room, `{"rate":"x","nothing":null}`)
	for _, row := range [][2]string{{"DELETE", room + "/tickets/" + last}, {"POST", room + "/sessions/" + last + "/revoke"}} {
		ask(400, row[0], row[1], `{`)
		ask(413, row[0], row[1], strings.Repeat(" ", 64<<10+1))
		ask(415, row[0], row[1], `{}`, "Content-Type: text/plain")
		ask(422, row[0], row[1], `{"x":1}`)
	}
	const standing = `{"items":[{"id":"a","label":{"en":"A"},"state":"low","price":{"from":1,"currency":"EUR"}}]}`
	const notice = `{"level":"info","text":{"en":"N"},"until":"2100-01-01T00:00:00Z"}`
	ask(200, "GET", room+"/facts", "")
	ask(200, "PUT", room+"/facts", standing)
	ask(200, "GET", room+"/notices", "")
	for i := range 8 {
		ask(200, "PUT", room+"/notices/n"+strconv.Itoa(i), notice)
	}
	ask(409, "PUT", room+"/notices/more", notice)
	ask(200, "GET", room+"/notices/n1", "")
	ask(404, "GET", room+"/notices/none", "")
	ask(200, "PATCH", room, `{"queue":{"on_sold_out":"close"}}`)
	ask(200, "GET", room, "")
	for _, path := range []string{"/facts", "/notices/n1"} {
		ask(400, "PUT", room+path, `{`)
		ask(412, "PUT", room+path, map[string]string{"/facts": standing, "/notices/n1": notice}[path], `If-Match: "other"`)
		ask(413, "PUT", room+path, strings.Repeat(" ", 8<<10+1))
		ask(415, "PUT", room+path, `{}`, "Content-Type: text/plain")
		ask(422, "PUT", room+path, `{"x":1}`)
	}
	ask(400, "DELETE", room+"/notices/n1", `{`)
	ask(412, "DELETE", room+"/notices/n1", "", `If-Match: "other"`)
	ask(413, "DELETE", room+"/notices/n1", strings.Repeat(" ", 64<<10+1))
	ask(415, "DELETE", room+"/notices/n1", `{}`, "Content-Type: text/plain")
	ask(422, "DELETE", room+"/notices/n1", `{"x":1}`)
	ask(204, "DELETE", room+"/notices/n1", "")
	const redeem = "/admin/v1/permits/redeem"
	raw := b.permit(token.Permit{})
	ask(200, "POST", redeem, permitBody(raw))
	ask(409, "POST", redeem, permitBody(raw))
	ask(410, "POST", redeem, permitBody(b.permit(token.Permit{Expires: -token.PermitLife - token.Leeway})))
	ask(422, "POST", redeem, permitBody("x"))
	ask(422, "POST", redeem, permitBody(raw), "Idempotency-Key: short")
	ask(400, "POST", redeem, `{`)
	ask(413, "POST", redeem, strings.Repeat(" ", 64<<10+1))
	ask(415, "POST", redeem, permitBody(raw), "Content-Type: text/plain")
	ask(200, "GET", "/admin/v1/me", "")
	ask(200, "GET", "/admin/v1/audit/export", "")
	b.console.o.TwoPerson = []string{"reset", "evacuate"}
	ask(202, "POST", "/admin/v1/rooms/vip/evacuate", `{"reason":"the origin is down"}`)
	ask(202, "POST", room+"/reset", `{"confirm":"sale"}`)
	ask(202, "POST", room+"/reset", `{"confirm":"sale"}`)
	ask(200, "GET", "/admin/v1/pending", "")
	for i, a := range decode(t, b.ask("GET", "/admin/v1/pending", "").Body.Bytes())["pending"].([]any) {
		if at(a, "room") == "vip" {
			if at(a, "action") != "evacuate" {
				t.Errorf("pending: %v", a)
			}
			continue
		}
		path := "/admin/v1/pending/" + at(a, "id").(string)
		if i == 1 {
			ask(204, "DELETE", path, "")
			continue
		}
		ask(403, "POST", path+"/confirm", "")
		if err := b.console.SetTokens([]Token{{Name: "ops", Token: writeToken, Role: Write}, {Name: "wall", Token: readToken, Role: Read}, {Name: "bob", Token: bobToken, Role: Write}}); err != nil {
			t.Fatal(err)
		}
		ask(200, "POST", path+"/confirm", "", "Authorization: Bearer "+bobToken)
		for _, row := range [][2]string{{"DELETE", path}, {"POST", path + "/confirm"}} {
			ask(400, row[0], row[1], `{`)
			ask(404, row[0], row[1], "")
			ask(413, row[0], row[1], strings.Repeat(" ", 64<<10+1))
			ask(415, row[0], row[1], `{}`, "Content-Type: text/plain")
			ask(422, row[0], row[1], `{"x":1}`)
		}
	}
	ask(202, "POST", room+"/reset", `{"confirm":"sale"}`)
	held := at(decode(t, b.ask("GET", "/admin/v1/pending", "").Body.Bytes())["pending"].([]any)[1], "id").(string)
	ask(403, "DELETE", "/admin/v1/pending/"+held, "", "Authorization: Bearer "+readToken)
	ask(200, "GET", "/healthz", "")
	ask(200, "GET", "/readyz", "")
	ask(200, "GET", "/metrics", "")
	b.ready, b.healthy = false, http.ErrServerClosed
	ask(503, "GET", "/healthz", "")
	ask(503, "GET", "/readyz", "")

	// What refuses before the request is looked at is alike for all.
	type operation struct{ method, path, body string }
	const pending = "/admin/v1/pending/none"
	all := []operation{
		{"GET", "/admin/v1/me", ""},
		{"GET", "/admin/v1/rooms", ""}, {"GET", room, ""}, {"GET", room + "/preview", ""}, {"GET", "/admin/v1/events", ""},
		{"GET", "/admin/v1/pending", ""}, {"DELETE", pending, ""}, {"POST", pending + "/confirm", ""}, {"GET", "/admin/v1/audit/export", ""}, {"PATCH", room, `{"rate":1}`}, {"POST", room + "/pause", ""}, {"POST", room + "/resume", ""},
		{"POST", room + "/drain", ""}, {"POST", room + "/reset", `{"confirm":"sale"}`}, {"GET", room + "/history", ""}, {"GET", room + "/tickets/" + last, ""}, {"GET", "/admin/v1/rooms/vip/tickets?account=jane", ""},
		{"DELETE", room + "/tickets/" + last, ""}, {"POST", room + "/sessions/" + last + "/revoke", ""}, {"GET", "/admin/v1/audit", ""}, {"GET", "/admin/v1/webhooks", ""},
		{"GET", room + "/facts", ""}, {"PUT", room + "/facts", standing}, {"GET", room + "/notices", ""},
		{"GET", room + "/notices/n2", ""}, {"PUT", room + "/notices/n2", notice}, {"DELETE", room + "/notices/n2", ""},
		{"GET", room + "/clients?address=203.0.113.7", ""}, {"POST", newest, ""}, {"POST", room + "/events", event}, {"PUT", planned, event}, {"DELETE", planned, ""}, {"POST", room + "/evacuate", `{"reason":"x"}`}, {"POST", room + "/simulate", ""},
		{"GET", room + "/ramp", ""}, {"POST", room + "/ramp", `{"step":1,"every":"1m","until":90}`}, {"DELETE", room + "/ramp", ""}, {"POST", redeem, permitBody(raw)},
	}
	for _, o := range all {
		ask(401, o.method, o.path, o.body, "Authorization:")
		if strings.Contains(o.path, room) {
			ask(404, o.method, strings.Replace(o.path, "/sale", "/none", 1), o.body)
		}
		if o.method != "GET" && !strings.Contains(o.path, pending) {
			ask(403, o.method, o.path, o.body, "Authorization: Bearer "+readToken)
		}
	}
	records := []operation{{"GET", room + "/series", ""}, {"GET", room + "/figures", ""}, {"GET", room + "/report", ""}}
	insights := append([]operation{{"GET", "/admin/v1/fleet", ""}, {"GET", "/admin/v1/stream", ""}, {"POST", "/admin/v1/explain", `{"host":"a","path":"/"}`}}, records...)
	for _, o := range insights {
		ask(401, o.method, o.path, o.body, "Authorization:")
		if strings.Contains(o.path, room) {
			ask(404, o.method, strings.Replace(o.path, "/sale", "/none", 1), o.body)
		}
	}
	const wrong, peer = "Authorization: Bearer wrong", "Peer: 192.0.2.9:1"
	for range 10 {
		b.ask("GET", "/admin/v1/rooms", "", wrong, peer)
	}
	for _, o := range append(insights, all...) {
		ask(429, o.method, o.path, o.body, wrong, peer)
	}
	b = newBench(t, func(o *Options) { o.Listen, o.Tokens = "[::1]:9090", nil })
	for _, o := range all {
		if o.method == "GET" {
			ask(403, o.method, o.path, o.body, "Authorization:", "Host: evil.example")
		}
	}
	for _, o := range insights {
		ask(403, o.method, o.path, o.body, "Authorization:", "Host: evil.example")
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		ask(403, "GET", path, "", "Authorization:", "Host: evil.example")
	}
	b = benchWithoutStore(t)
	b.clients = []Client{{Address: netip.MustParseAddr("203.0.113.7")}}
	all[len(all)-1].body = permitBody(b.permit(token.Permit{}))
	for _, o := range append(records, all[5:]...) { // the first need no store
		if strings.HasSuffix(o.path, "/simulate") || o.method == "GET" && strings.HasSuffix(o.path, "/ramp") { // works without the store
			continue
		}
		ask(503, o.method, o.path, o.body)
	}

	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if status == "408" { // TestHandler_EndsConnectionWithoutBody has it
					continue
				}
				if !slices.ContainsFunc(asked[method+" "+path], func(seen int) bool { return status == strconv.Itoa(seen) }) {
					t.Errorf("%s %s: the documented %s was never given", method, path, status)
				}
			}
		}
	}
}
