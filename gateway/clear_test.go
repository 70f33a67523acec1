package gateway

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/wire"
)

// Nothing of a request but memory may be left for the next one: a field that clear forgets is a visitor's data in the hands of another.
func TestRequest_KeepsOnlyMemory(t *testing.T) {
	r := request{
		req: &wire.Request{}, state: &state{}, start: time.Now(), target: []byte("/"), host: []byte("shop.test"),
		peer: client.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, kind: 1,
		room: &room{}, now: 1, account: account{state: accountKnown}, site: []byte("site"),
	}
	r.jar.Pass.Add([]byte("pass"))
	memory := map[string]bool{"readings": true, "binding": true, "memory": true}
	fields := reflect.TypeFor[request]()
	for i := range fields.NumField() {
		if name := fields.Field(i).Name; !memory[name] && reflect.ValueOf(r).Field(i).IsZero() {
			t.Errorf("this test sets no %s", name)
		}
	}
	r.clear()
	for i := range fields.NumField() {
		if name := fields.Field(i).Name; !memory[name] && !reflect.ValueOf(r).Field(i).IsZero() {
			t.Errorf("clear leaves %s", name)
		}
	}
}
