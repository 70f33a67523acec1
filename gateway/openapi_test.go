package gateway

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
)

func visitorAPI(t *testing.T) (*openapi3.T, routers.Router) {
	t.Helper()
	file, err := os.ReadFile("../api/openapi-visitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc.Servers = openapi3.Servers{{URL: "http://shop.test/.waiting-room"}}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return doc, router
}

// conforms fails the test if a response differs from its description.
func conforms(t *testing.T, router routers.Router, a *response, lines ...string) {
	t.Helper()
	method, target, _ := strings.Cut(lines[0], " ")
	req, err := http.NewRequest(method, "http://shop.test"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	route, params, err := router.FindRoute(req)
	if err != nil {
		t.Fatalf("%s is not described: %v", lines[0], err)
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: route, PathParams: params},
		Status:                 a.status, Header: a.header, Body: io.NopCloser(bytes.NewBufferString(a.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(t.Context(), in); err != nil {
		t.Errorf("%v\n%s\n%v", lines, a.text(), err)
	}
}

func TestResponses_MatchOpenAPI(t *testing.T) {
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.FileBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.RegisteredBodyDecoder("application/json"))
	doc, router := visitorAPI(t)
	b, _ := one(t, Room{ID: "sale", Policy: policy(1), Compat: CompatCloudflare}, Room{ID: "shut", Paths: []string{"/shut"}, Policy: shut(policy(1))},
		Room{ID: "members", Paths: []string{"/members"}, Policy: policy(1), Identity: Identity{OnePlace: true, Header: "X-Account"}})
	tell := func(status int, lines ...string) *response {
		t.Helper()
		a := b.call(lines...).code(t, status)
		conforms(t, router, a, lines...)
		return a
	}
	tell(201, "POST /.waiting-room/sale/tickets") // admitted immediately
	token := tell(201, "POST /.waiting-room/sale/tickets").field("token")
	with := "X-Waiting-Room-Token: " + token
	other := "X-Waiting-Room-Token: " + tell(201, "POST /.waiting-room/sale/tickets").field("token")
	tell(200, "POST /.waiting-room/sale/tickets", with)
	tell(200, "GET /.waiting-room/sale/status", with)
	tell(401, "GET /.waiting-room/sale/status")
	tell(401, "GET /.waiting-room/sale/events")
	tell(409, "POST /.waiting-room/sale/claim", with)
	tell(403, "POST /.waiting-room/sale/claim", with, "Origin: https://evil.example")
	tell(422, "POST /.waiting-room/sale/tickets", "", "{")
	tell(422, "POST /.waiting-room/sale/tickets", "Idempotency-Key: short")
	tell(413, "POST /.waiting-room/sale/tickets", "", strings.Repeat(" ", 5000))
	tell(400, "GET /.waiting-room/sale/status", "Bad Name: 1")
	tell(417, "POST /.waiting-room/sale/tickets", "Expect: more")
	tell(431, "GET /.waiting-room/sale/status", "X: "+strings.Repeat("x", 20000))
	tell(503, "POST /.waiting-room/shut/tickets")
	tell(401, "POST /.waiting-room/members/tickets")
	tell(404, "GET /.waiting-room/none/status")
	tell(404, "GET /.waiting-room/sale/draw")
	tell(200, "GET /.waiting-room/sale/", asPage)
	tell(503, "GET /.waiting-room/shut/", asPage)
	tell(200, "GET /.waiting-room/jwks.json")
	tell(304, "GET /.waiting-room/jwks.json", "If-None-Match: *")
	b.queue("sale").Revoke(admission.ID(randomID()))
	eventually(t, "the revoked session is in the list", func() bool { return tell(200, "GET /.waiting-room/sale/revoked").field("sid") != "" })
	tell(304, "GET /.waiting-room/sale/revoked", "If-None-Match: *")
	tell(404, "GET /.waiting-room/none/revoked")
	b.rate("sale", 100)
	eventually(t, "the ticket is admitted", func() bool {
		return tell(200, "GET /.waiting-room/sale/status", with).field("pass") != ""
	})
	tell(200, "POST /.waiting-room/sale/claim", with)
	tell(410, "POST /.waiting-room/sale/claim", with, "User-Agent: another")
	tell(204, "DELETE /.waiting-room/sale/tickets", other)
	tell(200, "GET /.waiting-room/sale/status", other)
	pass := b.passOf(randomID())
	tell(201, "POST /.waiting-room/sale/permits", pass, "", permitBody("/buy", "POST"))
	tell(401, "POST /.waiting-room/sale/permits", "", permitBody("/buy", "POST"))
	tell(422, "POST /.waiting-room/sale/permits", pass, "", permitBody("/shut/buy", "POST"))
	if err := b.queue("sale").Reset(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	b.rate("sale", 0)
	eventually(t, "the reset is known", func() bool {
		a := tell(200, "GET /.waiting-room/sale/status", with)
		return a.field("state") == "expired" && a.field("reason") == "reset" && a.field("token") != ""
	})

	var described, known []string
	for _, v := range doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		described = append(described, v.(string))
	}
	for _, p := range answer.Problems() {
		known = append(known, p.Code)
	}
	known = append(known, http1.CodeRequestLine, http1.CodeMethod, http1.CodeVersion, http1.CodeTarget, http1.CodeTargetLong, http1.CodeHeader,
		http1.CodeHeaderLarge, http1.CodeNames, http1.CodeHost, http1.CodeFraming, http1.CodeCoding, http1.CodeExpect, wire.CodeTimeout)
	slices.Sort(described)
	slices.Sort(known)
	known = slices.Compact(known)
	if !slices.Equal(described, known) {
		t.Errorf("described problems: %v\nknown: %v", described, known)
	}
}

func shut(p admission.Policy) admission.Policy {
	p.Method = admission.Reject
	return p
}
