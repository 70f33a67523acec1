package gateway

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Of several tokens with a wrong signature in one request only one is checked: a check of Ed25519 costs as much as ten polls.
func TestForgedTokens_OneSignatureCheckPerRequest(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	good := b.call("POST /.waiting-room/sale/tickets").code(t, 201).field("token")
	forged := good[:strings.LastIndexByte(good, '.')+1] + strings.Repeat("A", 43)
	cookies := "Cookie: wr_sale_ticket=" + forged + "; wr_sale_ticket=" + forged + "x; wr_sale_pass=" + forged + "; wr_sale_pass=" + forged
	looked := func() float64 { return testutil.ToFloat64(b.metrics.RejectedTokens["signature"]) }
	before := looked()
	b.call("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+forged, "Authorization: Bearer "+forged, cookies).code(t, 401)
	if n := looked() - before; n != 1 {
		t.Errorf("%v wrong signatures were looked at, want 1", n)
	}
}
