package http1

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A header may have each of its names in any case, and has few of all other names.
func TestRequestHeader_MayHaveItsNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringMatching(`x[A-Za-z0-9!#$%&'*+.^|~-]{0,20}`), 0, 8).Draw(t, "names")
		var h RequestHeader
		head := "GET / HTTP/1.1\r\nhOST: shop.test\r\n"
		for _, name := range names {
			head += rapid.SampledFrom([]string{name, strings.ToUpper(name), strings.ToLower(name)}).Draw(t, "written") + ": 1\r\n"
		}
		if n, refusal := h.Scan([]byte(head+"\r\n"), &Limits{Header: 4096, Target: 100, Lines: 20}); refusal != nil || n == 0 {
			t.Skip("a name that is refused")
		}
		for _, name := range append(names, "host") {
			if !h.MayHave(strings.ToLower(name)) {
				t.Fatalf("%q is in %q", name, head)
			}
		}
	})
	var h RequestHeader
	if n, refusal := h.Scan([]byte("GET / HTTP/1.1\r\nHost: shop.test\r\nAccept: */*\r\n\r\n"), &Limits{Header: 4096, Target: 100, Lines: 20}); n == 0 || refusal != nil {
		t.Fatal(n, refusal)
	}
	for _, name := range []string{"", "upgrade", "cookie", "sec-fetch-dest", "user-agent", "authorization", "x-waiting-room-token", "idempotency-key"} {
		if h.MayHave(name) {
			t.Errorf("%q may be in a header with Host and Accept", name)
		}
	}
}
