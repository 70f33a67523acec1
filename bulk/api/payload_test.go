package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/bulk/store"
)

// A handler gets a payload byte for byte, whatever JSON it is: with half a surrogate pair, numbers beyond 64 bits, characters of HTML, duplicate keys.
func TestPayload_ArrivesByteForByte(t *testing.T) {
	t.Parallel()
	const payload = `{"message":"\ud800","n":1e400,"big":12345678901234567890.10, "html":"<b>&\u2028` + "\u2028" + `","a":1,"a":2}`
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", `{"id":"a","payload":`+payload+"}\n"), 200)
	want(t, b.ask("POST", "/v1/jobs", `{"id":"b","tenant":"acme","type":"mail","payload":`+payload+`}`), 202)
	seen := 0
	b.run(func(l store.Leased) store.Ack {
		if seen++; string(l.Payload) != payload {
			t.Errorf("job %s: %s", l.ID, l.Payload)
		}
		return buried(l)
	})
	if seen != 2 {
		t.Errorf("%d jobs", seen)
	}
	// Documents of the API escape characters of HTML and leave out blanks; the value is the same.
	const shown = `"payload":{"message":"\ud800","n":1e400,"big":12345678901234567890.10,"html":"\u003cb\u003e\u0026\u2028\u2028","a":1,"a":2}`
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", `{"id":"c","payload":`+payload+"}\n"), 200)
	for _, w := range []*httptest.ResponseRecorder{b.ask("GET", "/v1/dead?group="+id, ""), b.ask("POST", "/v1/work/lease", `{"types":["mail"],"max":1}`)} {
		if !strings.Contains(w.Body.String(), shown) {
			t.Errorf("%s", w.Body)
		}
	}
}
