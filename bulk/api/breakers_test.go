package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// openBreaker has so many jobs of a tenant fail that the breaker of its type and the tenant opens.
func (b *bench) openBreaker(kind, tenant string) {
	b.t.Helper()
	if w := b.ask("POST", fmt.Sprintf("/v1/bulk?tenant=%s&type=%s", tenant, kind), lines(30)); w.Code != 201 {
		b.t.Fatalf("%d %s", w.Code, w.Body)
	}
	p, err := b.store.Pull(b.t.Context(), 100, kind)
	if err != nil {
		b.t.Fatal(err)
	}
	acks := make([]store.Ack, len(p.Jobs))
	for i, j := range p.Jobs {
		acks[i] = store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Retry, Code: "http_500", Retries: 9, After: time.Minute,
			Breaker: store.Breaker{Ratio: 0.5, Window: 10 * time.Second, Probe: 1}}
	}
	if _, err := b.store.Ack(b.t.Context(), acks); err != nil {
		b.t.Fatal(err)
	}
}

func TestBreakers_AreShownAndLifted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const acme = "Authorization: Bearer " + acmeToken
	names := func(headers ...string) string {
		var a struct {
			Breakers []struct {
				Processor, Tenant, State, Code string
				OpenedAt                       time.Time `json:"opened_at"`
				FailedAt                       time.Time `json:"failed_at"`
				Probes, Failures, Answers      int64
			}
		}
		w := b.ask("GET", "/v1/breakers", "", headers...)
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		var list []string
		for _, v := range a.Breakers {
			list = append(list, strings.Join([]string{v.Processor, v.Tenant, v.State, v.Code}, " "))
			if v.OpenedAt.IsZero() || v.FailedAt.IsZero() || v.Probes != 1 || v.Failures < 20 || v.Answers < v.Failures {
				t.Errorf("%+v", v)
			}
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	want(t, b.ask("GET", "/v1/breakers", ""), 200, `{"breakers":[]}`)
	b.openBreaker("mail", "acme")
	b.openBreaker("mail", "beta")
	if got := names(); got != "mail acme open http_500, mail beta open http_500" {
		t.Errorf("operators see %s", got)
	}
	if got := names(acme); got != "mail acme open http_500" {
		t.Errorf("acme sees %s", got)
	}
	wantCode(t, b.ask("DELETE", "/v1/breakers?processor=mail&tenant=acme", "", acme), 403, "operators_only")
	wantCode(t, b.ask("DELETE", "/v1/breakers?processor=mail", ""), 404, "not_found", "mail")
	wantCode(t, b.ask("DELETE", "/v1/breakers", ""), 422, "invalid", "processor")
	wantCode(t, b.ask("DELETE", "/v1/breakers?processor=a%20b&tenant=&x=1", ""), 422, "invalid", "processor", "tenant", "x")
	if w := b.ask("DELETE", "/v1/breakers?processor=mail&tenant=acme", ""); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := names(); got != "mail beta open http_500" {
		t.Errorf("after one was lifted %s is open", got)
	}
}
