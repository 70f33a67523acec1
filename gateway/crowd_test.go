package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// A crowd at two gateways on one store is one queue: no visitor is admitted before an earlier one, and none twice.
func TestRoom_TwoGatewaysAdmitInOrder(t *testing.T) {
	s := newSite(t, "shop", nil)
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	o := Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}, {ID: "vip", Paths: []string{"/vip"}, Policy: policy(1)}}}
	gates := []*bench{start(t, client, prefix, o), start(t, client, prefix, o)}
	gates[0].call("GET /", asJSON).code(t, 200)
	const crowd = 60
	type visitor struct{ joined, admitted, token string }
	visitors := make([]visitor, crowd)
	for i := range visitors {
		a := gates[i%2].call("POST /.waiting-room/sale/tickets").code(t, 201)
		visitors[i] = visitor{joined: a.field("joined_at"), token: a.field("token")}
	}
	gates[1].rate("sale", 100)
	var all sync.WaitGroup
	for i := range visitors {
		all.Go(func() {
			v := &visitors[i]
			deadline := time.Now().Add(time.Minute)
			for n := i; time.Now().Before(deadline); n++ { // each poll goes to the other gateway
				a, err := gates[n%2].try("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+v.token)
				if err != nil {
					t.Error(err)
					return
				}
				if token := a.field("token"); token != "" {
					v.token = token
				}
				if v.admitted = a.field("admitted_at"); v.admitted != "" {
					return
				}
				pause(20 * time.Millisecond)
			}
		})
	}
	all.Wait()
	slices.SortFunc(visitors, func(a, b visitor) int { return strings.Compare(a.joined, b.joined) })
	for i, v := range visitors {
		if v.admitted == "" {
			t.Fatalf("visitor %d was never admitted", i)
		}
		if i > 0 && v.admitted < visitors[i-1].admitted {
			t.Errorf("%s, joined %s, was admitted before %s, joined %s", v.admitted, v.joined, visitors[i-1].admitted, visitors[i-1].joined)
		}
	}
	for _, g := range gates {
		eventually(t, "both count the same", func() bool { return g.queue("sale").Snapshot().Admissions == crowd+1 })
		g.call("GET /vip", asJSON) // the other room has its own queue
	}
}

func TestEvents_EndAndAreLimited(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}, MaxStreams: 2,
	})
	token := b.call("POST /.waiting-room/sale/tickets").field("token")
	open := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "GET /.waiting-room/sale/events HTTP/1.1\r\nHost: shop.test\r\nX-Waiting-Room-Token: %s\r\n\r\n", token)
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "data: ") {
				return c, r
			}
		}
	}
	_, first := open()
	open()
	b.call("GET /.waiting-room/sale/events", "X-Waiting-Room-Token: "+token).is(t, `
503
Cache-Control: no-store
Content-Type: application/problem+json
Retry-After: N
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:streams_full","title":"Too many event streams","status":503,"detail":"The gateway has no capacity for another event stream. Poll the status, or try again after Retry-After.","code":"streams_full"}`)
	if n := testutil.ToFloat64(b.metrics.Streams); n != 2 {
		t.Errorf("%v streams are counted", n)
	}
	b.stop()
	if rest, err := io.ReadAll(first); err != nil {
		t.Errorf("the stream did not end: %q %v", rest, err)
	}
}
