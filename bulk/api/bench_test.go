package api

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// One op is a job: NDJSON in, into a real Redis. The lines' jobs have payloads of about 100 bytes.
func BenchmarkUpload(b *testing.B) {
	s, err := store.New(store.Options{Client: redistest.Client(b), Prefix: redistest.Prefix(b), Settings: store.Defaults()})
	if err != nil {
		b.Fatal(err)
	}
	server, err := New(Options{Store: s})
	if err != nil {
		b.Fatal(err)
	}
	const chunk = 50_000
	var body strings.Builder
	for i := range chunk {
		fmt.Fprintf(&body, "{\"payload\":{\"to\":\"user%d@example.com\",\"template\":\"welcome\",\"vars\":{\"name\":\"A. Person\",\"n\":%d}}}\n", i, i)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%chunk == 0 {
			r := httptest.NewRequest("POST", fmt.Sprintf("/v1/bulk?tenant=acme&type=mail&id=g%d", n), strings.NewReader(body.String()))
			r.Host = "localhost"
			w := httptest.NewRecorder()
			if server.Handler().ServeHTTP(w, r); w.Code != 201 {
				b.Fatal(w.Body)
			}
		}
		n++
	}
}
