package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
)

// A shop protects its order step: the visitor's script gets a permit at one gateway, and the shop redeems it at the other.
func TestPermits_ShopRedeemsOnce(t *testing.T) {
	t.Parallel()
	store := redistest.Server(t)
	var redeemAt atomic.Pointer[string]
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Origin", "yes")
		if r.URL.Path != "/order/812" {
			_, _ = io.WriteString(w, "the seat map")
			return
		}
		resp, err := http.Post("http://"+*redeemAt.Load()+"/admin/v1/permits/redeem", "application/json",
			strings.NewReader(fmt.Sprintf(`{"permit":%q}`, r.Header.Get("X-Waiting-Room-Permit"))))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		var redeemed struct{ Sid, For, Method string }
		if json.NewDecoder(resp.Body).Decode(&redeemed) != nil || resp.StatusCode != http.StatusOK || redeemed.Sid != r.Header.Get("X-Waiting-Room-Session") ||
			redeemed.For != r.URL.Path || redeemed.Method != r.Method {
			http.Error(w, "not redeemed", http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, "ordered")
	}))
	t.Cleanup(shop.Close)
	s := setup{origin: shop.URL, rooms: []string{room(admission(1, 1), "permits: [{paths: [/order], methods: [POST], forward: true}]")}}.withRedis(store.URL())
	first, second := start(t, s), start(t, s)
	redeemAt.Store(&second.admin)

	visitor := newBrowser(t, first, second)
	visitor.get(first, "/seats", asBrowser).want(http.StatusOK)
	direct := visitor.ask(first, http.MethodPost, "/order/812", "seat=812", asBrowser).want(http.StatusForbidden)
	if !strings.Contains(direct.body, "Go back to the page that leads here") {
		t.Errorf("a direct POST gets %s", tail(direct.body))
	}
	const order = `{"for":"/order/812","method":"POST"}`
	permit := func() string {
		t.Helper()
		a := visitor.ask(first, http.MethodPost, "/.waiting-room/sale/permits", order, headers{"Content-Type": "application/json"}).want(http.StatusCreated)
		var issued struct{ Permit string }
		if err := json.Unmarshal([]byte(a.body), &issued); err != nil || issued.Permit == "" {
			t.Fatalf("%v: %s", err, a.body)
		}
		visitor.secret(issued.Permit)
		return issued.Permit
	}
	permit()
	if got := visitor.ask(second, http.MethodPost, "/order/812", "seat=812", asBrowser).want(http.StatusOK).body; got != "ordered" {
		t.Errorf("the order with the cookie: %s", got)
	}
	if got := visitor.ask(first, http.MethodPost, "/order/812", "seat=812", asBrowser).want(http.StatusForbidden).body; !strings.Contains(got, "not redeemed") {
		t.Errorf("the second order: %s", tail(got))
	}
	header := headers{"X-Waiting-Room-Permit": permit(), "Accept": "application/json"}
	visitor.ask(first, http.MethodPost, "/order/813", "", header).problem(http.StatusForbidden, "permit_invalid")
	visitor.ask(first, http.MethodPost, "/order/812", "", headers{"X-HTTP-Method-Override": "DELETE"}, header).problem(http.StatusForbidden, "permit_invalid")
	visitor.get(first, "/seats", asBrowser).want(http.StatusOK)

	// Without the store permits are issued and checked, and none is redeemed.
	store.Kill()
	permit()
	adminOf(t, second).post("permits/redeem", fmt.Sprintf(`{"permit":%q}`, permit())).want(http.StatusServiceUnavailable)
	visitor.ask(first, http.MethodPost, "/order/812", "seat=812", asBrowser).want(http.StatusForbidden)
}
