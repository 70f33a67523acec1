package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestRecord_MetricsAndAccessLog(t *testing.T) {
	log := &syncBuffer{}
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)},
		Rooms:   []Room{{ID: "sale", Policy: policy(1), Bypass: []Bypass{{Paths: []string{"/health"}}}}},
		Access:  Access{Output: log, Sample: 1, Prefix: true},
	})
	in := b.call("GET /secret?token=abc&q=1", asJSON, "User-Agent: test\"er").code(t, 200)
	b.call("GET /", asJSON, in.jar()).code(t, 200)
	wait := b.call("GET /", asJSON).code(t, 202)
	b.call("GET /.waiting-room/sale/status", wait.jar()).code(t, 200)
	b.call("GET /health").code(t, 200)
	b.call("GET /.waiting-room/sale/status", "Cookie: wr_sale_ticket=forged").code(t, 401)
	b.call("GET /.waiting-room/none/status").code(t, 404)
	const want = `
# HELP anteroom_requests_total Requests by room and outcome.
# TYPE anteroom_requests_total counter
anteroom_requests_total{outcome="bypass",room=""} 0
anteroom_requests_total{outcome="bypass",room="sale"} 1
anteroom_requests_total{outcome="error",room=""} 0
anteroom_requests_total{outcome="error",room="sale"} 0
anteroom_requests_total{outcome="let_in",room=""} 0
anteroom_requests_total{outcome="let_in",room="sale"} 1
anteroom_requests_total{outcome="proxied",room=""} 0
anteroom_requests_total{outcome="proxied",room="sale"} 1
anteroom_requests_total{outcome="refused",room=""} 1
anteroom_requests_total{outcome="refused",room="sale"} 1
anteroom_requests_total{outcome="waiting",room=""} 0
anteroom_requests_total{outcome="waiting",room="sale"} 2
`
	eventually(t, "every request is counted, which follows its answer", func() bool {
		return testutil.GatherAndCompare(b.reg, strings.NewReader(want), "anteroom_requests_total") == nil
	})
	eventually(t, "the snapshot has the one who waits", func() bool {
		return testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP anteroom_waiting Visitors in the queue.
# TYPE anteroom_waiting gauge
anteroom_waiting{room="sale"} 1
# HELP anteroom_admissions_total Visitors admitted, including those admitted immediately, since the store began.
# TYPE anteroom_admissions_total counter
anteroom_admissions_total{room="sale"} 1
# HELP anteroom_store_up 1 while the store replies.
# TYPE anteroom_store_up gauge
anteroom_store_up 1
`), "anteroom_waiting", "anteroom_admissions_total", "anteroom_store_up") == nil
	})
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, strings.TrimPrefix(f.GetName(), "anteroom_"))
	}
	for _, name := range []string{"requests_total", "request_seconds", "upstream_seconds", "upstream_errors_total", "waiting", "parked", "active",
		"admitted_unclaimed", "joins_total", "admissions_total", "claims_total", "lapsed_total", "abandoned_total", "rate", "rate_limit",
		"wait_seconds", "eta_error_ratio", "snapshot_age_seconds", "store_command_seconds", "store_up", "tokens_rejected_total", "build_info"} {
		if !slices.Contains(names, name) {
			t.Errorf("no metric %s", name)
		}
	}
	b.stop()
	text := log.String()
	for _, secret := range []string{"abc", "forged", "eyJ", "127.0.0.1\""} {
		if strings.Contains(text, secret) {
			t.Errorf("the access log holds %q:\n%s", secret, text)
		}
	}
	var first string // a line is written after the response, so the line of the next request may come first
	for line := range strings.Lines(text) {
		if strings.Contains(line, `"target":"/secret`) {
			first = line
			break
		}
	}
	for _, part := range []string{`"ip":"127.0.0.0/24"`, `"method":"GET"`, `"target":"/secret?token=***&q=1"`, `"status":200`, `"room":"sale"`, `"outcome":"let_in"`, `"user_agent":"test\"er"`, `"bytes":30`} {
		if !strings.Contains(first, part) {
			t.Errorf("no %s in %s", part, first)
		}
	}
	if n := strings.Count(text, "\n"); n != 7 {
		t.Errorf("%d lines for 7 requests", n)
	}
}

func TestAccessLog_CombinedFormat(t *testing.T) {
	log := &syncBuffer{}
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Access: Access{Output: log, Sample: 1, Combined: true},
	})
	b.call("GET /a?key=1", "User-Agent: a\"b", "Referer: http://h/?token=2").code(t, 200)
	b.stop()
	line := log.String()
	if !strings.HasPrefix(line, "127.0.0.1 - - [") || !strings.HasSuffix(line, ` +0000] "GET /a?key=*** HTTP/1.1" 200 17 "http://h/?token=***" "a\x22b"`+"\n") {
		t.Errorf("%s", line)
	}
}
