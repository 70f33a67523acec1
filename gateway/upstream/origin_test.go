package upstream

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/proxy"
)

// Only responses that reflect the load of the origin are measured.
func TestMeasure_CountsWhatReflectsLoad(t *testing.T) {
	broken := errors.New("broken")
	for _, row := range []struct {
		name             string
		out              proxy.Outcome
		began            time.Duration // ago
		failed           bool
		requests, errors int64
	}{
		{"a response", proxy.Outcome{Status: 200, FirstByte: time.Millisecond}, 0, false, 1, 0},
		{"an error", proxy.Outcome{Status: 500, FirstByte: time.Millisecond}, 0, true, 1, 1},
		{"a timeout", proxy.Outcome{Status: 504, Err: broken, Kind: proxy.KindTimeout}, time.Minute, true, 1, 1},
		{"a long download", proxy.Outcome{Status: 200, FirstByte: time.Millisecond}, time.Minute, false, 0, 0},
		{"a slow response", proxy.Outcome{Status: 200, FirstByte: 59 * time.Second}, time.Minute, false, 1, 0},
		{"a client that did not wait", proxy.Outcome{Err: broken, Kind: proxy.KindClientGone}, 100 * time.Millisecond, false, 0, 0},
		{"a client that waited long", proxy.Outcome{Err: broken, Kind: proxy.KindClientGone}, 20 * time.Second, false, 1, 0},
		{"a client that left during the response", proxy.Outcome{Status: 200, FirstByte: time.Millisecond, Err: broken, Kind: proxy.KindClientGone}, 20 * time.Second, false, 0, 0},
		{"a tunnel", proxy.Outcome{Status: 101, FirstByte: time.Millisecond, Upgraded: true}, 0, false, 0, 0},
	} {
		u := Origin{health: &adaptive.Recorder{}}
		u.measure(&row.out, row.failed, time.Now().Add(-row.began))
		if h := u.health.Take(); h.Requests != row.requests || h.Errors != row.errors {
			t.Errorf("%s: %d requests, %d errors", row.name, h.Requests, h.Errors)
		}
	}
}

// A queue that one client has filled, and refusals of that client, are no failures of the origin.
func TestClientsFault_CoversFailuresOfOneClient(t *testing.T) {
	for _, kind := range proxy.Kinds() {
		ofClient := slices.Contains([]string{proxy.KindClientGone, proxy.KindBadRequest, proxy.KindBodyTimeout, proxy.KindBodyLarge, proxy.KindShare}, kind)
		if got := clientsFault(&proxy.Outcome{Kind: kind}); got != ofClient {
			t.Errorf("%s: %v", kind, got)
		}
		if got, want := clientsFault(&proxy.Outcome{Kind: kind, Crowded: true}), ofClient || kind == proxy.KindQueueFull; got != want {
			t.Errorf("%s beside a client that holds many connections: %v", kind, got)
		}
	}
}

// Every response of an origin counts by its class of status; a failure without a response does not.
func TestObserve_CountsResponsesByClass(t *testing.T) {
	reg := prometheus.NewRegistry()
	u := Origin{metrics: metrics.New(reg, "").Origin("shop"), health: &adaptive.Recorder{}}
	for _, out := range []proxy.Outcome{
		{Status: 200, FirstByte: time.Millisecond, Sent: true}, {Status: 503, FirstByte: time.Millisecond, Sent: true}, {Status: 500, FirstByte: time.Millisecond, Sent: true},
		{Status: 504, Err: errors.New("broken"), Kind: proxy.KindTimeout},
		{Status: 502, FirstByte: time.Millisecond, Err: errors.New("broken"), Kind: proxy.KindBadResponse}, // a response that could not be relayed
	} {
		u.Observe(&out, time.Now(), "")
	}
	want := `# HELP anteroom_upstream_responses_total Responses of an origin by class of status.
# TYPE anteroom_upstream_responses_total counter
anteroom_upstream_responses_total{class="1xx",origin="shop"} 0
anteroom_upstream_responses_total{class="2xx",origin="shop"} 1
anteroom_upstream_responses_total{class="3xx",origin="shop"} 0
anteroom_upstream_responses_total{class="4xx",origin="shop"} 0
anteroom_upstream_responses_total{class="5xx",origin="shop"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "anteroom_upstream_responses_total"); err != nil {
		t.Error(err)
	}
}
