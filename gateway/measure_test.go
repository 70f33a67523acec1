package gateway

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// What says something of how busy an origin is, is counted, and nothing else.
func TestWhatIsMeasuredOfAnOrigin(t *testing.T) {
	broken := errors.New("broken")
	for _, row := range []struct {
		name             string
		out              proxy.Outcome
		began            time.Duration // ago
		failed           bool
		requests, errors int64
	}{
		{"an answer", proxy.Outcome{Status: 200, FirstByte: time.Millisecond}, 0, false, 1, 0},
		{"an error", proxy.Outcome{Status: 500, FirstByte: time.Millisecond}, 0, true, 1, 1},
		{"none in time", proxy.Outcome{Status: 504, Err: broken, Kind: proxy.KindTimeout}, time.Minute, true, 1, 1},
		{"a long download", proxy.Outcome{Status: 200, FirstByte: time.Millisecond}, time.Minute, false, 0, 0},
		{"an answer that took long", proxy.Outcome{Status: 200, FirstByte: 59 * time.Second}, time.Minute, false, 1, 0},
		{"a client that did not wait", proxy.Outcome{Err: broken, Kind: proxy.KindClientGone}, 100 * time.Millisecond, false, 0, 0},
		{"a client that waited long", proxy.Outcome{Err: broken, Kind: proxy.KindClientGone}, 20 * time.Second, false, 1, 0},
		{"a client that left in the answer", proxy.Outcome{Status: 200, FirstByte: time.Millisecond, Err: broken, Kind: proxy.KindClientGone}, 20 * time.Second, false, 0, 0},
		{"a tunnel", proxy.Outcome{Status: 101, FirstByte: time.Millisecond, Upgraded: true}, 0, false, 0, 0},
	} {
		u := upstream{health: &adaptive.Recorder{}}
		u.measure(&row.out, row.failed, time.Now().Add(-row.began))
		if h := u.health.Take(); h.Requests != row.requests || h.Errors != row.errors {
			t.Errorf("%s: %d requests, %d errors", row.name, h.Requests, h.Errors)
		}
	}
}

// Requests of visitors become the origin's health in the store, in a second; what a client does wrong does not.
func TestHealthIsTold(t *testing.T) {
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}})
	for range 8 {
		for _, path := range []string{"/", "/missing", "/broken"} {
			b.call("GET "+path, asJSON)
		}
	}
	eventually(t, "the health is in the store", func() bool {
		h, err := b.core.OriginHealth(t.Context(), "shop")
		return err == nil && h.Requests == 24 && h.Errors == 8 && h.Gateways == 1 && h.P95 > 0
	})
}

// A queue that one client has filled, and what that client is refused, are no failures of the origin's.
func TestFailures_OfOneClientAreNotTheOrigins(t *testing.T) {
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
